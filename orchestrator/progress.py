"""What is left of a run: compares the schedule with the trials that are stored. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.schedule import ScheduledTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """A trial's row, as far as resuming needs it."""

    sequence: int
    round: int | None
    attempt: int | None
    counts: bool  # neither excluded nor interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Trials that only count together: a round, or one trial outside the rounds."""

    trials: tuple[ScheduledTrial, ...]
    attempt: int

    @property
    def round(self) -> int | None:
        return self.trials[0].round

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(trial.label for trial in self.trials)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remainder:
    """What to run, and which rounds were cut short and must be left out before they are replayed."""

    units: tuple[Unit, ...]
    broken_rounds: tuple[int, ...]


def remainder(
    schedule: Sequence[ScheduledTrial], stored: Iterable[StoredTrial], *, dropped: frozenset[str] = frozenset()
) -> Remainder:
    """Everything that is not stored yet. A round with a trial missing is replayed whole, as a new attempt.

    Args:
        dropped: arms that take no further part; a round is complete without them.
    """
    counted: set[int] = set()
    attempts: dict[int, int] = defaultdict(lambda: -1)
    for row in stored:
        if row.counts:
            counted.add(row.sequence)
        if row.round is not None and row.attempt is not None:
            attempts[row.round] = max(attempts[row.round], row.attempt)
    units, broken = [], []
    for trials in _grouped(schedule):
        wanted = [trial for trial in trials if trial.arm not in dropped]
        missing = [trial for trial in wanted if trial.sequence not in counted]
        if not missing:
            continue
        index = trials[0].round
        if index is not None and len(missing) < len(wanted):
            broken.append(index)
        attempt = 0 if index is None else attempts[index] + 1
        units.append(Unit(trials=tuple(trials), attempt=attempt))
    return Remainder(units=tuple(units), broken_rounds=tuple(broken))


def _grouped(schedule: Sequence[ScheduledTrial]) -> Iterator[list[ScheduledTrial]]:
    """Rounds as groups, control runs one by one. Warm-ups belong to loading a model, not to the rounds."""
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
