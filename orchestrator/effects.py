"""How much faster one arm is than another on average, and whether drift could have done it.

What is estimated is the mean effect on the log scale: over the rounds of each prompt, then over the prompts with equal
weights. Its exp is the ratio of the two arms' geometric means, whether a round holds one prompt or all of them. Nothing
weighs a round by its result: a stall counts for what it cost.

Each round gives one contrast, treatment less control, less the drift between their two places. The drift is estimated
from values that do not change when the two labels are exchanged (`orchestrator.estimation.trend`). So under "the effect
is theta" an exchange turns the sign of a round's contrast less theta and changes nothing else, whatever the drift and
the noise: Fisher's randomisation test, exact because each round's order was drawn at random, as long as one trial does
not change the next. The interval is the set of effects that this test does not reject (Rosenbaum 2002, chapter 2).

With several prompts the statistic is the mean over its standard error within prompts. So the test holds for the mean,
asymptotically, where effects differ by prompt or one arm is noisier (Chung and Romano 2013; Wu and Ding 2021). With
one prompt that would order the exchanges as the mean itself does.

Everything here is a pure function of its arguments.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.estimation.inversion import SHORTEST, Floats, interval
from orchestrator.estimation.levels import NORMAL_MAD, SMALL, level_columns
from orchestrator.estimation.trend import Seen, drift_at

Integers = npt.NDArray[np.intp]

DRAWS = 10_000  # exchanges drawn when there are too many to take all of them, the observed order among them
ALL_UP_TO_ROUNDS = 14  # all 2**13 pairs of mirrored exchanges
MOST_EXCHANGED = 256  # of more rounds, neighbours are exchanged together: as exact a test, at a cost that stops growing
OWN_SPREAD_ROUNDS = 4  # of a prompt; with fewer all prompts share one spread
LEAST_FREEDOM = 3  # rounds more than prompts: with fewer, prompts are not distinguished
HUBER = 1.345  # 95 % efficient for normal noise (Huber 1981)
LARGEST_LOG = 700.0  # of a finite ratio
BELOW_1, ABOVE_1 = math.nextafter(1.0, 0.0), math.nextafter(1.0, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Treatment against control. Ratios are of the value: 1.05 means 5 % more of it."""

    ratio: float  # of the geometric means over prompts with equal weights, and over the rounds of each
    ci_low: float  # 0 when the rounds are too few for any bound
    ci_high: float  # inf when they are
    p_value: float  # of "ratio = 1"; at most alpha exactly when 1 is outside the interval
    rounds: int  # complete ones, all that was used
    wins: int  # rounds in which the treatment's value was the larger
    losses: int  # rounds in which it was the smaller
    typical: float  # the ratio of a typical round, whatever the odd ones show: robust, and no average


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A comparison prompt by prompt."""

    names: tuple[str, ...]
    contrasts: Floats  # (R, prompts) treatment less control, less drift; NaN where a round does not hold the prompt

    @property
    def means(self) -> Floats:
        """Each prompt's effect, on the log scale; every prompt has a round."""
        means: Floats = np.nanmean(self.contrasts, axis=0)
        return means


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One comparison, ready to be tested for any effect: one element per complete round."""

    contrasts: Floats  # (R,) treatment less control on the log scale, less the drift between the two
    raw: Floats  # (R,) the same with the drift
    weights: Floats  # (R,) of the rounds in the mean; their sum is 1
    strata: Integers  # (R,) each round's prompt, numbered from 0 without gaps; all 0 when all rounds are alike
    numbers: Integers  # (R,) the rounds' own numbers
    together: int = 1  # rounds whose labels were dealt as one: a square's
    flat: Floats | None = None  # (2, R) the treatment's and the control's values less drift
    parts: Parts | None = None  # None if the prompts have no names

    @property
    def rounds(self) -> int:
        return len(self.contrasts)

    @property
    def mean(self) -> float:
        """The estimate, on the log scale."""
        return float(self.weights @ self.contrasts)


def estimate_effect(frame: pd.DataFrame, *, treatment: str, control: str, alpha: float = 0.05, seed: int = 0) -> Effect:
    """The mean effect of `treatment` against `control`, with a randomisation test and the interval that it implies.

    Args:
        frame: rows in time order with columns `round` (int), `position` (int, within the round), `arm` (str) and
            `value` (float > 0, in any unit). More arms may be there. An optional column `prompt` names what the round
            was about; prompts then weigh the same, however many rounds each of them has. Rounds in which one of the
            two arms is missing are left out. Whether they are missing by chance is not tested here: the audit does.
        alpha: level; the interval has confidence 1 - alpha.
        seed: of the exchanges drawn, where there are too many to take all.

    Raises:
        ValueError: a column is missing, an arm is unknown or twice in a round, a value is not finite and positive,
            rows are not in time order, no round is complete, or alpha is not a level.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha={alpha}: give a level between 0 and 1, such as 0.05")
    return effect_of(series_of(frame, treatment=treatment, control=control), alpha=alpha, seed=seed)


def effect_of(series: Series, *, alpha: float, seed: int) -> Effect:
    """Estimate the effect of a series; see `estimate_effect`."""
    test = Exchanged.of(series, exchanges_of(series, seed))
    p_value = float(test.p(np.zeros(1))[0])
    low, high = -math.inf, math.inf
    if 1.0 / test.count <= alpha:
        reach = max(2.5 * test.standard_error(series.mean), SHORTEST)
        low, high = interval(test.p, root=series.mean, p_of_none=p_value, alpha=alpha, reach=reach)
    return effect_from(
        series.raw,
        root=series.mean,
        low=low,
        high=high,
        p_value=p_value,
        alpha=alpha,
        typical=typical_of(series.contrasts),
    )


def effect_from(
    contrasts: Floats, *, root: float, low: float, high: float, p_value: float, alpha: float, typical: float
) -> Effect:
    """Convert estimates and an interval on the log scale to an effect; wins are counted from the contrasts."""
    ci_low, ci_high = math.exp(low), math.exp(high) if high < LARGEST_LOG else math.inf
    if p_value <= alpha:
        # An end so near to 0 that it rounds to a ratio of 1 must not seem to include it.
        ci_low, ci_high = (max(ci_low, ABOVE_1), ci_high) if root > 0 else (ci_low, min(ci_high, BELOW_1))
    return Effect(
        ratio=min(max(math.exp(root), ci_low), ci_high),  # a root that rounds to a ratio of 1 stays within its ends
        ci_low=ci_low,
        ci_high=ci_high,
        p_value=p_value,
        rounds=len(contrasts),
        wins=int((contrasts > 0).sum()),
        losses=int((contrasts < 0).sum()),
        typical=math.exp(typical),
    )


def typical_of(contrasts: Floats) -> float:
    """Huber's estimate of location: what most rounds show. Rounds that differ from them hardly move it."""
    middle = float(np.median(contrasts))
    bound = HUBER * float(np.median(np.abs(contrasts - middle))) / NORMAL_MAD
    for _ in range(20):
        middle += float(np.clip(contrasts - middle, -bound, bound).mean())
    return middle


# Reading the frame


def series_of(frame: pd.DataFrame, *, treatment: str, control: str) -> Series:
    """Build the comparison's series from a frame; frame and errors are those of `estimate_effect`."""
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


def make_series(
    y: Floats, *, rounds: Integers, arms: Integers, prompts: Integers | None = None, weights: Floats | None = None
) -> Series:
    """Build a series from arrays in time order, one element per trial.

    Args:
        y: log values.
        rounds: each trial's round.
        arms: 1 for the treatment, 0 for the control, both once in every round where one of them is; more for others.
        prompts: the prompt of each trial's round, numbered; None if all rounds hold the same prompts.
        weights: of the rounds with the two arms, in their order; None: equal for prompts, and for rounds of a prompt.
    """
    # Stable, so that a round's two values stay in time order.
    places = np.flatnonzero(arms <= 1)
    pairs = places[np.argsort(rounds[places], kind="stable")].reshape(-1, 2)
    flat = y[pairs] - _drift(y, pairs, rounds, arms, prompts)
    treated = (arms[pairs] == 1).argmax(axis=1)[:, None]
    flat, raw = (np.take_along_axis(each, np.hstack([treated, 1 - treated]), axis=1).T for each in (flat, y[pairs]))
    strata = np.zeros(len(pairs), dtype=np.intp)
    if prompts is not None:
        strata = np.unique(prompts[pairs[:, 0]], return_inverse=True)[1].astype(np.intp)
    return Series(
        contrasts=flat[0] - flat[1],
        raw=raw[0] - raw[1],
        weights=equal_weights(strata) if weights is None else weights / weights.sum(),
        strata=strata,
        numbers=rounds[pairs[:, 0]],
        flat=flat,
    )


def equal_weights(strata: Integers) -> Floats:
    """Weights of rounds by which each stratum weighs the same."""
    counts = np.bincount(strata)
    weights: Floats = 1.0 / (len(counts) * counts[strata])
    return weights


def _drift(y: Floats, pairs: Integers, rounds: Integers, arms: Integers, prompts: Integers | None) -> Floats:
    """Return the drift at the pairs' places, from the pairs' means and the other arms, shape (R, 2)."""
    others = np.flatnonzero(arms > 1)
    single = np.full((len(others), 2), np.nan)
    single[:, 0] = others
    first = np.concatenate([others, pairs[:, 0]])
    owners = np.maximum(arms, 1)[first]
    seen = Seen(
        arms=owners,
        values=np.concatenate([y[others], y[pairs].mean(axis=1)]),
        places=np.concatenate([single, pairs.astype(np.float64)]),
        levels=level_columns(owners, rounds[first], None if prompts is None else prompts[first]),
    )
    return drift_at(seen, pairs.astype(np.float64).ravel()).reshape(-1, 2)


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


def exchanges_of(series: Series, seed: int) -> Floats:
    """The exchanges that the series' design allows: of each round, or of all rounds of a square at once."""
    if series.together == 1:
        return exchanges(series.rounds, seed)
    squares = np.unique(series.numbers // series.together, return_inverse=True)[1]
    return spread(exchanges(int(squares.max()) + 1, seed), squares)


def spread(signs: Floats, units: Integers) -> Floats:
    """Expand the signs of units to their members, shape (M, len(units)); many units share a sign with neighbours."""
    groups = signs.shape[1]
    found: Floats = signs[:, units * groups // max(int(units.max()) + 1, groups)]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """A series' M exchanges, each reduced to the numbers from which its statistic follows for any effect theta.

    The mean of an exchange is a - theta b. Its spread within strata is what the sum of squares, which no exchange
    changes, exceeds that of the strata's means by; the latter is c0 - 2 theta c1 + theta**2 c2.
    """

    means: Floats  # (2, M): a and b
    squares: Floats  # (3,): of the contrasts, of their products with 1, and of 1, in the strata's weights
    between: Floats | None  # (3, M): c0, c1 and c2; None: one stratum, the statistic is the mean itself

    @property
    def count(self) -> int:
        return len(self.means[0])

    @classmethod
    def of(cls, series: Series, signs: Floats, *, studentised: bool | None = None) -> "Exchanged":
        """Reduce `exchanges(series.rounds)`, or some of its rows including the first.

        Args:
            studentised: whether the statistic is the mean over its standard error; by default if there are strata.
        """
        strata = strata_with_spread(series.strata)
        values = np.stack([series.contrasts, np.ones(series.rounds)])
        scales = _spread_weights(series.weights, strata)
        squares = np.array([scales @ (values[i] * values[j]) for i, j in ((0, 0), (0, 1), (1, 1))])
        if not (strata.max() > 0 if studentised is None else studentised):
            return cls(means=_sums(values * series.weights, signs), squares=squares, between=None)
        within = strata[None, :] == np.arange(strata.max() + 1)[:, None]
        sums = _sums(np.concatenate([values * series.weights, within * values[0], within * values[1]]), signs)
        first, second = np.split(sums[2:], 2)
        share = ((within * scales).max(axis=1) / within.sum(axis=1))[:, None]
        products = ((first, first), (first, second), (second, second))
        between = np.stack([(share * one * other).sum(axis=0) for one, other in products])
        return cls(means=sums[:2], squares=squares, between=between)

    def p(self, effects: Floats) -> Floats:
        """The p-value of each candidate effect: the share of exchanges whose statistic is as far out as observed."""
        return np.array([self._p(float(effect)) for effect in effects])

    def _p(self, effect: float) -> float:
        sizes = self.sizes(effect)
        return float(np.count_nonzero(sizes >= sizes[0] - max(1e-9 * sizes[0], SMALL)) / self.count)

    def sizes(self, effect: float) -> Floats:
        """|statistic| of each exchange, shape (M,)."""
        sizes: Floats = np.abs(self.means[0] - effect * self.means[1])
        if self.between is None:
            return sizes
        powers = np.array([1.0, -2.0 * effect, effect**2])
        variance = powers @ self.squares - powers @ self.between
        # Without spread, only rounding is left of the variance.
        return np.where(sizes < SMALL, 0.0, sizes) / np.sqrt(np.maximum(variance, SMALL**2))

    def standard_error(self, effect: float) -> float:
        """Return the standard error of the mean within strata."""
        powers = np.array([1.0, -2.0 * effect, effect**2])
        between = 0.0 if self.between is None else float(powers @ self.between[:, 0])
        return math.sqrt(max(float(powers @ self.squares) - between, 0.0))


def p_values(series: Series, effects: Floats, signs: Floats) -> Floats:
    """The p-value of each candidate effect on the log scale."""
    return Exchanged.of(series, signs).p(effects)


def strata_with_spread(strata: Integers) -> Integers:
    """Return the strata, or a single one if too few rounds share a stratum to estimate the spread within."""
    return strata if len(strata) - len(np.unique(strata)) >= LEAST_FREEDOM else np.zeros_like(strata)


def _spread_weights(weights: Floats, strata: Integers) -> Floats:
    """Return the weight of each round's square in the mean's squared standard error."""
    counts = np.bincount(strata)
    if len(counts) > 1 and counts.min() >= OWN_SPREAD_ROUNDS:
        own: Floats = weights**2 * (counts / (counts - 1.0))[strata]
        return own
    pooled: Floats = np.full(len(weights), (weights**2).sum() / max(len(weights) - len(counts), 1))
    return pooled


def _sums(values: Floats, signs: Floats) -> Floats:
    """The sums of each row of values (k, R) over the rounds in each exchange, shape (k, M).

    If the exchanges have fewer columns than there are rounds, neighbouring rounds are exchanged together.
    """
    groups, rounds = signs.shape[1], values.shape[1]
    if rounds > groups:
        values = np.add.reduceat(values, np.arange(groups) * rounds // groups, axis=1)
    sums: Floats = values @ signs.T
    return sums
