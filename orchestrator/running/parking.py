"""How many trials of an arm failed in a row. Pure.

An arm is ended after its trial was stored, so a trial that counted may turn out to be a fault after all: the row of
faults then goes on from where it stood before that trial.
"""

from collections import Counter
from dataclasses import dataclass, field

FAULTS_IN_A_ROW = 3  # after these an arm is parked


@dataclass(slots=True)
class Streaks:
    """By arm."""

    _now: Counter[str] = field(default_factory=Counter)
    _before: Counter[str] = field(default_factory=Counter)  # the newest trial

    def ended(self, arm: str, *, faulty: bool) -> bool:
        """A trial of the arm ended: whether the arm is to be parked."""
        self._before[arm] = self._now[arm]
        self._now[arm] = self._now[arm] + 1 if faulty else 0
        return self._now[arm] >= FAULTS_IN_A_ROW

    def spoiled(self, arm: str) -> bool:
        """The arm's newest trial, which had counted, is a fault: whether the arm is to be parked."""
        self._now[arm] = self._before[arm] + 1
        return self._now[arm] >= FAULTS_IN_A_ROW
