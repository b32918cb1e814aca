"""A spawned process and all its descendants: finding the living ones, and ending them.

A process belongs when it is in the leader's own session, or was seen as a descendant while the leader lived (a child
that made a session of its own is found only so). Every one is known by (pid, start time): a reused pid is never taken
for ours, and nothing is ever signalled by its name.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import psutil

from workers.machine.processes import PROCESS_FAULTS, descendants

_POLL_S = 0.02


class Family:
    """The leader is a session's leader (`start_new_session=True`) and our own child, reaped by the caller."""

    def __init__(self, leader: psutil.Process) -> None:
        self._leader = leader
        self._seen: set[psutil.Process] = {leader}

    def snapshot(self) -> tuple[psutil.Process, ...]:
        """Remember the present descendants and return the new ones; the leader's death cuts the links to it."""
        try:
            new = set(descendants(self._leader)) - self._seen
        except PROCESS_FAULTS:
            return ()  # the leader is gone: what was seen before counts
        self._seen |= new
        return tuple(new)

    def living(self) -> list[psutil.Process]:
        """The processes that run; zombies do not count."""
        return [process for process in self._members() if runs(process)]

    def signal(self, number: int) -> None:
        """Signal every living process."""
        signal_all(self.living(), number)

    def wait_gone(self, timeout_s: float) -> bool:
        """True if all have ended within this time."""
        deadline = time.monotonic() + timeout_s
        while self.living():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _members(self) -> Iterator[psutil.Process]:
        yield from self._seen
        if self._pid_reused():
            return
        for process in psutil.process_iter():
            if process not in self._seen and self._same_session(process):
                yield process

    def _same_session(self, process: psutil.Process) -> bool:
        try:
            return os.getsid(process.pid) == self._leader.pid
        except OSError:
            return False

    def _pid_reused(self) -> bool:
        """True if the leader's pid now belongs to another process, whose session would be taken for ours."""
        return psutil.pid_exists(self._leader.pid) and not self._leader.is_running()


def signal_all(processes: Iterable[psutil.Process], number: int) -> None:
    """Signal each process, unless its pid has been reused."""
    for process in processes:
        try:
            process.send_signal(number)  # checks the start time before it signals
        except PROCESS_FAULTS:
            continue  # ended in the meantime


def signal_and_wait(living: Callable[[], Sequence[psutil.Process]], *, grace_s: float) -> None:
    """SIGTERM, then SIGKILL to those that are left. SIGTERM comes first: a killed process may leave memory wired."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        signal_all(living(), number)
        deadline = time.monotonic() + grace_s
        while living() and time.monotonic() < deadline:
            time.sleep(_POLL_S)


def runs(process: psutil.Process) -> bool:
    """True if this very process, by its pid and start, runs and is not a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except PROCESS_FAULTS:
        return False
