"""The arms' rates and ratios so far, while a run goes on: to look at, never a verdict. Pure."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from orchestrator.running.measures import measure
from orchestrator.running.trial import Outcome
from orchestrator.schedule import AA_LABEL, ScheduledTrial
from orchestrator.vocabulary import METRICS

SHOWN = 6  # treatments; of more, the rest is counted


@dataclass(slots=True)
class Standing:
    """Adds up the usable trials of each round.

    Args:
        control: the arm that the others are compared with; its A/A entry counts as its second trial of a round.
        arms: all of them, in the order in which they are shown.
        metric: the plan's metric.
    """

    control: str
    arms: Sequence[str]
    metric: str
    _round: dict[str, float] = field(default_factory=dict)  # label: mean logarithm of the metric, of the present round
    _rates: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # arm: logarithms, a round each
    _contrasts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def begin(self) -> None:
        """Forget the trials of a round that another attempt replaces."""
        self._round = {}

    def add(self, trial: ScheduledTrial, outcome: Outcome) -> None:
        """Add a usable trial of the present round."""
        values = [getattr(measure(generation), self.metric) for _, generation in outcome.generations]
        known = [math.log(value) for value in values if value]
        if trial.round is not None and known:
            self._round[trial.label] = fmean(known)

    def end(self) -> bool:
        """Add the round's contrasts; return whether there are any, for which the control needs a usable trial."""
        controls = [self._round[label] for label in (self.control, AA_LABEL) if label in self._round]
        found = {label: value for label, value in self._round.items() if label != AA_LABEL}
        self.begin()
        for label, value in found.items():
            self._rates[label].append(value)
        if not controls or not set(found) - {self.control}:
            return False
        for label in set(found) - {self.control}:
            self._contrasts[label].append(found[label] - fmean(controls))
        return True

    @property
    def ratios(self) -> Mapping[str, float]:
        """The mean ratio of each treatment to the control within rounds, of the metric."""
        return {arm: math.exp(fmean(self._contrasts[arm])) for arm in self.arms if self._contrasts[arm]}

    def words(self) -> str:
        """Say how things stand, in a line."""
        rounds = max(map(len, self._contrasts.values()), default=0)
        unit = "s" if METRICS[self.metric].lower_is_faster else "tokens/s"
        shown = [f"{self.control} {self._rate(self.control)} {unit}"]
        shown += [f"{arm} {self._rate(arm)} ({ratio:.2f}\u00d7)" for arm, ratio in list(self.ratios.items())[:SHOWN]]
        more = len(self.ratios) - SHOWN
        rest = f" and {more} more" if more > 0 else ""
        return f"{', '.join(shown)}{rest}; {rounds} {'round' if rounds == 1 else 'rounds'}, no verdict yet"

    def _rate(self, arm: str) -> str:
        return f"{math.exp(fmean(self._rates[arm])):.3g}" if self._rates[arm] else "-"
