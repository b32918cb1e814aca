"""The part of a run that is left: the schedule compared with the stored trials. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.schedule import ScheduledTrial, attempt_order


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """The part of a trial's row that resuming needs."""

    sequence: int
    round: int | None
    attempt: int | None
    counts: bool  # neither excluded nor interrupted
    ended: bool = True  # not interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Trials that only count together: a round, or one trial outside the rounds."""

    trials: tuple[ScheduledTrial, ...]
    attempt: int

    @classmethod
    def of(cls, trials: Sequence[ScheduledTrial], *, attempt: int, seed: int | None) -> "Unit":
        """Put scheduled trials in the order of an attempt; without a seed a replay keeps their order."""
        ordered = tuple(trials) if seed is None else attempt_order(trials, attempt=attempt, seed=seed)
        return cls(trials=ordered, attempt=attempt)

    def again(self, *, seed: int | None) -> "Unit":
        """Return the next attempt."""
        scheduled = sorted(self.trials, key=lambda trial: trial.sequence)
        return Unit.of(scheduled, attempt=self.attempt + 1, seed=seed)

    @property
    def round(self) -> int | None:
        return self.trials[0].round

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(trial.label for trial in self.trials)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remainder:
    """The units to run, and the rounds that were cut short and must be excluded before they are replayed."""

    units: tuple[Unit, ...]
    broken_rounds: tuple[int, ...]


def remainder(
    schedule: Sequence[ScheduledTrial],
    stored: Iterable[StoredTrial],
    *,
    dropped: frozenset[str] = frozenset(),
    replays: int = 0,
    seed: int | None = None,
) -> Remainder:
    """Return everything that is not stored yet. A round with a missing trial is replayed whole, as a new attempt.

    Args:
        seed: for the orders that replays draw; None: they keep the round's order.
        dropped: arms that take no further part; a round is complete without them.
        replays: how often a round or a control run is run again after a rule excluded one of its trials.
    """
    attempts = _attempts(stored)
    units, broken = [], []
    for trials in _grouped(schedule):
        index = trials[0].round
        wanted = {trial.sequence for trial in trials if trial.arm not in dropped}
        done = attempts[trials[0].sequence if index is None else None, index]
        if _is_finished(wanted, done, replays):
            continue
        if index is not None and done and wanted & _counted(done[-1]):
            broken.append(index)
        units.append(Unit.of(trials, attempt=len(done), seed=seed))
    return Remainder(units=tuple(units), broken_rounds=tuple(broken))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """The trial that was running when the run's process died."""

    trial: ScheduledTrial
    unit: Unit
    started_at: str  # ISO 8601


def under_way(
    schedule: Sequence[ScheduledTrial],
    stored: Sequence[StoredTrial],
    current: Mapping[str, Any] | None,
    *,
    seed: int | None = None,
) -> UnderWay | None:
    """Return the trial that `run.current` names, or None if it is stored: then the process died between two trials.

    Args:
        seed: see `remainder`.
        current: see `orchestrator.running.run_state`.
    """
    sequence, attempt = (current or {}).get("sequence"), (current or {}).get("attempt")
    if current is None or sequence is None or attempt is None:
        return None
    group = next((group for group in _grouped(schedule) if any(trial.sequence == sequence for trial in group)), None)
    if group is None:
        return None
    times = [row.attempt for row in stored if row.sequence == sequence]
    if (len(times) > attempt) if group[0].round is None else (attempt in times):
        return None
    unit = Unit.of(group, attempt=attempt, seed=seed)
    trial = next(trial for trial in unit.trials if trial.sequence == sequence)
    return UnderWay(trial=trial, unit=unit, started_at=str(current["started_at"]))


def _attempts(stored: Iterable[StoredTrial]) -> dict[tuple[int | None, int | None], list[list[StoredTrial]]]:
    """Group the stored trials of each round by attempt; outside the rounds each stored trial is an attempt."""
    found: dict[tuple[int | None, int | None], list[list[StoredTrial]]] = defaultdict(list)
    for row in stored:
        if row.round is None or row.attempt is None:
            found[row.sequence, None].append([row])
            continue
        rows = found[None, row.round]
        rows.extend([] for _ in range(len(rows), row.attempt + 1))
        rows[row.attempt].append(row)
    return found


def _is_finished(wanted: set[int], attempts: Sequence[Sequence[StoredTrial]], replays: int) -> bool:
    """Return whether the newest attempt counts, or is whole with an excluded trial and was the last one allowed."""
    if not attempts:
        return not wanted
    there = {row.sequence for row in attempts[-1] if row.ended}
    return wanted <= _counted(attempts[-1]) or (wanted <= there and len(attempts) > replays)


def _counted(attempt: Sequence[StoredTrial]) -> set[int]:
    return {row.sequence for row in attempt if row.counts}


def _grouped(schedule: Sequence[ScheduledTrial]) -> Iterator[list[ScheduledTrial]]:
    """Yield rounds as groups and control runs one by one. Warm-ups belong to loading a model, not to the rounds."""
    group: list[ScheduledTrial] = []
    for trial in schedule:
        if trial.kind == "warmup":
            continue
        if group and (trial.round is None or trial.round != group[0].round):
            yield group
            group = []
        group.append(trial)
    if group:
        yield group
