"""The machine's drift over a run, estimated without looking at the labels under test. Pure.

The trials of the arms under test enter only as their mean over the round, and every other trial as itself less its
arm's level. Exchanging the tested labels within rounds changes none of these numbers, so what is computed from them may
be taken out of the series before the labels are looked at, however it is computed: the randomisation test stays exact.
The mean does not hold the contrast either. An effect, one that differs by prompt among them, neither bends the trend
nor is smoothed away by it.

Three parts, in this order: a constant drift and the levels, by a robust fit of first differences; steps, each found
where a local line with a jump fits many times better than without (Qiu 2005, chapter 3); and what is left, by local
linear regression (Fan and Gijbels 1996) with one robust reweighting (Cleveland 1979).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from orchestrator.estimation.inversion import Floats
from orchestrator.estimation.levels import NORMAL_MAD, SMALL, Integers, LevelFit

BANDWIDTH = 2.0  # trials; the standard deviation of the Gaussian weights
WINDOW = 8  # values on each side that the local line sees
RIDGE = 0.02  # of the squared bandwidth: a local constant where there is nothing to see a slope from
OUTLIER = 3.0  # robust weights fall from there, in scales
REWEIGHTINGS = 2
LEAST_OWN_SCALE = 0.25  # of an arm, in scales of all

JUMP_WINDOW = 4  # values on each side of a step
JUMP_SIDE = 2  # whole values that a step needs on each side
JUMP_T = 6.0  # |jump| over its standard error
JUMP_FLOOR = 0.2  # of the variance that the quietest quarter of the run shows: less is luck
MOST_JUMPS = 12


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The input of the trend: n values, each of them the mean of some trials."""

    values: Floats  # (n,) log values
    places: Floats  # (n, m) the trials' places in time, NaN where there are fewer than m
    levels: Floats  # (n, q) indicators of levels, see `orchestrator.estimation.levels.level_columns`
    arms: Integers  # (n,) the arm of each value: arms differ in noise, and noisy ones weigh less

    @cached_property
    def sizes(self) -> Floats:
        """Return the number of trials behind each value."""
        sizes: Floats = (~np.isnan(self.places)).sum(axis=1).astype(np.float64)
        return sizes

    @cached_property
    def centres(self) -> Floats:
        centres: Floats = np.nansum(self.places, axis=1) / self.sizes
        return centres

    def in_time_order(self) -> "Seen":
        order = np.argsort(self.centres, kind="stable")
        return Seen(
            values=self.values[order], places=self.places[order], levels=self.levels[order], arms=self.arms[order]
        )


def drift_at(seen: Seen, places: Floats) -> Floats:
    """The drift at these places, on the log scale and up to a constant; 0 with fewer than two values."""
    if len(seen.values) < 2:
        return np.zeros(len(places))
    seen = seen.in_time_order()
    fit = _LevelsAndSlope.of(seen)
    coefficients, slope = fit.to(seen.values)
    jumps = _jumps(seen, seen.values - seen.levels @ coefficients)
    stepped = seen.values
    for where, jump in jumps:
        stepped = stepped - jump * _share_after(seen, where)
    if jumps:
        coefficients, slope = fit.to(stepped)
    rest = stepped - seen.levels @ coefficients - slope * seen.centres
    drift = slope * places + _smooth(seen, rest, places)
    for where, jump in jumps:
        drift = drift + jump * (places > where)
    return drift


@dataclass(frozen=True, slots=True, kw_only=True)
class _LevelsAndSlope:
    """A robust fit of first differences. Drift that levels could explain as well is theirs."""

    fit: LevelFit
    upper: Floats
    kept: Integers  # columns that the ones before them do not span

    @classmethod
    def of(cls, seen: Seen) -> "_LevelsAndSlope":
        basis, upper = np.linalg.qr(np.diff(np.concatenate([seen.levels, seen.centres[:, None]], axis=1), axis=0))
        kept = np.flatnonzero(np.abs(np.diagonal(upper)) > 1e-9)
        return cls(fit=LevelFit(basis=basis[:, kept]), upper=upper, kept=kept)

    def to(self, values: Floats) -> tuple[Floats, float]:
        """The levels' coefficients and the constant drift per trial."""
        differences = np.diff(values)
        fitted = differences - self.fit.residuals(differences[:, None])[:, 0]
        coefficients = np.zeros(self.upper.shape[1])
        coefficients[self.kept] = np.linalg.solve(self.upper[np.ix_(self.kept, self.kept)], self.fit.basis.T @ fitted)
        return coefficients[:-1], float(coefficients[-1])


# Steps


def _jumps(seen: Seen, values: Floats) -> list[tuple[float, float]]:
    """Each step's place, between two trials, and its size; the one that explains most first."""
    windows = _Windows.of(seen)
    found: list[tuple[float, float]] = []
    while windows is not None and len(found) < MOST_JUMPS:
        where, jump = windows.largest_jump(values)
        if jump == 0.0:
            break
        found.append((where, jump))
        values = values - jump * _share_after(seen, where)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    """The values around each of c places between two trials, w in a window, and the share of each that comes later.

    In each window a line with a jump is fitted: after a constant and the line are taken out of both, the values are
    regressed on those shares.
    """

    wheres: Floats  # (c,)
    index: Integers  # (c, w) of the values
    weights: Floats  # (c, w) 0 for those that are not there
    line: Floats  # (c, w) centred, of unit size in the weights
    step: Floats  # (c, w) the shares beside constant and line
    information: Floats  # (c,) the step's squared size in the weights
    freedom: Floats  # (c,)

    @classmethod
    def of(cls, seen: Seen) -> "_Windows | None":
        """Return the places with enough whole values on both sides, or None if there is none."""
        centres = seen.centres
        wheres = np.arange(np.nanmin(seen.places), np.nanmax(seen.places)) + 0.5
        index = np.searchsorted(centres, wheres)[:, None] + np.arange(-JUMP_WINDOW, JUMP_WINDOW)
        inside = (index >= 0) & (index < len(centres))
        index = np.clip(index, 0, len(centres) - 1)
        after = _shares(seen.places[index], wheres)
        whole = (((after == 0) & inside).sum(axis=1) >= JUMP_SIDE) & (((after == 1) & inside).sum(axis=1) >= JUMP_SIDE)
        if not whole.any():
            return None
        wheres, index, inside, after = (each[whole] for each in (wheres, index, inside, after))
        weights = np.where(inside, seen.sizes[index], 0.0)
        line, step = _centred(centres[index], weights), _centred(after, weights)
        line = line / np.sqrt(np.maximum(_products(weights, line, line), SMALL))[:, None]
        step = step - _products(weights, step, line)[:, None] * line
        return cls(
            wheres=wheres,
            index=index,
            weights=weights,
            line=line,
            step=step,
            information=np.maximum(_products(weights, step, step), SMALL),
            freedom=np.maximum(inside.sum(axis=1) - 3, 1).astype(np.float64),
        )

    def largest_jump(self, values: Floats) -> tuple[float, float]:
        """The step that explains most among those that stand out; a size of 0 when none does."""
        value = _centred(values[self.index], self.weights)
        jump = _products(self.weights, self.step, value) / self.information
        explained = jump**2 * self.information
        left = _products(self.weights, value, value) - _products(self.weights, self.line, value) ** 2 - explained
        variance = np.maximum(left, 0.0) / self.freedom
        floor = JUMP_FLOOR * float(np.quantile(variance, 0.25))
        error = np.sqrt(np.maximum(np.maximum(variance, floor), SMALL**2) / self.information)
        stands_out = np.abs(jump) > JUMP_T * error
        best = int(np.argmax(np.where(stands_out, explained, -1.0)))
        return (float(self.wheres[best]), float(jump[best])) if stands_out[best] else (0.0, 0.0)


def _products(weights: Floats, one: Floats, other: Floats) -> Floats:
    found: Floats = np.einsum("cw,cw,cw->c", weights, one, other)
    return found


def _centred(values: Floats, weights: Floats) -> Floats:
    means = np.einsum("cw,cw->c", weights, values) / weights.sum(axis=1)
    centred: Floats = values - means[:, None]
    return centred


def _shares(places: Floats, wheres: Floats) -> Floats:
    """The share of each value's trials after each place; places (c, w, m), wheres (c,), result (c, w)."""
    later = (places > wheres[:, None, None]).sum(axis=2)
    shares: Floats = later / (~np.isnan(places)).sum(axis=2)
    return shares


def _share_after(seen: Seen, where: float) -> Floats:
    shares: Floats = (seen.places > where).sum(axis=1) / seen.sizes
    return shares


# What is left


def _smooth(seen: Seen, rest: Floats, places: Floats) -> Floats:
    """A local line through what is left, values that stand out from their neighbours weighing little."""
    centres, sizes = seen.centres, seen.sizes
    bandwidth = max(BANDWIDTH, float(centres[-1] - centres[0]) / (len(centres) - 1))
    neighbours = _Neighbours.of(centres, centres, bandwidth, leave_out=True)
    weights, roots = sizes, np.sqrt(sizes)
    for _ in range(REWEIGHTINGS):
        sticking_out = (rest - neighbours.line(rest, weights)) * roots
        scale = _scale_of_arm(sticking_out, seen.arms)
        trust = 1.0 / (1.0 + (sticking_out / (OUTLIER * scale)) ** 2) ** 2
        weights = sizes * trust * (scale.min() / scale) ** 2
    return _Neighbours.of(centres, places, bandwidth).line(rest, weights)


def _scale_of_arm(residuals: Floats, arms: Integers) -> Floats:
    """The scale of each value's arm; that of all is a floor for what few values show."""
    sizes = np.abs(residuals)
    # All arms' medians at once: a run may hold twenty.
    ordered = sizes[np.lexsort((sizes, arms))]
    _, which, counts = np.unique(arms, return_inverse=True, return_counts=True)
    starts = np.cumsum(counts) - counts
    medians = (ordered[starts + (counts - 1) // 2] + ordered[starts + counts // 2]) / 2
    scale = np.maximum(medians[which], LEAST_OWN_SCALE * float(np.median(sizes)))
    found: Floats = np.maximum(scale / NORMAL_MAD, SMALL)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Neighbours:
    """The values around each place, for local linear regression there."""

    index: Integers  # (c, w) of the values
    kernel: Floats  # (c, w) Gaussian weights, 0 for those that are not there
    away: Floats  # (c, w) from the place
    ridge: float

    @classmethod
    def of(cls, centres: Floats, places: Floats, bandwidth: float, *, leave_out: bool = False) -> "_Neighbours":
        """Find the neighbours; with `leave_out` the places are the centres, each without its own value."""
        index = np.searchsorted(centres, places)[:, None] + np.arange(-WINDOW, WINDOW + 1)
        inside = (index >= 0) & (index < len(centres))
        if leave_out:
            inside &= index != np.arange(len(centres))[:, None]
        index = np.clip(index, 0, len(centres) - 1)
        away = centres[index] - places[:, None]
        kernel = np.where(inside, np.exp(-0.5 * (away / bandwidth) ** 2), 0.0)
        return cls(index=index, kernel=kernel, away=away, ridge=RIDGE * bandwidth**2)

    def line(self, values: Floats, weights: Floats) -> Floats:
        """The local lines' values at the places."""
        weight = self.kernel * weights[self.index]
        weight /= weight.sum(axis=1, keepdims=True) + 1e-300
        value, away = values[self.index], self.away
        weighted = weight * away
        mean, place = np.einsum("cw,cw->c", weight, value), weighted.sum(axis=1)
        spread = np.einsum("cw,cw->c", weighted, away) - place**2
        common = np.einsum("cw,cw->c", weighted, value) - place * mean
        line: Floats = mean - place * common / (spread + self.ridge)
        return line
