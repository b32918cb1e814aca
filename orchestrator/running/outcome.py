"""One trial as it happened, and what becomes of it by rules fixed beforehand. Pure."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.plan import Gate, Prompt
from orchestrator.running.cached import from_cache
from orchestrator.running.evidence import judge
from orchestrator.running.exclusion import Circumstances, excluded_reason
from orchestrator.running.gate import Passage
from orchestrator.schedule import ScheduledTrial
from workers.machine.telemetry import Reading
from workers.protocol import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a trial is invalid."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One trial as it happened, before it is judged."""

    trial: ScheduledTrial
    started_at: dt.datetime
    wall_s: float
    monotonic_s: float
    passage: Passage  # through the gate
    generations: Sequence[tuple[Prompt, Generation]]
    fault: Fault | None
    before: Sequence[Reading]
    during: Sequence[Reading]
    after: Sequence[Reading]
    log_path: str | None

    @property
    def circumstances(self) -> Circumstances:
        return Circumstances(
            passage=self.passage,
            wall_s=self.wall_s,
            monotonic_s=self.monotonic_s,
            before=self.before,
            during=self.during,
            after=self.after,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMemory:
    """An arm's memory after loading, beside the plan's."""

    planned_bytes: int | None  # weights, draft included
    footprint_bytes: int | None  # of the worker's process
    note: str | None  # None: as planned, or unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a trial: its status and, unless done, why."""

    status: str
    fault: Fault | None = None
    excluded_reason: str | None = None


def settle(outcome: Outcome, *, evidence_policy: str, gate: Gate, cached_share_max: float | None = None) -> Verdict:
    """Judge a trial by rules fixed beforehand: faults, evidence, caches, the machine. Never by its speed. Pure."""
    if outcome.fault is not None:
        return Verdict(status="invalid", fault=outcome.fault)
    if evidence_policy == "require":
        for _, generation in outcome.generations:
            if reason := judge(generation.evidence).fault:
                return _invalid(reason)
    if reason := from_cache(outcome.generations, share_max=cached_share_max):
        return _invalid(reason)
    if (why := excluded_reason(gate, outcome.circumstances)) is not None:
        return Verdict(status="excluded", excluded_reason=why)
    return Verdict(status="done")


def _invalid(reason: str) -> Verdict:
    """Args: reason: `code: words`."""
    kind, _, message = reason.partition(": ")
    return Verdict(status="invalid", fault=Fault(kind=kind, message=message))
