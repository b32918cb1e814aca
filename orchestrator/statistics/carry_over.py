"""A check that no trial changes the trials after it, the one assumption of the randomisation test.

Under "it does not", the rounds could have been run in any other order that the design might have drawn without changing
what is left of the values once the arms' levels are taken out. So the strongest relation between that rest and the
exposure to any arm, at any decay (`orchestrator.statistics.lags`), is compared with the strongest in redrawn orders.
Levels are taken out of the observed and of each dealt order (Freedman and Lane 1983).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from orchestrator.estimation.inversion import Floats
from orchestrator.statistics.lags import (
    DECAYS,
    Integers,
    LagModel,
    Placed,
    Ran,
    exposures,
    indicators,
    innovations,
)
from orchestrator.statistics.observations import ScopeTrials

MOST_DEALS, FEWEST_DEALS = 999, 99  # orders, not counting the observed one
MOST_NUMBERS = 6_000_000  # of the exposures of all deals: larger runs take fewer deals
AT_ONCE = 1_000_000  # numbers, so that a chunk fits into memory
TRIALS_PER_ARM = 4  # with fewer the check has no power
LEVEL = 0.01  # stricter than an effect's: the check is made in every audit
NOTHING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryOver:
    """The arm that leaves the clearest mark on the trials after it."""

    after: str
    ratio: float  # of the next trial's value to what it would be without it
    decay: float  # the share of the mark, on the log scale, that is left one trial later
    accumulated: float  # ratio of a value after many trials of this arm in a row
    p_value: float  # chance of so clear a mark of any arm at any decay if trials leave none
    trials: int  # of this arm

    @property
    def matters(self) -> bool:
        return self.p_value <= LEVEL


def carry_over(used: ScopeTrials, *, control: str, seed: int, ran: Ran | None = None) -> CarryOver | None:
    """Return the clearest carry-over with its p-value, or None if there are too few trials.

    The control's second entry counts as the control: it is the same arm.

    Args:
        ran: all trials that ran; by default those that are used.
    """
    if not len(used.y):
        return None
    placed = Placed.find(used, ran or Ran.of(used), control=control)
    if len(placed.names) < 2 or len(placed.y) < TRIALS_PER_ARM * len(placed.names):
        return None
    model = LagModel.fit(placed)
    return None if model is None else _clearest(model, control, seed)


def _clearest(model: LagModel, control: str, seed: int) -> CarryOver:
    placed = model.placed
    marks = np.concatenate(list(_marks(model, _deals(placed, seed))))
    marks = np.abs(marks)
    # With two arms the marks mirror each other: the mark is attributed to the treatment.
    marks[0, placed.names.index(control)] *= 1.0 - NOTHING
    arm, decay = np.unravel_index(int(np.argmax(marks[0])), marks[0].shape)
    largest = marks.max(axis=(1, 2))
    slope = _slope(model, int(arm), int(decay))
    return CarryOver(
        after=placed.names[arm],
        ratio=float(np.exp(slope)),
        decay=DECAYS[decay],
        accumulated=float(np.exp(slope / (1.0 - DECAYS[decay]))),
        p_value=float((largest >= largest[0] - NOTHING).mean()),
        trials=int((placed.arm_of[placed.ran] == arm).sum()),
    )


def _deals(placed: Placed, seed: int) -> Integers:
    """Orders dealt anew as the design deals them, shape (1 + deals, N); the observed one is the first."""
    numbers = len(placed.ran) * len(placed.names) * len(DECAYS)
    deals = int(np.clip(MOST_NUMBERS // numbers, FEWEST_DEALS, MOST_DEALS))
    rng = np.random.Generator(np.random.PCG64(seed))
    if placed.squares is not None:
        # The rows of a square stay; its letters are dealt to the entries anew.
        shape = (deals, int(placed.squares.max()) + 1, len(placed.entries))
        dealt = rng.permuted(np.broadcast_to(np.arange(shape[2]), shape), axis=2)
        return np.concatenate([placed.ran[None, :], dealt[:, placed.squares, placed.ran]])
    keys = rng.random((deals, len(placed.ran)), dtype=np.float32)
    order = np.argsort(placed.groups + keys.astype(np.float64), axis=1)
    return np.concatenate([placed.ran[None, :], placed.ran[order]])


def _marks(model: LagModel, dealt: Integers) -> Iterator[Floats]:
    """Correlation of the rest with the exposure to each arm at each decay, in chunks (deals, arms, decays)."""
    placed = model.placed
    step = max(AT_ONCE // (dealt.shape[1] * len(placed.entries)), 1)
    fixed = _fixed(placed)
    for start in range(0, len(dealt), step):
        chunk = dealt[start : start + step]
        levels = _levels(chunk[:, placed.places], len(placed.entries), fixed)
        rest = _beside(np.broadcast_to(model.residual[:, None], (len(chunk), len(model.residual), 1)), levels)[..., 0]
        found = [_correlation(_exposed(chunk, placed, decay, fixed, levels), rest) for decay in DECAYS]
        yield np.stack(found, axis=-1)


def _exposed(chunk: Integers, placed: Placed, decay: float, fixed: Floats, levels: Floats) -> Floats:
    heat = innovations(exposures(placed.arm_of[chunk], len(placed.names), decay)[:, placed.places])
    return _beside(heat - fixed @ (fixed.T @ heat), levels)


def _fixed(placed: Placed) -> Floats:
    """Return an orthonormal basis (n - 1, q) of what no order changes: a linear drift and the prompts' levels."""
    columns = [np.linspace(0.0, 1.0, len(placed.y))[:, None]]
    if placed.prompts is not None:
        columns.append(indicators(placed.prompts, np.arange(1, placed.prompts.max() + 1)))
    left, sizes, _ = np.linalg.svd(innovations(np.concatenate(columns, axis=1)), full_matrices=False)
    found: Floats = left[:, sizes > NOTHING * sizes.max()]
    return found


def _levels(codes: Integers, entries: int, fixed: Floats) -> Floats:
    """Return the entries' levels in each deal, shape (deals, n - 1, entries - 1); the first entry is the base."""
    found = innovations(indicators(codes, np.arange(1, entries)))
    return found - fixed @ (fixed.T @ found)


def _beside(columns: Floats, levels: Floats) -> Floats:
    """Return the least-squares residuals of each deal's columns on its levels, shape (deals, n - 1, m)."""
    turned = levels.transpose(0, 2, 1)
    gram = turned @ levels + NOTHING * np.eye(levels.shape[2])
    found: Floats = columns - levels @ np.linalg.solve(gram, turned @ columns)
    return found


def _correlation(columns: Floats, rest: Floats) -> Floats:
    """Correlate each deal's columns with its residuals, shape (deals, m); 0 for a column that the levels span."""
    products = np.einsum("dnm,dn->dm", columns, rest)
    sizes = np.sqrt((columns**2).sum(axis=1) * (rest**2).sum(axis=1)[:, None])
    found: Floats = np.where(sizes > NOTHING, products / np.maximum(sizes, NOTHING), 0.0)
    return found


def _slope(model: LagModel, arm: int, decay: int) -> float:
    """Return the change of the log value per unit of exposure, in the order that ran."""
    heat = model.heat[decay][:, arm]
    beside = heat - model.levels @ (model.solved @ heat)
    return float(beside @ model.value / max(float(beside @ beside), NOTHING))
