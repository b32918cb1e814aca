"""Values in steps, such as those of a slow clock: what an effect could be that the steps hide or make. Pure.

A clock of 16 ms shows waits of 100 and 103 ms as the same, or as 15 % apart, whatever the number of rounds. Steps are
harmless where the values spread over several of them: the error of a mean of rounded values is (h / pi) exp(-2 pi^2
s^2 / h^2) at most, with the step h and the values' standard deviation s before rounding, 1 % of the step at the limit
that is set here (Widrow and Kollar 2008). An effect d then moves a share of d / h of the values by a step; if none of n
values has moved, d can still be 3 h / n (the rule of three).
"""

import math
from dataclasses import dataclass

import numpy as np

from orchestrator.effects import Integers
from orchestrator.estimation.inversion import Floats
from orchestrator.estimation.levels import SMALL
from orchestrator.statistics.comparability import Reason, Words
from orchestrator.statistics.observations import ScopeTrials

SPREAD = 0.5  # standard deviation of the rounded values, in steps, from which on rounding hardly moves their mean
UNSEEN = 3.0  # over n: the largest share that leaves no mark in n values with a chance of 5 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Values of two arms that recur, and differ by steps larger than the margin."""

    step: float  # mean over prompts of the smallest difference of two values, on the log scale; inf: all are equal
    spread: float  # of the values of one arm and prompt, in steps
    values: int  # of the arm that has fewer
    margin: float

    @property
    def spreads(self) -> bool:
        return self.spread >= SPREAD

    @property
    def hidden(self) -> float:
        """The largest effect that the steps may hide, on the log scale."""
        return self.step * min(1.0, UNSEEN / self.values) if self.spreads else self.step

    def against_equality(self) -> Reason | None:
        """Return why the two arms are not known to be equal, or None if the steps cannot hide the margin."""
        return self._reason(f"hides effects of up to {_size(self.hidden)}") if self.hidden > self.margin else None

    def against_effect(self, mean: float) -> Reason | None:
        """Return why an effect of this mean, on the log scale, may be one step of the clock, or None if it is not."""
        if self.spreads or abs(mean) - self.step > self.margin:
            return None
        return self._reason("can make such an effect out of one inside the margin")

    def _reason(self, harm: str) -> Reason:
        steps = "all values are equal" if math.isinf(self.step) else f"the values recur in steps of {_size(self.step)}"
        return Reason(code="coarse_values", text=f"{steps}: their clock or rounding {harm}")


def steps_of(used: ScopeTrials, *, treatment: str, control: str, margin: float) -> Steps | None:
    """Return the steps of two arms' values, or None if they do not recur or their steps are smaller than the margin."""
    y, label, cell = _values(used)
    mine = np.isin(label, [treatment, control])
    y, label, cell = y[mine], label[mine], cell[mine]
    if len(y) == 0 or len(np.unique(y)) == len(y):
        return None
    found = [_step(y[cell == one]) for one in np.unique(cell)]
    step, bound = float(np.mean(found)), -math.log1p(-margin)
    if step <= bound:
        return None
    groups = np.unique(np.stack([cell, label == treatment]).astype(np.intp), axis=1, return_inverse=True)[1].ravel()
    means = np.bincount(groups, weights=y) / np.bincount(groups)
    spread = 0.0 if math.isinf(step) else float(np.sqrt(np.mean((y - means[groups]) ** 2))) / step
    fewer = int(min((label == treatment).sum(), (label == control).sum()))
    return Steps(step=step, spread=spread, values=fewer, margin=bound)


def _values(used: ScopeTrials) -> tuple[Floats, Words, Integers]:
    """Return each generation's value, label and cell; each trial's if it is one number."""
    if used.cells is not None:
        return used.cells.y, used.labels[used.cells.trial], used.cells.cell
    return used.y, used.labels, np.zeros(len(used.y), dtype=np.intp) if used.prompts is None else used.prompts


def _step(values: Floats) -> float:
    """Return the smallest difference of two values if some recur, else 0."""
    ordered = np.sort(values)
    gaps = np.diff(ordered)
    apart = gaps[gaps > SMALL]
    if len(apart) == len(gaps):
        return 0.0
    return float(apart.min()) if len(apart) else math.inf


def _size(log_effect: float) -> str:
    return "any size" if math.isinf(log_effect) else f"{math.expm1(log_effect):.1%}"
