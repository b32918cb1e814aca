"""Who watches a run: told what happens, as it happens, by the runner."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orchestrator.running.outcome import Outcome, Verdict
    from orchestrator.running.progress import Remainder, Unit
    from orchestrator.schedule import ScheduledTrial


class Observer(Protocol):
    """Told what happens."""

    def checking(self, arm: str) -> None: ...  # the preflight of this arm begins
    def preflight(self, arm: str, problem: str | None) -> None: ...
    def started(self, left: "Remainder") -> None: ...
    def unit_started(self, unit: "Unit") -> None: ...
    def unit_replayed(self, unit: "Unit") -> None: ...
    def trial_started(self, trial: "ScheduledTrial") -> None: ...  # its model may have to be loaded
    def waiting(self, text: str) -> None: ...  # at the gate
    def measuring(self, trial: "ScheduledTrial") -> None: ...  # the gate is open
    def trial_ended(self, trial: "ScheduledTrial", verdict: "Verdict", outcome: "Outcome") -> None: ...
    def arm_dropped(self, arm: str, reason: str) -> None: ...
    def noted(self, text: str) -> None: ...


class SilentObserver:
    """Says nothing; a base for observers that care for some of it."""

    def __enter__(self) -> "SilentObserver":
        return self

    def __exit__(self, *_: object) -> None: ...

    def checking(self, arm: str) -> None: ...
    def preflight(self, arm: str, problem: str | None) -> None: ...
    def started(self, left: "Remainder") -> None: ...
    def unit_started(self, unit: "Unit") -> None: ...
    def unit_replayed(self, unit: "Unit") -> None: ...
    def trial_started(self, trial: "ScheduledTrial") -> None: ...
    def waiting(self, text: str) -> None: ...
    def measuring(self, trial: "ScheduledTrial") -> None: ...
    def trial_ended(self, trial: "ScheduledTrial", verdict: "Verdict", outcome: "Outcome") -> None: ...
    def arm_dropped(self, arm: str, reason: str) -> None: ...
    def noted(self, text: str) -> None: ...


class Several:
    """Tells each of several observers, in their order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def checking(self, arm: str) -> None:
        for each in self._observers:
            each.checking(arm)

    def preflight(self, arm: str, problem: str | None) -> None:
        for each in self._observers:
            each.preflight(arm, problem)

    def started(self, left: "Remainder") -> None:
        for each in self._observers:
            each.started(left)

    def unit_started(self, unit: "Unit") -> None:
        for each in self._observers:
            each.unit_started(unit)

    def unit_replayed(self, unit: "Unit") -> None:
        for each in self._observers:
            each.unit_replayed(unit)

    def trial_started(self, trial: "ScheduledTrial") -> None:
        for each in self._observers:
            each.trial_started(trial)

    def waiting(self, text: str) -> None:
        for each in self._observers:
            each.waiting(text)

    def measuring(self, trial: "ScheduledTrial") -> None:
        for each in self._observers:
            each.measuring(trial)

    def trial_ended(self, trial: "ScheduledTrial", verdict: "Verdict", outcome: "Outcome") -> None:
        for each in self._observers:
            each.trial_ended(trial, verdict, outcome)

    def arm_dropped(self, arm: str, reason: str) -> None:
        for each in self._observers:
            each.arm_dropped(arm, reason)

    def noted(self, text: str) -> None:
        for each in self._observers:
            each.noted(text)
