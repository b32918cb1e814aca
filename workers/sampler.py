"""`python -m workers.sampler`: reads the machine about once a second while trials run. Started by `workers.sampling`.

A process of its own, niced, so that it takes the processor last and its cost can be told apart: each line holds the CPU
seconds that it has spent. It ends with its parent.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict

from workers.system import LocalSystem
from workers.telemetry import CHEAP, MachineReader

NICENESS = 10
PROBES = 2  # samples after which it is known what can be read here: a rate needs two


def main() -> int:
    """One line of JSON a sample, until the parent is gone."""
    parser = argparse.ArgumentParser(prog="python -m workers.sampler")
    parser.add_argument("--interval-s", type=float, required=True)
    parser.add_argument("--root-pid", type=int, required=True)
    arguments = parser.parse_args()
    os.nice(NICENESS)
    reader = MachineReader(LocalSystem(root_pid=arguments.root_pid), only=CHEAP)
    due_s, taken = time.monotonic(), 0
    while os.getppid() == arguments.root_pid:
        at_s, readings = time.monotonic(), reader.read()
        taken += 1
        if taken == PROBES:  # what cannot be read here costs its attempts no longer
            reader.narrow({reading.field for reading in readings if reading.reason is None})
        line = {"at_s": at_s, "readings": [asdict(reading) for reading in readings]}
        try:
            sys.stdout.write(json.dumps(line | {"cpu_s": time.process_time()}) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            os._exit(0)  # nobody reads, and Python would complain once more at its end
        due_s = max(due_s + arguments.interval_s, time.monotonic())
        time.sleep(due_s - time.monotonic())
    return 0


if __name__ == "__main__":
    sys.exit(main())
