"""Leftovers looked for before each trial: a run's start is hours ago, and a worker of this night may leave one too.

The journal is looked into each time; all processes of the user once in `gate.orphan_interval_s` and, while one stands
in the way, each time. Only the gate asks, so that no look falls into a trial. What is proven to be ours is ended and
noted. What only looks like it stands in the way, as the gate's condition `orphan`.
"""

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from orchestrator.plan import Gate
from orchestrator.running.gate import ORPHAN, Finding
from orchestrator.running.readiness import GRACE_S, describe_orphan, describe_suspect
from workers.supervision.journal import find_orphans
from workers.supervision.orphans import Leftovers, end_orphans, find_leftovers

SAMPLER_ARM = "sampler"  # the name under which the run's own sampler carries its mark


@dataclass(slots=True, kw_only=True)
class Patrol:
    """One a run. The machine was looked at just before it began."""

    journal: Path
    gate: Gate
    note: Callable[[str], None]
    arms_in_use: Callable[[], Collection[str]] = tuple  # whose workers live
    survivors: Callable[[], Collection[int]] = tuple  # of this run's workers: pids that no signal ended
    clock: Callable[[], float] = time.monotonic
    grace_s: float = GRACE_S
    scans: int = 0  # of all processes
    _scanned_at_s: float = field(default=math.nan)
    _in_the_way: str | None = None
    _reported: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._scanned_at_s = self.clock()

    def look(self) -> Finding:
        """Whether anything is left over now. Proven leftovers are gone when it returns."""
        if self._is_due() or find_orphans(self.journal):
            self._in_the_way = self._scan()
        return Finding(name="orphan", kind=ORPHAN, problem=self._in_the_way or self._survivor())

    def _is_due(self) -> bool:
        return self._in_the_way is not None or self.clock() - self._scanned_at_s >= self.gate.orphan_interval_s

    def _scan(self) -> str | None:
        """What stands in the way, in words."""
        self.scans += 1
        in_use = {*self.arms_in_use(), SAMPLER_ARM}
        found = find_leftovers(self.journal, large_bytes=int(self.gate.orphan_bytes), arms_in_use=in_use)
        survivors = end_orphans(found.orphans, grace_s=self.grace_s, journal=self.journal) if found.orphans else ()
        self._scanned_at_s = self.clock()
        for orphan in found.orphans:
            if orphan not in survivors:
                self.note(f"ended a leftover: {describe_orphan(orphan)}")
        if survivors:
            return f"{describe_orphan(survivors[0])}, survives SIGKILL"
        return self._suspected(found)

    def _suspected(self, found: Leftovers) -> str | None:
        if self.gate.orphans == "block":
            return next((f"{describe_suspect(each)}; end it if it is a leftover" for each in found.suspects), None)
        for each in found.suspects:
            if each.pid not in self._reported:
                self._reported.add(each.pid)
                self.note(f"may be a leftover: {describe_suspect(each)}")
        return None

    def _survivor(self) -> str | None:
        living = [pid for pid in self.survivors() if psutil.pid_exists(pid)]
        return f"process {living[0]} of an arm that was ended survives SIGKILL" if living else None
