"""Work on a file of unknown origin in a process of its own: native code that reads a model file can crash, loop or fill
the memory, and then this process alone ends, with one clear line about it.

    python -m workers.supervision.isolation --answer-fd N TASK JSON

The parent watches the memory that the child holds and the time that it takes. The child ends when its parent does.
"""

import argparse
import contextlib
import faulthandler
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from workers.errors import EngineError, FaultKind, classify, classify_text, describe_exit
from workers.machine.memory import held_bytes

# What may be asked for, by name: a function that takes the JSON's keys.
TASKS = {"gguf": "workers.weights.gguf:convert_here", "quantise": "workers.weights.quantisation:convert_here"}
_LOOK_S = 0.1
_TAIL_BYTES = 2000
_MOST_ANSWER_BYTES = 1 << 16
_LAUNCH = Path(__file__).parents[1] / "launch.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one task."""

    time_s: float
    memory_bytes: int


def run_apart(task: str, arguments: Mapping[str, Any], *, source: Path, limits: Limits) -> None:
    """Carry out one of `TASKS` in a child process.

    Args:
        arguments: JSON values, by the function's parameters.
        source: the file that is read, for messages.

    Raises:
        EngineError: as the task raised it; checkpoint_corrupt where its process crashed or took longer than its time;
            out_of_memory where it took more than its memory.
    """
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd, "rb") as answer, tempfile.TemporaryFile() as log:
        try:
            child = _spawn(task, arguments, write_fd, log)
        finally:
            os.close(write_fd)
        with child:
            try:
                _watch(child, source, limits)
            finally:
                child.kill()  # no effect on one that has ended
        _judge(child.returncode, answer.read(_MOST_ANSWER_BYTES), source, _tail(log))


def _spawn(task: str, arguments: Mapping[str, Any], write_fd: int, log: BinaryIO) -> "subprocess.Popen[bytes]":
    module = ["-I", str(_LAUNCH), "--module"] if sys.flags.isolated else ["-P", "-m"]
    command = [sys.executable, "-X", "utf8", *module, "workers.supervision.isolation", "--answer-fd", str(write_fd)]
    return subprocess.Popen(
        [*command, task, json.dumps(arguments)], stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=(write_fd,)
    )


def _watch(child: "subprocess.Popen[bytes]", source: Path, limits: Limits) -> None:
    """Wait for the child's end, within its limits."""
    deadline_s = time.monotonic() + limits.time_s
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_LOOK_S)
            return
        held = held_bytes(child.pid)
        if held is not None and held > limits.memory_bytes:
            raise EngineError(
                FaultKind.out_of_memory,
                f"{source}: reading it took more than {limits.memory_bytes / 1e9:.1f} GB, which its size does not"
                " explain, and was stopped",
                remedy=_REMEDY,
            )
        if time.monotonic() > deadline_s:
            raise EngineError(
                FaultKind.checkpoint_corrupt,
                f"{source}: reading it did not end within {limits.time_s:.0f} s and was stopped",
                remedy=_REMEDY,
            )


_REMEDY = "the file is damaged or malicious: fetch it again from a source that you trust"


def _judge(returncode: int, answer: bytes, source: Path, tail: str) -> None:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        found = json.loads(answer)
        if found["ok"]:
            return
        error = EngineError(FaultKind(found["kind"]), found["message"])
        error.remedy = found["remedy"]
        raise error
    kind = classify_text(tail) or FaultKind.checkpoint_corrupt
    said = f": {tail}" if tail else ""
    raise EngineError(
        kind, f"{source}: the process that read it crashed with {describe_exit(returncode)}{said}", remedy=_REMEDY
    )


def _tail(log: BinaryIO) -> str:
    """The last line printed before a crash that is not part of a stack."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _TAIL_BYTES))
    lines = [" ".join(line.split()) for line in log.read().decode("utf-8", errors="replace").splitlines()]
    said = [line for line in lines if line and not line.startswith(("File ", "Thread ", "Current thread", "Extension"))]
    return said[-1][:200] if said else ""


# ---- in the child ----


def main() -> int:
    """Carry out one task and answer with its outcome."""
    parser = argparse.ArgumentParser(prog="python -m workers.supervision.isolation")
    parser.add_argument("--answer-fd", type=int, required=True)
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("arguments")
    asked = parser.parse_args()
    faulthandler.enable()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with os.fdopen(asked.answer_fd, "wb") as answer:
        answer.write(json.dumps(perform(asked.task, json.loads(asked.arguments))).encode())
    return 0


def perform(task: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A task's outcome as JSON values."""
    module, _, name = TASKS[task].partition(":")
    function: Callable[..., None] = getattr(importlib.import_module(module), name)
    try:
        function(**arguments)
    except EngineError as error:
        return _outcome(error.kind, str(error), error.remedy)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001  # the process boundary; a panic of Rust is no Exception
        words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        message = f"{arguments.get('source')}: cannot be read as a model ({words})"
        kind = classify(error, default=FaultKind.checkpoint_corrupt)
        return _outcome(kind, f"{message}; {_REMEDY}", _REMEDY)
    return {"ok": True}


def _outcome(kind: FaultKind, message: str, remedy: str) -> dict[str, Any]:
    return {"ok": False, "kind": kind.value, "message": message[:4000], "remedy": remedy}


def _end_with_parent() -> None:
    """Standard input ends when the parent does, however that was."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
