"""The last fault in a log, in the forms that servers print."""

import pytest

from workers.supervision.tracebacks import last_fault

PLAIN = """\
INFO:     Started server process [17]
Traceback (most recent call last):
  File "/x/server.py", line 3, in load
    draft.load(path)
    ^^^^^^^^^^^^^^^^
KeyError: 18

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/x/server.py", line 9, in <module>
    main()
ValueError: Model type mtp: 3 tensors are missing
INFO:     Shutting down
"""
GROUP = """\
ERROR:    Exception in ASGI application
  + Exception Group Traceback (most recent call last):
  |   File "/x/app.py", line 1, in call
  |     await run()
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/x/app.py", line 2, in run
    |     raise RuntimeError("no heads")
    | RuntimeError: this model has no MTP heads
    +------------------------------------
"""
LOGGED = """\
2026-01-01 00:00:00,000 - omlx.server - ERROR - generation failed: MTP weights are missing
2026-01-01 00:00:00,001 - omlx.server - INFO - 127.0.0.1 POST 500
"""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (PLAIN, "ValueError: Model type mtp: 3 tensors are missing"),
        (GROUP, "RuntimeError: this model has no MTP heads"),
        (LOGGED, "generation failed: MTP weights are missing"),
        ("\x1b[31mERROR\x1b[0m:    cannot bind\n", "cannot bind"),
        (f"{LOGGED}{PLAIN}", "ValueError: Model type mtp: 3 tensors are missing"),
        ("Traceback (most recent call last):\n  File x\n", None),  # cut off
        ("INFO: all is well\n", None),
        ("", None),
    ],
)
def test_the_last_fault(text: str, fault: str | None) -> None:
    assert last_fault(text.splitlines(keepends=True)) == fault
