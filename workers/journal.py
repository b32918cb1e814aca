"""Which processes runs have spawned: on disk before their first use, so that a crash of a run leaves no unknown ones.

A file of JSON lines beside the database, shared by its runs: `spawned` with the process's identity, for a worker and
for every descendant that was seen; `gone` once its end is verified. Only a process whose pid AND start time are in
here, or that carries our marker, may be taken for ours.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import psutil

from workers.identity import is_living, of_another_boot, started_s, this_boot
from workers.processes import PROCESS_FAULTS

# In the environment of a worker and all that comes of it: which run's process they belong to.
OWNER_MARK = "INTERLACE_OWNER"
# In the environment of a server that a worker launches, and of what comes of it: the port that it was given.
PORT_MARK = "INTERLACE_PORT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A process that a run started."""

    run_id: str
    arm: str
    pid: int
    create_time: float  # see `workers.identity.started_s`
    pgid: int
    sid: int
    exe: str | None  # None: the system does not say
    cwd: str | None
    parent_pid: int  # of the run's own process, for descendants too: whoever must live for this one to be in use
    parent_create_time: float
    port: int | None = None  # a server's, where we chose one
    boot_id: str | None = None  # None: the system tells none


class Journal:
    """Appends to one journal file; several runs may do so at once."""

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
        with _locked(self._path) as fd:
            os.lseek(fd, 0, os.SEEK_END)
            os.write(fd, line)
            os.fsync(fd)

    def compact(self) -> None:
        """Forget the processes that no longer run, whoever spawned them: the file must not grow for ever."""
        if not self._path.exists():
            return
        with _locked(self._path) as fd:
            kept = [entry for entry in read_journal(self._path) if still_runs(entry)]
            body = b"".join(json.dumps({"event": "spawned", **asdict(entry)}).encode() + b"\n" for entry in kept)
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
            os.write(fd, body)
            os.fsync(fd)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file's descriptor, while nobody else writes to it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)  # which unlocks it


def describe(process: psutil.Process, *, run_id: str, arm: str) -> Spawned:
    """The identity of a process that this one has spawned, or that came of one.

    Raises:
        psutil.Error: it has already ended.
    """
    parent = psutil.Process()
    return Spawned(
        run_id=run_id,
        arm=arm,
        pid=process.pid,
        create_time=started_s(process),
        pgid=os.getpgid(process.pid),
        sid=os.getsid(process.pid),
        exe=_readable(process.exe),
        cwd=_readable(process.cwd),
        parent_pid=parent.pid,
        parent_create_time=started_s(parent),
        port=port_of(process),
        boot_id=this_boot(),
    )


def port_of(process: psutil.Process) -> int | None:
    """The port that its environment names. A process that has not yet become its program still has its parent's."""
    try:
        mark = process.environ().get(PORT_MARK, "")
    except PROCESS_FAULTS:
        return None
    return int(mark) if mark.isdigit() else None


def owner_mark() -> str:
    """This process as the owner of those that it spawns."""
    me = psutil.Process()
    return f"{me.pid}:{started_s(me)!r}:{this_boot() or ''}"


def marks_orphan(mark: str) -> bool:
    """Whether the owner that a process's mark names has ended. A mark that names none, as earlier versions' do, says
    nothing."""
    try:
        pid, start_s, boot_id = mark.split(":")
        return not is_living(int(pid), float(start_s), boot_id or None)
    except ValueError:
        return False


def read_journal(path: Path) -> list[Spawned]:
    """The processes that were spawned in this boot and not seen gone, in the order of their start. No file: none."""
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
    return [entry for entry in entries.values() if not of_another_boot(entry.boot_id)]


def is_orphaned(entry: Spawned) -> bool:
    """Whether the process still runs although the run that it belongs to does not."""
    return still_runs(entry) and not run_lives(entry)


def still_runs(entry: Spawned) -> bool:
    """Whether the process itself runs."""
    return is_living(entry.pid, entry.create_time, entry.boot_id)


def run_lives(entry: Spawned) -> bool:
    """Whether the run's own process does."""
    return is_living(entry.parent_pid, entry.parent_create_time, entry.boot_id)


def find_orphans(path: Path) -> list[Spawned]:
    """The journaled processes that outlived their run."""
    return [entry for entry in read_journal(path) if is_orphaned(entry)]


def _bodies(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue  # cut short by a crash while it was written: that process was never used


def _readable(read: Callable[[], str]) -> str | None:
    try:
        return str(read())
    except PROCESS_FAULTS:
        return None
