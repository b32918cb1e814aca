"""Processes that earlier runs left behind.

They are looked for at the start of a run and before each trial: the start may be hours ago, and a worker of this run
may leave one too. A process that is proven to be ours is ended, with a note. A process that only looks like ours blocks
the start, and is the condition `orphan` of the gate.
"""

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from db.redaction import REDACTED, literals
from orchestrator.errors import RefusedError
from orchestrator.plan import Gate
from orchestrator.running.gate import ORPHAN, Finding
from workers.supervision.family import runs
from workers.supervision.journal import find_orphans
from workers.supervision.orphans import Leftovers, Orphan, Suspect, end_orphans, find_leftovers

GRACE_S = 5.0  # after each signal
STATE_FOLDER, JOURNAL_NAME = "state", "workers.jsonl"


def journal_beside(database: Path) -> Path:
    """Return the path of the journal of all runs of one database."""
    return database.parent / STATE_FOLDER / JOURNAL_NAME


def clear_leftovers(journal: Path, gate: Gate, say: Callable[[str], None], *, grace_s: float = GRACE_S) -> None:
    """End the orphans of earlier runs, and refuse to start beside a process that may be one.

    Args:
        say: called with one line per orphan that was ended, with the memory that it held.

    Raises:
        RefusedError: an orphan that no signal ends, or a suspect; the message has pid, memory and remedy.
    """
    found = find_leftovers(journal, large_bytes=int(gate.orphan_bytes))
    for note in found.notes:
        say(note)
    if survivors := _end(found, journal, say, grace_s=grace_s):
        raise RefusedError(f"{describe_orphan(survivors[0])} survives SIGKILL: restart the machine to free its memory")
    for suspect in found.suspects:
        if gate.orphans == "block":
            raise RefusedError(
                f"{describe_suspect(suspect)}: end it (kill {suspect.pid}) if it is a leftover,"
                " or set gate.orphans=report"
            )
        say(f"may be a leftover: {describe_suspect(suspect)}")


def _end(found: Leftovers, journal: Path, say: Callable[[str], None], *, grace_s: float) -> Sequence[Orphan]:
    """End the orphans, report each, and return those that survive."""
    survivors = end_orphans(found.orphans, grace_s=grace_s, journal=journal) if found.orphans else ()
    for orphan in found.orphans:
        if orphan not in survivors:
            say(f"ended a leftover: {describe_orphan(orphan)}")
    return survivors


def describe_orphan(orphan: Orphan) -> str:
    """Describe an orphan in one line: process, its run, and its memory."""
    return (
        f"process {orphan.pid} ({hidden(orphan.title)}), arm {orphan.arm} of run {orphan.run_id},"
        f" held {_memory(orphan.memory_bytes)}"
    )


def describe_suspect(suspect: Suspect) -> str:
    """Describe a suspect in one line: process, reason of the suspicion, and its memory."""
    return f"process {suspect.pid} ({hidden(suspect.title)}) {suspect.why}, holds {_memory(suspect.memory_bytes)}"


def hidden(title: str) -> str:
    """Return a process's command line without secrets, whoever owns it."""
    for secret in literals(title):
        title = title.replace(secret, REDACTED)
    return title


def _memory(held_bytes: int | None) -> str:
    return "unknown memory" if held_bytes is None else f"{held_bytes / 1e9:.2f} GB"


SAMPLER_ARM = "sampler"  # the name under which the run's own sampler carries its mark


@dataclass(slots=True, kw_only=True)
class Patrol:
    """Looks for leftovers during a run; one per run. The machine was checked just before the run began."""

    journal: Path
    gate: Gate
    note: Callable[[str], None]
    arms_in_use: Callable[[], Collection[str]] = tuple  # arms whose workers live
    survivors: Callable[[], Collection[psutil.Process]] = tuple  # of this run's workers: those that no signal ended
    clock: Callable[[], float] = time.monotonic
    grace_s: float = GRACE_S
    scans: int = 0  # of all processes
    _scanned_at_s: float = field(default=math.nan)
    _in_the_way: str | None = None
    _reported: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._scanned_at_s = self.clock()

    def look(self) -> Finding:
        """Look for leftovers. Proven ones are ended; others are the finding's problem."""
        if self._is_due() or find_orphans(self.journal):
            self._in_the_way = self._scan()
        return Finding(name="orphan", kind=ORPHAN, problem=self._in_the_way or self._survivor())

    def _is_due(self) -> bool:
        return self._in_the_way is not None or self.clock() - self._scanned_at_s >= self.gate.orphan_interval_s

    def _scan(self) -> str | None:
        """Describe the obstacle, or return None if there is none."""
        self.scans += 1
        in_use = {*self.arms_in_use(), SAMPLER_ARM}
        found = find_leftovers(self.journal, large_bytes=int(self.gate.orphan_bytes), arms_in_use=in_use)
        survivors = _end(found, self.journal, self.note, grace_s=self.grace_s)
        self._scanned_at_s = self.clock()
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
        living = [each.pid for each in self.survivors() if runs(each)]
        return f"process {living[0]} of an arm that was ended survives SIGKILL" if living else None
