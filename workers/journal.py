"""Which processes a run has spawned: on disk before their first use, so that a crash of the run leaves no unknown ones.

A file of JSON lines, only ever appended to: `spawned` with the process's identity, `gone` once its end is verified.
Only a process whose pid AND start time are in here may be taken for ours.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import psutil

# psutil derives the start time from the clock at boot, which may be corrected later; a pid is not reused so soon.
START_TOLERANCE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A process that a run started."""

    run_id: str
    arm: str
    pid: int
    create_time: float  # seconds since the epoch
    pgid: int
    sid: int
    exe: str | None  # None: the system does not say
    cwd: str | None
    parent_pid: int
    parent_create_time: float


class Journal:
    """Appends to one journal file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def spawned(self, entry: Spawned) -> None:
        """Write the entry through to the disk."""
        self._append({"event": "spawned", **asdict(entry)})

    def gone(self, entry: Spawned) -> None:
        """This process and all that came of it are verified gone."""
        self._append({"event": "gone", "pid": entry.pid, "create_time": entry.create_time})

    def _append(self, body: dict[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(body).encode() + b"\n"
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, line)  # one write: lines of several runs do not mix
            os.fsync(fd)
        finally:
            os.close(fd)


def describe(process: psutil.Process, *, run_id: str, arm: str) -> Spawned:
    """The identity of a process that this one has just spawned.

    Raises:
        psutil.Error: it has already ended.
    """
    parent = psutil.Process()
    return Spawned(
        run_id=run_id,
        arm=arm,
        pid=process.pid,
        create_time=process.create_time(),
        pgid=os.getpgid(process.pid),
        sid=os.getsid(process.pid),
        exe=_readable(process.exe),
        cwd=_readable(process.cwd),
        parent_pid=parent.pid,
        parent_create_time=parent.create_time(),
    )


def read_journal(path: Path) -> list[Spawned]:
    """The processes that were spawned and not seen gone, in the order of their start. No file: none."""
    if not path.exists():
        return []
    names = {f.name for f in fields(Spawned)}
    entries: dict[tuple[int, float], Spawned] = {}
    for body in _bodies(path):
        key = (body["pid"], body["create_time"])
        if body["event"] == "gone":
            entries.pop(key, None)
        else:
            entries[key] = Spawned(**{name: value for name, value in body.items() if name in names})
    return list(entries.values())


def find_orphans(path: Path) -> list[Spawned]:
    """The journaled processes that still run although the process that spawned them does not."""
    return [
        entry
        for entry in read_journal(path)
        if is_living(entry.pid, entry.create_time) and not is_living(entry.parent_pid, entry.parent_create_time)
    ]


def is_living(pid: int, create_time: float) -> bool:
    """Whether the process of this pid AND start time runs."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - create_time) < START_TOLERANCE_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _bodies(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue  # cut short by a crash while it was written: that process was never used


def _readable(read: Callable[[], str]) -> str | None:
    try:
        return str(read())
    except psutil.Error:
        return None
