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

from dataclasses import dataclass, replace

import numpy as np

from orchestrator.statistics.inversion import Floats
from orchestrator.statistics.levels import NORMAL_MAD, SMALL, Integers, LevelFit

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the trend may see: n values, each of them the mean of some trials."""

    values: Floats  # (n,) log values
    places: Floats  # (n, m) the trials' places in time, NaN where there are fewer than m
    levels: Floats  # (n, q) indicators of levels, see `orchestrator.statistics.levels.level_columns`
    arms: Integers  # (n,) whose each value is: an arm has a noise of its own, and noisy ones weigh less

    @property
    def centres(self) -> Floats:
        centres: Floats = np.nanmean(self.places, axis=1)
        return centres

    @property
    def sizes(self) -> Floats:
        """How many trials each value is the mean of."""
        sizes: Floats = (~np.isnan(self.places)).sum(axis=1).astype(np.float64)
        return sizes

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
    coefficients, slope = _levels(seen)
    jumps = _jumps(seen, seen.values - seen.levels @ coefficients)
    stepped = seen.values - sum((jump * _share_after(seen, where) for where, jump in jumps), np.zeros(len(seen.values)))
    if jumps:
        seen = replace(seen, values=stepped)
        coefficients, slope = _levels(seen)
    rest = seen.values - seen.levels @ coefficients - slope * seen.centres
    drift = slope * places + _smooth(seen, rest, places)
    for where, jump in jumps:
        drift = drift + jump * (places > where)
    return drift


def _levels(seen: Seen) -> tuple[Floats, float]:
    """The levels' coefficients and the constant drift per trial. Drift that levels could explain as well is theirs."""
    columns = np.diff(np.concatenate([seen.levels, seen.centres[:, None]], axis=1), axis=0)
    basis, upper = np.linalg.qr(columns)
    kept = np.flatnonzero(np.abs(np.diagonal(upper)) > 1e-9)
    basis = basis[:, kept]
    differences = np.diff(seen.values)
    fitted = differences - LevelFit(basis=basis).residuals(differences[:, None])[:, 0]
    coefficients = np.zeros(columns.shape[1])
    coefficients[kept] = np.linalg.solve(upper[np.ix_(kept, kept)], basis.T @ fitted)
    return coefficients[:-1], float(coefficients[-1])


# Steps


def _jumps(seen: Seen, values: Floats) -> list[tuple[float, float]]:
    """Each step's place, between two trials, and its size; the one that explains most first."""
    found: list[tuple[float, float]] = []
    while len(found) < MOST_JUMPS:
        where, jump = _largest_jump(seen, values)
        if jump == 0.0:
            break
        found.append((where, jump))
        values = values - jump * _share_after(seen, where)
    return found


def _largest_jump(seen: Seen, values: Floats) -> tuple[float, float]:
    """The step that explains most among those that stand out; a size of 0 when none does.

    At each place a line with a jump is fitted to the values around it: after the line is taken out of both, the values
    are regressed on the share of each one's trials that come later.
    """
    centres = seen.centres
    wheres = np.arange(np.nanmin(seen.places), np.nanmax(seen.places)) + 0.5
    index = np.searchsorted(centres, wheres)[:, None] + np.arange(-JUMP_WINDOW, JUMP_WINDOW)
    inside = (index >= 0) & (index < len(values))
    index = np.clip(index, 0, len(values) - 1)
    after = _shares(seen.places[index], wheres)
    whole = (((after == 0) & inside).sum(axis=1) >= JUMP_SIDE) & (((after == 1) & inside).sum(axis=1) >= JUMP_SIDE)
    if not whole.any():
        return 0.0, 0.0
    weights = np.where(inside, seen.sizes[index], 0.0)
    line, step, value = (_centred(each, weights) for each in (centres[index], after, values[index]))

    def product(one: Floats, other: Floats) -> Floats:
        found: Floats = (weights * one * other).sum(axis=1)
        return found

    run = np.maximum(product(line, line), SMALL)
    step = step - (product(step, line) / run)[:, None] * line
    value = value - (product(value, line) / run)[:, None] * line
    information = np.maximum(product(step, step), SMALL)
    jump = product(step, value) / information
    explained = jump**2 * information
    variance = np.maximum(product(value, value) - explained, 0.0) / np.maximum(inside.sum(axis=1) - 3, 1)
    floor = JUMP_FLOOR * float(np.quantile(variance[whole], 0.25))
    error = np.sqrt(np.maximum(np.maximum(variance, floor), SMALL**2) / information)
    stands_out = whole & (np.abs(jump) > JUMP_T * error)
    best = int(np.argmax(np.where(stands_out, explained, -1.0)))
    return (float(wheres[best]), float(jump[best])) if stands_out[best] else (0.0, 0.0)


def _centred(values: Floats, weights: Floats) -> Floats:
    means = (weights * values).sum(axis=1) / weights.sum(axis=1)
    centred: Floats = values - means[:, None]
    return centred


def _shares(places: Floats, wheres: Floats) -> Floats:
    """The share of each value's trials after each place; places (c, w, m), wheres (c,), result (c, w)."""
    later = (places > wheres[:, None, None]).sum(axis=2)
    shares: Floats = later / (~np.isnan(places)).sum(axis=2)
    return shares


def _share_after(seen: Seen, where: float) -> Floats:
    shares: Floats = _shares(seen.places[None], np.array([where]))[0]
    return shares


# What is left


def _smooth(seen: Seen, rest: Floats, places: Floats) -> Floats:
    """A local line through what is left, values that stand out from their neighbours weighing little."""
    centres, sizes = seen.centres, seen.sizes
    bandwidth = max(BANDWIDTH, float(centres[-1] - centres[0]) / (len(centres) - 1))
    weights = sizes
    for _ in range(REWEIGHTINGS):
        around = _local_line(centres, rest, weights, centres, bandwidth, leave_out=True)
        sticking_out = (rest - around) * np.sqrt(sizes)
        scale = _scale_of_arm(sticking_out, seen.arms)
        trust = 1.0 / (1.0 + (sticking_out / (OUTLIER * scale)) ** 2) ** 2
        weights = sizes * trust * (scale.min() / scale) ** 2
    return _local_line(centres, rest, weights, places, bandwidth)


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


def _local_line(
    centres: Floats, values: Floats, weights: Floats, places: Floats, bandwidth: float, *, leave_out: bool = False
) -> Floats:
    """Local linear regression at the places; `leave_out`: the places are the centres, each without its own value."""
    middle = np.searchsorted(centres, places)
    index = middle[:, None] + np.arange(-WINDOW, WINDOW + 1)
    inside = (index >= 0) & (index < len(centres))
    if leave_out:
        inside &= index != np.arange(len(centres))[:, None]
    index = np.clip(index, 0, len(centres) - 1)
    away = centres[index] - places[:, None]
    weight = np.where(inside, weights[index] * np.exp(-0.5 * (away / bandwidth) ** 2), 0.0)
    total = weight.sum(axis=1) + 1e-300
    mean, place = (weight * values[index]).sum(axis=1) / total, (weight * away).sum(axis=1) / total
    spread = (weight * away**2).sum(axis=1) / total - place**2
    common = (weight * away * values[index]).sum(axis=1) / total - place * mean
    line: Floats = mean - place * common / (spread + RIDGE * bandwidth**2)
    return line
