"""How much faster one arm is than another, and whether drift could have done it.

The test is Fisher's randomisation test over the within-round orders: each round's order was drawn at random, so under
"no effect" the two arms' labels could be exchanged within any round without changing a single value. Whatever the
drift's shape, the share of exchanges whose statistic is at least as large as the observed one is an exact p-value, as
long as one trial does not change the next. The interval is the set of effects that this test does not reject
(Rosenbaum 2002, chapter 2).

The statistic is the Huber score of the slope of first differences (Besag and Kempton 1986; Huber 1981): with y the log
of the value in time order and z coding treatment +1/2, control -1/2, other arms 0,

    U(theta) = sum over neighbours t, t+1 of psi(e_t / s) * (z_t+1 - z_t),   e = differences of (y - theta z), fitted

where "fitted" means: less a constant drift, the other arms' levels and the prompts' levels, by a robust fit in which
treatment and control are one arm. Neither that fit nor the scale s (median of |e|) depends on how the two labels are
dealt, so U is linear in the labels: each round contributes one number, and an exchange changes its sign. All exchanges
are then one matrix product. The ratio is the root of U, the Huber estimate of the slope.

Everything here is a pure function of its arguments.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.statistics.inversion import Floats, estimate, half_width, interval

Integers = npt.NDArray[np.intp]

DRAWS = 10_000  # exchanges drawn when there are too many to take all of them, the observed order among them
ALL_UP_TO_ROUNDS = 14  # all 2**13 pairs of mirrored exchanges
MOST_EXCHANGED = 256  # of more rounds, neighbours are exchanged together: as exact a test, at a cost that stops growing
HUBER_TEST = 0.8  # in units of s; small, because under a large effect s holds the effect too
HUBER_FIT = 1.345  # 95 % efficient for normal noise (Huber 1981)
FIT_STEPS = 5
CELL_ROUNDS = 4  # with fewer rounds of a prompt, arms and prompts are fitted as a sum instead of each pair its own
NORMAL_MAD = 0.6745  # median of |x| for standard normal x
SMALL = 1e-12  # on the log scale: less is rounding
LARGEST_LOG = 700.0  # of a finite ratio
BELOW_1, ABOVE_1 = math.nextafter(1.0, 0.0), math.nextafter(1.0, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Treatment against control. Ratios are of the value: 1.05 means 5 % more of it."""

    ratio: float
    ci_low: float  # 0 when the rounds are too few for any bound
    ci_high: float  # inf when they are
    p_value: float  # of "ratio = 1"; at most alpha exactly when 1 is outside the interval
    rounds: int  # complete ones, all that was used
    wins: int  # rounds in which the treatment's value was the larger
    losses: int  # rounds in which it was the smaller


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFit:
    """What is taken out of a series of n values before its labels are looked at: drift, arms' and prompts' levels."""

    basis: Floats  # (n - 1, k) orthonormal, of the space that differences of the levels span

    def slot_scores(self, values: Floats) -> Floats:
        """How far each value stands out from its neighbours, clipped, for each column of values (n, m): (n, m).

        An arm's score is the sum over its slots. It depends on nothing but the values and the fitted levels.
        """
        score = self.clipped_residuals(values, clip=HUBER_TEST)
        edge = np.zeros((1, values.shape[1]))
        scores: Floats = np.concatenate([edge, score]) - np.concatenate([score, edge])
        return scores

    def clipped_residuals(self, values: Floats, *, clip: float) -> Floats:
        """Residuals of the first differences in units of their scale, cut off at +- clip, shape (n - 1, m)."""
        residual = self.residuals(np.diff(values, axis=0))
        clipped: Floats = np.clip(residual / self._scale(residual), -clip, clip)
        return clipped

    def residuals(self, differences: Floats) -> Floats:
        """Residuals of the robust fit of all columns at once, by Huber's algorithm with modified residuals.

        Least squares first; then, in each step, the residuals are clipped and fitted again. The basis stays the same,
        so that a column costs two products a step.
        """
        residual: Floats = differences - self.basis @ (self.basis.T @ differences)
        for step in range(FIT_STEPS):
            if step % 2 == 0:
                bound = HUBER_FIT * self._scale(residual)
            residual = residual - self.basis @ (self.basis.T @ np.minimum(np.maximum(residual, -bound), bound))
        return residual

    def _scale(self, residual: Floats) -> Floats:
        """Of each column: the median of |e|, the k smallest left out, because a fit can make so many of them vanish
        (Maronna, Martin and Yohai 2006, section 4.4.2). The mean where even that is 0."""
        sizes = np.abs(residual)
        fitted = min(self.basis.shape[1], len(sizes) - 1)
        middle = fitted + (len(sizes) - fitted) // 2
        median: Floats = np.partition(sizes, middle, axis=0)[middle] / NORMAL_MAD
        if (median > SMALL).all():
            return median
        scale: Floats = np.where(median > SMALL, median, np.maximum(sizes.mean(axis=0), SMALL))
        return scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One comparison, ready to be tested for any effect: n values of which 2 R belong to the two arms."""

    y: Floats  # (n,) log values in time order
    coding: Floats  # (n,) +1/2 treatment, -1/2 control, 0 others
    slots: Integers  # (2 R,) places of the two arms' values, round by round
    fit: LevelFit  # with treatment and control as one arm

    @property
    def rounds(self) -> int:
        return len(self.slots) // 2

    @property
    def contrasts(self) -> Floats:
        """Treatment less control of each round, shape (R,), on the log scale."""
        signed = 2.0 * self.y[self.slots] * self.coding[self.slots]
        of_round: Floats = signed.reshape(-1, 2).sum(axis=1)
        return of_round


def estimate_effect(frame: pd.DataFrame, *, treatment: str, control: str, alpha: float = 0.05, seed: int = 0) -> Effect:
    """The effect of `treatment` against `control` with a randomisation test and the interval that it implies.

    Args:
        frame: rows in time order with columns `round` (int), `position` (int, within the round), `arm` (str) and
            `value` (float > 0, in any unit). More arms may be there. An optional column `prompt` names what the round
            was about; differences between prompts are then taken out. Rounds in which one of the two arms is missing
            are left out.
        alpha: level; the interval has confidence 1 - alpha.
        seed: of the exchanges drawn, where there are too many to take all.

    Raises:
        ValueError: a column is missing, an arm is unknown or twice in a round, a value is not finite and positive,
            rows are not in time order, no round is complete, or alpha is no level.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha={alpha}: give a level between 0 and 1, such as 0.05")
    return effect_of(series_of(frame, treatment=treatment, control=control), alpha=alpha, seed=seed)


def effect_of(series: Series, *, alpha: float, seed: int) -> Effect:
    """See `estimate_effect`."""
    signs = exchanges(series.rounds, seed)

    def scores(effects: Floats) -> Floats:
        return round_scores(series, effects)

    def p(effects: Floats) -> Floats:
        return p_values(series, effects, signs)

    p_value = float(p(np.zeros(1))[0])
    root = estimate(scores, series.contrasts)
    low, high = -math.inf, math.inf
    if 1.0 / len(signs) <= alpha:
        reach = half_width(scores, series.contrasts, root)
        low, high = interval(p, root=root, p_of_none=p_value, alpha=alpha, reach=reach)
    return effect_from(series.contrasts, root=root, low=low, high=high, p_value=p_value, alpha=alpha)


def effect_from(contrasts: Floats, *, root: float, low: float, high: float, p_value: float, alpha: float) -> Effect:
    """An estimate and an interval on the log scale as an effect."""
    ci_low, ci_high = math.exp(low), math.exp(high) if high < LARGEST_LOG else math.inf
    if p_value <= alpha:
        # An end so near to 0 that it rounds to a ratio of 1 must not seem to include it.
        ci_low, ci_high = (max(ci_low, ABOVE_1), ci_high) if root > 0 else (ci_low, min(ci_high, BELOW_1))
    return Effect(
        ratio=math.exp(root),
        ci_low=ci_low,
        ci_high=ci_high,
        p_value=p_value,
        rounds=len(contrasts),
        wins=int((contrasts > 0).sum()),
        losses=int((contrasts < 0).sum()),
    )


# Reading the frame


def series_of(frame: pd.DataFrame, *, treatment: str, control: str) -> Series:
    """The comparison's series out of a frame as `estimate_effect` takes it, with its errors."""
    _check(frame, treatment, control)
    is_pair = frame["arm"].isin([treatment, control]).to_numpy(dtype=bool)
    complete = frame.loc[is_pair].groupby("round")["arm"].transform("size") == 2
    keep = ~is_pair
    keep[is_pair] = complete.to_numpy(dtype=bool)
    used = frame.loc[keep]
    if not len(used) or not complete.any():
        raise ValueError(f"no round holds both {treatment!r} and {control!r}: nothing to compare")
    prompts = pd.factorize(used["prompt"])[0] if "prompt" in used.columns else None
    arms = used["arm"].to_numpy()
    return make_series(
        np.log(used["value"].to_numpy(dtype=np.float64)),
        rounds=pd.factorize(used["round"])[0],
        arms=np.where(arms == treatment, 1, np.where(arms == control, 0, pd.factorize(arms)[0] + 2)),
        prompts=prompts,
    )


def make_series(y: Floats, *, rounds: Integers, arms: Integers, prompts: Integers | None = None) -> Series:
    """A series out of arrays in time order, one element a trial.

    Args:
        y: log values.
        rounds: each trial's round.
        arms: 1 for the treatment, 0 for the control, both once in every round where one of them is; more for others.
        prompts: what each trial's round was about, numbered from 0.
    """
    coding = np.where(arms == 1, 0.5, np.where(arms == 0, -0.5, 0.0))
    # Stable, so that a round's two values stay in time order.
    places = np.flatnonzero(coding)
    slots = places[np.argsort(rounds[places], kind="stable")]
    return Series(y=y, coding=coding, slots=slots, fit=fit_levels(np.maximum(arms, 1), rounds, prompts))


def _check(frame: pd.DataFrame, treatment: str, control: str) -> None:
    if missing := [name for name in ("round", "position", "arm", "value") if name not in frame.columns]:
        raise ValueError(f"columns missing: {missing}; the frame needs round, position, arm and value")
    if treatment == control:
        raise ValueError(f"treatment and control are both {control!r}: give two arms")
    known = list(dict.fromkeys(frame["arm"]))
    if unknown := [arm for arm in (treatment, control) if arm not in known]:
        raise ValueError(f"unknown arm {unknown[0]!r}: the frame holds {known}")
    values = pd.to_numeric(frame["value"], errors="coerce").to_numpy(dtype=np.float64)
    if (bad := ~(np.isfinite(values) & (values > 0))).any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"value {frame['value'].iloc[row]!r} in row {row}: values must be finite and above 0")
    if frame["round"].isna().any() or frame["position"].isna().any():
        raise ValueError("round or position is missing in some rows: leave out rows that belong to no round")
    if (again := frame.duplicated(["round", "arm"]).to_numpy()).any():
        where = int(np.flatnonzero(again)[0])
        arm, number = frame["arm"].iloc[where], frame["round"].iloc[where]
        raise ValueError(f"arm {arm!r} is twice in round {number}: give one value for each")
    if (frame.groupby("round", sort=False)["position"].diff() < 0).any():
        raise ValueError("rows are not in time order: positions fall within a round; sort the frame by time")


def fit_levels(arms: Integers, rounds: Integers, prompts: Integers | None) -> LevelFit:
    """The fit of arms' and prompts' levels, one element a trial in time order; arms under test share a number."""
    columns = [np.ones((len(arms) - 1, 1))]
    if prompts is None:
        columns.append(_indicator_steps(arms))
    elif _rounds_of_rarest(prompts, rounds) >= CELL_ROUNDS:
        columns.append(_indicator_steps(arms * (prompts.max() + 1) + prompts))
    else:
        columns += [_indicator_steps(arms), _indicator_steps(prompts)]
    return LevelFit(basis=_orthonormal(np.concatenate(columns, axis=1)))


def _orthonormal(columns: Floats) -> Floats:
    """A basis of what the columns span, by Cholesky of their products: many times faster than QR for long columns."""
    try:
        lower = np.linalg.cholesky(columns.T @ columns)
        sizes = np.diagonal(lower)
        if sizes.min() > 1e-4 * sizes.max():
            return np.ascontiguousarray(np.linalg.solve(lower, columns.T).T)
    except np.linalg.LinAlgError:
        pass
    basis, upper = np.linalg.qr(columns)
    # A column that the ones before it already span leaves rounding on the diagonal, and no direction of its own.
    return basis[:, np.abs(np.diagonal(upper)) > 1e-9]


def _rounds_of_rarest(prompts: Integers, rounds: Integers) -> int:
    pairs = np.unique(np.stack([prompts, rounds]), axis=1)
    return int(np.unique(pairs[0], return_counts=True)[1].min())


def _indicator_steps(codes: Integers) -> Floats:
    """(n - 1, groups - 1): the first group is the base."""
    groups = np.unique(codes)[1:]
    return np.diff((codes[:, None] == groups[None, :]).astype(np.float64), axis=0)


# The test


@lru_cache(maxsize=8)
def exchanges(rounds: int, seed: int) -> Floats:
    """Signs of the exchanges, shape (M, R), the observed order (all +1) first; R is `MOST_EXCHANGED` at most.

    An exchange and its mirror have the same |statistic|, so one of each pair is enough: all of them for few rounds,
    else `DRAWS` drawn at random, which is exact too when the observed one is counted in.
    """
    rounds = min(rounds, MOST_EXCHANGED)
    if rounds <= ALL_UP_TO_ROUNDS:
        exchanged = np.arange(2 ** (rounds - 1))[:, None] >> np.arange(rounds)[None, :] & 1
    else:
        exchanged = np.random.Generator(np.random.PCG64(seed)).integers(0, 2, size=(DRAWS, rounds))
        exchanged[0] = 0
    signs: Floats = 1.0 - 2.0 * exchanged.astype(np.float64)
    signs.setflags(write=False)
    return signs


def round_scores(series: Series, effects: Floats) -> Floats:
    """What each round contributes to U for each candidate effect, shape (R, len(effects)); see the module's text."""
    shifted = series.y[:, None] - effects[None, :] * series.coding[:, None]
    of_slot = series.fit.slot_scores(shifted)
    signed = of_slot[series.slots] * series.coding[series.slots][:, None]
    contributions: Floats = signed.reshape(series.rounds, 2, -1).sum(axis=1)
    return contributions


def p_values(series: Series, effects: Floats, signs: Floats) -> Floats:
    """The p-value of each candidate effect on the log scale."""
    return share_as_large(round_scores(series, effects), signs)


def share_as_large(scores: Floats, signs: Floats) -> Floats:
    """For each column of scores, the share of exchanges whose |sum| is no smaller than the observed one's.

    Args:
        scores: (R, m), one row a round.
        signs: of `exchanges(R)`. Where its columns are fewer, neighbouring rounds' scores go together.
    """
    groups, tolerance = signs.shape[1], 1e-9 * len(scores)
    if len(scores) > groups:
        scores = np.add.reduceat(scores, np.arange(groups) * len(scores) // groups, axis=0)
    # One row an effect: contiguous rows are counted many times faster than columns.
    sizes = np.abs(scores.T @ signs.T)
    return np.array([np.count_nonzero(row >= row[0] - tolerance) for row in sizes]) / len(signs)
