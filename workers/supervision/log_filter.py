"""Filters another program's output on its way into a log, so that no secret of this process reaches the disk.

A process of its own masks line by line: it outlives a worker that is killed, ends once nobody can print any more, and
takes no time from the process that measures. Where no secret is known, nothing stands between a program and the log.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from workers.masking import KNOWN, mask

END_S = 2.0  # from the end of what is printed to the end of the process
_CHUNK_BYTES, _LINE_BYTES = 1 << 16, 1 << 20
_LAUNCH = Path(__file__).parents[1] / "launch.py"

Filter = subprocess.Popen[bytes]


@contextlib.contextmanager
def filtered(log: int) -> Iterator[tuple[int, Filter | None]]:
    """The output of a program that is started inside the block, and the process that masks it.

    Args:
        log: the log's descriptor, opened for appending. Where no secret is known it is the place itself, and there is
            no process.

    Raises:
        OSError: the process cannot be started.
    """
    values = KNOWN.values()
    if not values:
        yield log, None
        return
    read, write = os.pipe()
    with os.fdopen(read, "rb") as source, os.fdopen(write, "wb") as place:
        yield place.fileno(), _start(values, source, log)


def _start(values: list[str], source: BinaryIO, log: int) -> Filter:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reading, os.fdopen(write, "w", encoding="utf-8") as secrets:
        command = [sys.executable, "-I", str(_LAUNCH), "--module", __name__, str(reading.fileno())]
        process = subprocess.Popen(command, stdin=source, stdout=log, stderr=log, pass_fds=(reading.fileno(),))
        json.dump(values, secrets)  # through a pipe: arguments and environments are shown by `ps`
    return process


def wait_for(process: Filter | None) -> None:
    """Wait until all that was printed is in the log; only briefly if something may still print."""
    if process is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)


def main(values_fd: int) -> None:
    """Mask standard input onto standard output until it ends. Whole lines only, so that no secret is cut in two."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # all input up to its end has to be written
    with os.fdopen(values_fd, encoding="utf-8") as secrets:
        KNOWN.add(*json.load(secrets))
    held = b""
    while chunk := os.read(0, _CHUNK_BYTES):
        held += chunk
        end = max(held.rfind(b"\n"), held.rfind(b"\r")) + 1
        if not end and len(held) > _LINE_BYTES:
            end = len(held)
        _write(held[:end])
        held = held[end:]
    _write(held)


def _write(text: bytes) -> None:
    masked = mask(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    while masked:
        masked = masked[os.write(1, masked) :]


if __name__ == "__main__":
    main(int(sys.argv[1]))
