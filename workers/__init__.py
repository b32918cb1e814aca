"""Worker processes: engines that generate tokens, each in a process of its own, and everything that surrounds them.

Top down; a package imports only from those below it:

    worker, __main__, launch    the worker process itself
    engines                     one module per engine, in process or behind a server
    weights                     checkpoints: their files, conversion, and fit with a draft
    supervision                 processes as their parent sees them: workers, servers, leftovers
    machine                     readings of the machine and of its processes
    http, catalogue             requests to servers, and the evidence that servers leave
    files                       private, atomic files
    protocol, errors, counts, masking, references, environment, stopwatch, wellformed

`orchestrator` talks to a worker through `supervision.worker_process` in the words of `protocol`.
"""
