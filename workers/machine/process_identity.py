"""The identity of a process: its pid, its start and the boot, which survive every change of the clock.

psutil's public start is a moment, and follows the clock that somebody sets: a run would then take its own workers for
a dead run's. What stays is the start on the kernel's own count (Linux) or as it was written down at the start (macOS).
Either means something within one boot only, so whoever stores it stores the boot beside it.
"""

import math
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from workers.machine.host import read_boot_id
from workers.machine.processes import PROCESS_FAULTS
from workers.machine.system import System

START_TOLERANCE_S = 0.05  # what was stored comes back as it was; the kernel counts hundredths
# In the environment of a worker and all that comes of it: which run's process they belong to.
OWNER_MARK = "INTERLACE_OWNER"
# In the environment of a server that a worker launches, and of what comes of it: the port that it was given.
PORT_MARK = "INTERLACE_PORT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The process that runs something. A pid alone is reused, after a boot or without one."""

    pid: int
    process_started_at: float  # see `started_s`
    boot_id: str | None


def started_s(process: psutil.Process) -> float:
    """The start in seconds on a clock that nothing sets; comparable within one boot only.

    Raises:
        psutil.Error: it has ended, or does not let itself be read.
    """
    # The value by which psutil itself distinguishes processes; no public method returns it.
    found: float = process._proc.create_time(monotonic=True)  # type: ignore[attr-defined] # noqa: SLF001
    return found


def same_start(one_s: float, other_s: float) -> bool:
    """True if two starts are the same."""
    return math.isclose(one_s, other_s, rel_tol=0, abs_tol=START_TOLERANCE_S)


@cache
def this_boot() -> str | None:
    """The present boot, read once; None if the system has no identifier of it."""
    return read_boot_id()


def of_another_boot(boot_id: str | None) -> bool:
    """True if a stored boot is certainly not the present one."""
    return None not in (boot_id, this_boot()) and boot_id != this_boot()


def is_living(pid: int, start_s: float, boot_id: str | None) -> bool:
    """True if the process of this pid AND start AND boot runs, and is not a zombie.

    A process that exists and cannot be read counts as running: nothing proves that it has ended.
    """
    if of_another_boot(boot_id):
        return False
    try:
        process = psutil.Process(pid)
        return same_start(started_s(process), start_s) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except PROCESS_FAULTS:
        return psutil.pid_exists(pid)


def current_lease(system: System | None = None) -> Lease:
    """Return the lease of this process."""
    process = psutil.Process()
    return Lease(pid=process.pid, process_started_at=started_s(process), boot_id=read_boot_id(system))


def holds(lease: Lease, system: System | None = None) -> bool:
    """True if the process of a lease still runs: same boot, same pid, same start, and not a zombie."""
    boot_id = read_boot_id(system)
    if None not in (lease.boot_id, boot_id) and lease.boot_id != boot_id:
        return False
    try:
        process = psutil.Process(lease.pid)
        start_s, status = started_s(process), process.status()
    except psutil.NoSuchProcess:
        return False
    except PROCESS_FAULTS:
        return True  # the pid is in use by an unidentified process: better to wait than to run twice
    return status != psutil.STATUS_ZOMBIE and same_start(start_s, lease.process_started_at)


def port_of(process: psutil.Process) -> int | None:
    """The port that its environment names. A process that has not yet become its program still has its parent's."""
    try:
        mark = process.environ().get(PORT_MARK, "")
    except PROCESS_FAULTS:
        return None
    return int(mark) if mark.isdigit() else None


def pid_namespace() -> int | None:
    """The number of the PID namespace in which this process counts pids; None where the system has none."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None


def shares_pids(pid: int) -> bool:
    """Return whether a process counts pids as this one does. One in a container has a PID namespace of its own: the
    owner that its mark names may live, although no process here bears that pid."""
    try:
        theirs, ours = Path(f"/proc/{pid}/ns/pid").stat(), Path("/proc/self/ns/pid").stat()
    except FileNotFoundError:  # no Linux, or it has ended
        return True
    except OSError:
        return False
    return os.path.samestat(theirs, ours)


def owner_mark() -> str:
    """This process as the owner of those that it spawns."""
    me = psutil.Process()
    return f"{me.pid}:{started_s(me)!r}:{this_boot() or ''}"


def marks_orphan(mark: str) -> bool:
    """Return whether the owner that a living process's mark names has ended.

    A mark that names none, as earlier versions' do, says nothing. Neither does one of another boot: no process outlives
    its boot, so whoever wrote the mark names boots otherwise, and its run may live.
    """
    try:
        pid, start_s, boot_id = mark.split(":")
        return not of_another_boot(boot_id or None) and not is_living(int(pid), float(start_s), boot_id or None)
    except ValueError:
        return False
