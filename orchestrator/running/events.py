"""The events of a run, and the observers that the runner calls with them. Free of imports that take time."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.plan import Plan
    from orchestrator.running.progress import Remainder, Unit
    from orchestrator.running.trial import Outcome, Verdict
    from orchestrator.schedule import ScheduledTrial
    from workers.weights.hub_download import Progress


class Observer:
    """A base for observers: the runner calls one method per event, and an observer overrides those it needs."""

    def __enter__(self) -> "Observer":
        return self

    def __exit__(self, *_: object) -> None: ...

    def fetching(self, progress: "Progress") -> None:
        """Weights come from the hub, before anything is loaded."""

    def checking(self, arm: str) -> None:
        """The preflight of this arm begins."""

    def preflight(self, arm: str, problem: str | None) -> None:
        """The preflight of this arm has ended, with its problem, or None if the arm is ready."""

    def planned(self, plan: "Plan") -> None:
        """The plan of the run that begins."""

    def started(self, left: "Remainder") -> None:
        """The rounds begin."""

    def unit_started(self, unit: "Unit") -> None:
        """A round begins, or a trial outside the rounds."""

    def unit_replayed(self, unit: "Unit") -> None:
        """A rule left a trial out: this further attempt begins."""

    def trial_started(self, trial: "ScheduledTrial") -> None:
        """A trial begins; its model may have to be loaded."""

    def waiting(self, text: str) -> None:
        """The trial waits at the gate."""

    def measuring(self, trial: "ScheduledTrial") -> None:
        """The gate is open."""

    def trial_ended(self, trial: "ScheduledTrial", verdict: "Verdict", outcome: "Outcome") -> None:
        """The trial is stored."""

    def arm_dropped(self, arm: str, reason: str) -> None:
        """The arm takes no further part."""

    def noted(self, text: str) -> None:
        """A note for people."""


_EVENTS = tuple(name for name in vars(Observer) if not name.startswith("_"))


class Several(Observer):
    """Calls each of several observers, in their order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        for name in _EVENTS:
            setattr(self, name, partial(_call_each, tuple(observers), name))


def _call_each(observers: Sequence[Observer], name: str, *values: object) -> None:
    for each in observers:
        getattr(each, name)(*values)
