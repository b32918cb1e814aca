"""Does a trial change the next one? The one thing that the randomisation test takes for granted.

A trial stands out from its neighbours by some residual, levels and drift taken out. If trials leave the machine as they
found it, that residual does not depend on which arm ran before. The check deals the predecessors anew among the trials
of each arm, and holds the largest mean residual after any arm against the largest in such deals.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.effects import Integers, fit_levels
from orchestrator.schedule import AA_LABEL
from orchestrator.statistics.inversion import Floats
from orchestrator.statistics.observations import ScopeTrials

DEALS = 1_000
TRIALS_PER_ARM = 4  # fewer tell nothing
CLIP = 2.5  # of the residuals, in units of their scale
LEVEL = 0.01  # stricter than an effect's: the check is made in every audit


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryOver:
    """The arm whose successors stand out most."""

    after: str
    ratio: float  # of a trial's value after this arm to its value after other arms
    p_value: float  # of so large a residual after any arm if there is no carry-over
    trials: int  # that followed this arm

    @property
    def matters(self) -> bool:
        return self.p_value <= LEVEL


def carry_over(used: ScopeTrials, *, control: str, seed: int) -> CarryOver | None:
    """The largest carry-over, and how likely chance makes one as large; None with too few trials to tell.

    The control's second entry counts as the control: it is the same arm.
    """
    labels = np.where(used.labels == AA_LABEL, control, used.labels).astype(str)
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) < 2 or len(codes) < TRIALS_PER_ARM * len(names):
        return None
    fit = fit_levels(codes, used.rounds, used.prompts)
    own, before = codes[1:], codes[:-1]
    scores = _lift(fit.clipped_residuals(used.y[:, None], clip=CLIP)[:, 0])
    means = _means_after(scores, _deals(own, before, seed), len(names))
    largest = np.abs(means).max(axis=1)
    worst = int(np.argmax(np.abs(means[0])))
    after = before == worst
    lift = _lift(fit.residuals(np.diff(used.y)[:, None])[:, 0])
    return CarryOver(
        after=str(names[worst]),
        ratio=float(np.exp(np.median(lift[after]) - np.median(lift[~after]))),
        p_value=float((largest >= largest[0] - 1e-12).mean()),
        trials=int(after.sum()),
    )


def _lift(residual: Floats) -> Floats:
    """What an arm leaves behind raises the step into the next trial and lowers the step out of it."""
    lift: Floats = (residual - np.append(residual[1:], 0.0)) / 2
    return lift


def _deals(own: Integers, before: Integers, seed: int) -> npt.NDArray[np.int32]:
    """Predecessors dealt anew among the trials of each arm, shape deals x trials; the first row is the observed one."""
    rng = np.random.Generator(np.random.PCG64(seed))
    dealt = np.tile(before.astype(np.int32), (DEALS, 1))
    for arm in np.unique(own):
        places = np.flatnonzero(own == arm)
        order = np.argsort(rng.random((DEALS - 1, len(places)), dtype=np.float32), axis=1)
        dealt[1:, places] = before[places][order]
    return dealt


def _means_after(residual: Floats, before: npt.NDArray[np.int32], arms: int) -> Floats:
    """Mean residual after each arm in each deal less the mean over all, in standard errors, shape deals x arms."""
    centred = residual - residual.mean()
    counts = np.maximum(np.bincount(before[0], minlength=arms), 1)
    # One deal at a time stays in the processor's cache.
    found: Floats = np.stack([np.bincount(dealt, centred, minlength=arms) for dealt in before]) / np.sqrt(counts)
    return found
