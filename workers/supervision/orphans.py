"""Processes that outlived their run: those that are surely ours are ended, those that only look like it reported.

Surely ours is a process whose (pid, start time) a journal holds, or that carries our mark in its environment; both
survive a change of its title. A mark names its owner's pid, so it proves nothing about a process in a container, whose
pids are not ours. Nothing else is ever signalled: a listener on a port of ours, a process in a dead worker's session or
a large abandoned process of our interpreter is reported for a person to decide.
"""

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from workers.machine.memory import held_bytes
from workers.machine.process_identity import (
    OWNER_MARK,
    is_living,
    marks_orphan,
    owner_mark,
    same_start,
    shares_pids,
    started_s,
    this_boot,
)
from workers.machine.processes import PROCESS_FAULTS
from workers.supervision.family import runs, signal_and_wait
from workers.supervision.journal import Journal, Spawned, is_elsewhere, is_orphaned, look_into, run_lives

TITLE_LENGTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A process of ours whose run has ended."""

    pid: int
    create_time: float  # see `workers.machine.process_identity.started_s`
    title: str  # its present command line
    memory_bytes: int | None  # None: the system does not report it
    run_id: str
    arm: str
    proof: str  # journal | mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A process that may be an orphan of ours, and may belong to anybody."""

    pid: int
    title: str
    memory_bytes: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """The processes that earlier runs left on this machine."""

    orphans: tuple[Orphan, ...]
    suspects: tuple[Suspect, ...]
    notes: tuple[str, ...] = ()  # lines of the journal that were passed over


def find_leftovers(
    journal: Path, *, large_bytes: int, ports: Sequence[int] = (), arms_in_use: Collection[str] | None = None
) -> Leftovers:
    """Look through this user's processes.

    Args:
        journal: the file that `workers.supervision.journal.Journal` writes; it need not be there.
        large_bytes: from which memory on an abandoned process of our interpreter is a suspect.
        ports: those that a run is about to use, besides the ones in the journal.
        arms_in_use: of the run of this very process; what carries its mark and another arm's name is a leftover of a
            worker that has ended. None: whatever carries its mark is in use.
    """
    strays = _Strays(owner=owner_mark(), arms_in_use=arms_in_use)
    content = look_into(journal)
    entries = [entry for entry in content.entries if not is_elsewhere(entry)]
    by_pid = {entry.pid: entry for entry in entries if is_orphaned(entry)}
    orphans, suspects = [], []
    rules = _Rules(entries=entries, ports=(*ports, *(e.port for e in entries if e.port)), large_bytes=large_bytes)
    for process in _own_processes():
        try:
            if orphan := _orphan(process, by_pid, strays):
                orphans.append(orphan)
            elif why := rules.why(process):
                suspects.append(_suspect(process, why))
        except PROCESS_FAULTS:
            continue  # it ended meanwhile, or does not let itself be read
    return Leftovers(orphans=tuple(orphans), suspects=tuple(suspects), notes=content.notes)


def end_orphans(orphans: Sequence[Orphan], *, grace_s: float, journal: Path) -> tuple[Orphan, ...]:
    """SIGTERM, wait, SIGKILL, verify; those that no signal ended. What ended leaves the journal."""
    living = []
    for orphan in orphans:
        try:
            process = psutil.Process(orphan.pid)
            if _lives(orphan):
                living.append(process)
        except PROCESS_FAULTS:
            continue
    signal_and_wait(lambda: [each for each in living if runs(each)], grace_s=grace_s)
    Journal(journal).compact()
    return tuple(orphan for orphan in orphans if _lives(orphan))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """Reasons to suspect that a process is ours although nothing proves it."""

    entries: Sequence[Spawned]
    ports: Sequence[int]
    large_bytes: int

    def why(self, process: psutil.Process) -> str | None:
        return self._session(process) or self._port(process) or self._abandoned(process)

    def _session(self, process: psutil.Process) -> str | None:
        """Find processes in the session of a worker whose run has ended; the session's number may have been reused."""
        try:
            sid = os.getsid(process.pid)
        except OSError:
            return None
        if sid == 0:  # a leader outside our PID namespace: such sessions cannot be distinguished
            return None
        for entry in self.entries:
            if sid == entry.sid and started_s(process) >= entry.create_time:
                used_again = _names_another(entry.pid, entry.create_time)
                if not used_again and not run_lives(entry):
                    return f"in the session of arm {entry.arm} of run {entry.run_id}, which has ended"
        return None

    def _port(self, process: psutil.Process) -> str | None:
        if not self.ports or self._in_use(process):
            return None
        for connection in process.net_connections(kind="inet"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port in self.ports:
                return f"listens on port {connection.laddr.port}"
        return None

    def _abandoned(self, process: psutil.Process) -> str | None:
        """Large, of our interpreter, and its parent gone: what is left of a run whose traces are lost."""
        # A Mac's framework Python runs another program than the one that `sys.executable` names.
        interpreters = (sys.executable, psutil.Process().exe(), *(entry.exe for entry in self.entries if entry.exe))
        ours = {str(Path(each).resolve()) for each in interpreters}
        if not _is_abandoned(process) or str(Path(process.exe()).resolve()) not in ours or self._in_use(process):
            return None
        held = held_bytes(process.pid)
        if held is None or held < self.large_bytes:
            return None
        return "runs our interpreter, holds much memory, and its parent is gone"

    def _in_use(self, process: psutil.Process) -> bool:
        """True if the process belongs to a live run."""
        mark = _mark(process)
        if mark.get(OWNER_MARK):
            return not (shares_pids(process.pid) and marks_orphan(mark[OWNER_MARK]))
        return any(process.pid == entry.pid and not is_orphaned(entry) for entry in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Strays:
    """Descendants of a worker of this run that outlived it, although the run lives."""

    owner: str
    arms_in_use: Collection[str] | None

    def hold(self, mark: Mapping[str, str]) -> bool:
        if self.arms_in_use is None or mark.get(OWNER_MARK) != self.owner:
            return False
        return mark.get("INTERLACE_ARM") not in self.arms_in_use


def _orphan(process: psutil.Process, journaled: Mapping[int, Spawned], strays: _Strays) -> Orphan | None:
    entry = journaled.get(process.pid)
    if entry is not None:
        return _described(process, run_id=entry.run_id, arm=entry.arm, proof="journal")
    mark = _mark(process)
    if OWNER_MARK in mark and shares_pids(process.pid) and (marks_orphan(mark[OWNER_MARK]) or strays.hold(mark)):
        run_id, arm = mark.get("INTERLACE_RUN", "unknown"), mark.get("INTERLACE_ARM", "unknown")
        return _described(process, run_id=run_id, arm=arm, proof="mark")
    return None


def _described(process: psutil.Process, *, run_id: str, arm: str, proof: str) -> Orphan:
    return Orphan(
        pid=process.pid,
        create_time=started_s(process),
        title=_title(process),
        memory_bytes=held_bytes(process.pid),
        run_id=run_id,
        arm=arm,
        proof=proof,
    )


def _suspect(process: psutil.Process, why: str) -> Suspect:
    return Suspect(pid=process.pid, title=_title(process), memory_bytes=held_bytes(process.pid), why=why)


def _own_processes() -> Iterator[psutil.Process]:
    """This user's running processes except this one: other users' cannot be read on macOS, nor signalled anywhere."""
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.uids().real == os.getuid() and runs(process):
                yield process
        except PROCESS_FAULTS:
            continue


def _lives(orphan: Orphan) -> bool:
    return is_living(orphan.pid, orphan.create_time, this_boot())


def _names_another(pid: int, create_time: float) -> bool:
    """True if the pid is in use by a process with another start time; a zombie still holds its own."""
    try:
        return not same_start(started_s(psutil.Process(pid)), create_time)
    except PROCESS_FAULTS:
        return False


def _mark(process: psutil.Process) -> Mapping[str, str]:
    """Its environment; empty where it cannot be read, or was overwritten with the title."""
    try:
        return process.environ()
    except PROCESS_FAULTS:
        return {}


def _title(process: psutil.Process) -> str:
    try:
        words = " ".join(process.cmdline()).strip() or process.name()
    except PROCESS_FAULTS:
        words = "unknown"
    return words if len(words) <= TITLE_LENGTH else f"{words[: TITLE_LENGTH - 1]}…"


def _is_abandoned(process: psutil.Process) -> bool:
    """True if its parent is the process that adopts orphans."""
    parent = process.parent()
    return parent is None or parent.pid == 1 or parent.name() in ("systemd", "launchd")
