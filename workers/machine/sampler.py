"""`python -m workers.machine.sampler` reads the machine about once per second while trials run.

`workers.machine.samples` starts it.

A process of its own, niced, so that it takes the processor last and its cost can be separated: each line holds the CPU
seconds that it has spent. It ends with its parent.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType

from workers.machine.macmon import MacmonStream, Streaming
from workers.machine.optional_tools import MACOS_FIELDS
from workers.machine.system import LocalSystem, System, Unreadable
from workers.machine.telemetry import CHEAP, MachineReader, Reading

NICENESS = 10


def main() -> int:
    """Write one line of JSON per sample until the parent has ended."""
    parser = argparse.ArgumentParser(prog="python -m workers.machine.sampler")
    parser.add_argument("--interval-s", type=float, required=True)
    parser.add_argument("--root-pid", type=int, required=True)
    arguments = parser.parse_args()
    os.nice(NICENESS)
    signal.signal(signal.SIGTERM, _leave)  # in an orderly way: the stream ends with it
    with macmon_where_there(LocalSystem(root_pid=arguments.root_pid), arguments.interval_s) as (system, stream):
        _sample(system, stream, interval_s=arguments.interval_s, parent=arguments.root_pid)
    return 0


@contextmanager
def macmon_where_there(system: System, interval_s: float) -> Iterator[tuple[System, MacmonStream | None]]:
    """The system, on a Mac with macmon one that reads it as a stream."""
    stream = None
    if system.platform == "darwin":
        try:
            stream = MacmonStream(interval_s=interval_s)
        except Unreadable:
            stream = None  # not installed: the readings around a trial report it
    try:
        yield (system if stream is None else Streaming(system, stream)), stream
    finally:
        if stream is not None:
            stream.stop()


def _sample(system: System, stream: MacmonStream | None, *, interval_s: float, parent: int) -> None:
    streamed = frozenset() if stream is None else frozenset(MACOS_FIELDS)
    reader = MachineReader(system, only=CHEAP | streamed)
    due_s, taken = time.monotonic(), 0
    first: tuple[Reading, ...] = ()
    while os.getppid() == parent:
        at_s, readings = time.monotonic(), reader.read()
        taken += 1
        if taken == 1:
            first = readings
        elif taken == 2:  # fields that cannot be read here are not tried again
            reader.narrow(worth_asking(first, readings, streamed=streamed))
        spent_s = time.process_time() + (0.0 if stream is None else stream.cpu_s())
        line = {"at_s": at_s, "readings": [asdict(reading) for reading in readings], "cpu_s": spent_s}
        try:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            os._exit(0)  # no reader is left, and Python would report an error at its end
        now_s = time.monotonic()
        due_s = due_s + interval_s if due_s + interval_s > now_s else now_s + interval_s
        time.sleep(due_s - now_s)  # of one that was held up: a whole interval, for a rate needs one


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def worth_asking(first: Sequence[Reading], second: Sequence[Reading], *, streamed: Collection[str]) -> set[str]:
    """The fields to go on with after two samples: all but those that failed twice for the same reason.

    What comes from the stream stays in any case: it costs a look, its first line may be late, and a GPU that idles
    before the run has no clock.
    """
    reasons = {reading.field: reading.reason for reading in first}
    return {
        reading.field
        for reading in second
        if reading.field in streamed or reading.reason is None or reading.reason != reasons.get(reading.field)
    }


if __name__ == "__main__":
    sys.exit(main())
