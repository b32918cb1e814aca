"""The processes that runs have spawned, on disk before their first use: a crash of a run leaves no unknown ones.

A file of JSON lines beside the database, shared by its runs: `spawned` with the process's identity, for a worker and
for every descendant that was seen; `gone` once its end is verified. Only a process whose pid AND start time are in
here, or that carries our marker, may be taken for ours.
"""

import fcntl
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import psutil

from workers.files.atomic import write_file
from workers.files.private import make_private_folder, open_private
from workers.machine.process_identity import is_living, of_another_boot, pid_namespace, port_of, started_s, this_boot
from workers.machine.processes import PROCESS_FAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A process that a run started."""

    run_id: str
    arm: str
    pid: int
    create_time: float  # see `workers.machine.process_identity.started_s`
    pgid: int  # 0: of a leader outside our PID namespace
    sid: int  # likewise
    exe: str | None  # None: the system does not say
    cwd: str | None
    parent_pid: int  # of the run's own process, for descendants too: whoever must live for this one to be in use
    parent_create_time: float
    port: int | None = None  # a server's, where we chose one
    boot_id: str | None = None  # None: the system states none
    pid_namespace: int | None = None  # in which the pids mean something; None: the system has none


class Journal:
    """Appends to one journal file; several runs may do so at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def spawned(self, entry: Spawned) -> None:
        """Write the entry through to the disk."""
        self._append({"event": "spawned", **asdict(entry)})

    def gone(self, entry: Spawned) -> None:
        """Record that this process and all its descendants are verified gone."""
        self._append({"event": "gone", "pid": entry.pid, "create_time": entry.create_time})

    def _append(self, body: dict[str, Any]) -> None:
        make_private_folder(self._path.parent)
        with _locked(self._path) as fd:
            end = os.lseek(fd, 0, os.SEEK_END)
            half_line = end > 0 and os.pread(fd, 1, end - 1) != b"\n"  # of a full disk, or of a crash
            try:
                _write_through(fd, (b"\n" if half_line else b"") + _line(body))
            except OSError:
                os.ftruncate(fd, end)  # half a record must not stay
                raise

    def compact(self) -> None:
        """Drop the processes that no longer run, whichever run spawned them: the file must not grow for ever."""
        if not self._path.exists():
            return
        with _locked(self._path) as fd:
            kept = [entry for entry in _entries(_read(fd)) if is_elsewhere(entry) or still_runs(entry)]
            write_file(self._path, b"".join(_line({"event": "spawned", **asdict(entry)}) for entry in kept))


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file's descriptor, while nobody else writes to it. Whoever waited for a file that was replaced meanwhile
    opens the new one."""
    while True:
        fd = open_private(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_at(path, fd):
                yield fd
                return
        finally:
            os.close(fd)  # which unlocks it


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _line(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode() + b"\n"


def _write_through(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content) :]  # a disk that fills up takes a part
    os.fsync(fd)


def _read(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


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
        pid_namespace=pid_namespace(),
    )


def read_journal(path: Path) -> list[Spawned]:
    """The processes that were spawned in this boot and not seen gone, in the order of their start. No file: none."""
    return list(look_into(path).entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of a journal."""

    entries: tuple[Spawned, ...] = ()
    notes: tuple[str, ...] = ()  # what was passed over, one line each


def look_into(path: Path) -> Content:
    """The processes as `read_journal` gives them, and what of the file is not ours. Never raises for its content."""
    try:
        fd = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return Content()
    except OSError as error:
        note = f"{path}: cannot be read ({error.strerror}); processes that earlier runs left may not be found"
        return Content(notes=(note,))
    try:
        text = _read(fd)
    finally:
        os.close(fd)
    skipped = sum(_record(line) is None for line in text.splitlines() if line.strip())
    lines = "1 line is" if skipped == 1 else f"{skipped} lines are"
    notes = (f"{path}: {lines} not a journal's and skipped",) if skipped else ()
    return Content(entries=tuple(_entries(text)), notes=notes)


def _entries(text: bytes) -> list[Spawned]:
    entries: dict[tuple[int, float], Spawned] = {}
    for line in text.splitlines():
        record = _record(line)
        if isinstance(record, Spawned):
            entries[record.pid, record.create_time] = record
        elif record is not None:
            entries.pop(record, None)
    return [entry for entry in entries.values() if not of_another_boot(entry.boot_id)]


def _record(line: bytes) -> Spawned | tuple[int, float] | None:
    """The process of a `spawned` line, or the key of a `gone` line; None for a line that is not ours.

    A crash or a full disk may have cut it short.
    """
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    if body.get("event") == "gone" and _fits(body, _GONE):
        return body["pid"], body["create_time"]
    if body.get("event") != "spawned" or not _fits(body, _SPAWNED):
        return None
    return Spawned(**{each.name: body[each.name] for each in fields(Spawned) if each.name in body})


def _is_pid(value: Any) -> bool:
    return type(value) is int and 0 < value < _MOST_PIDS


def _is_group(value: Any) -> bool:
    """A process group's or a session's number. 0: its leader is outside our PID namespace, as in some containers."""
    return type(value) is int and 0 <= value < _MOST_PIDS


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_port(value: Any) -> bool:
    return value is None or (type(value) is int and 0 < value < _MOST_PORTS)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_optional_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


_MOST_PIDS, _MOST_PORTS = 1 << 31, 1 << 16
_GONE = {"pid": _is_pid, "create_time": _is_time}
_SPAWNED = _GONE | {
    "run_id": _is_text,
    "arm": _is_text,
    "pgid": _is_group,
    "sid": _is_group,
    "exe": _is_optional_text,
    "cwd": _is_optional_text,
    "parent_pid": _is_pid,
    "parent_create_time": _is_time,
    "port": _is_port,
    "boot_id": _is_optional_text,
    "pid_namespace": lambda value: value is None or type(value) is int,
}
_LATER = ("port", "boot_id", "pid_namespace")  # earlier versions wrote none


def _fits(body: Mapping[str, Any], kinds: Mapping[str, Callable[[Any], bool]]) -> bool:
    return all(test(body[name]) if name in body else name in _LATER for name, test in kinds.items())


def is_elsewhere(entry: Spawned) -> bool:
    """True if the entry's pids are certainly not of this PID namespace: what they name cannot be seen from here."""
    return None not in (entry.pid_namespace, pid_namespace()) and entry.pid_namespace != pid_namespace()


def is_orphaned(entry: Spawned) -> bool:
    """True if the process still runs although its run does not, as seen from here."""
    return not is_elsewhere(entry) and still_runs(entry) and not run_lives(entry)


def still_runs(entry: Spawned) -> bool:
    """True if the process itself runs."""
    return is_living(entry.pid, entry.create_time, entry.boot_id)


def run_lives(entry: Spawned) -> bool:
    """True if the process of its run is alive."""
    return is_living(entry.parent_pid, entry.parent_create_time, entry.boot_id)


def find_orphans(path: Path) -> list[Spawned]:
    """The journaled processes that outlived their run."""
    return [entry for entry in read_journal(path) if is_orphaned(entry)]


def _readable(read: Callable[[], str]) -> str | None:
    try:
        return str(read())
    except PROCESS_FAULTS:
        return None
