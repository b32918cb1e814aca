"""An arm over time: did its speed change, when, and what changed with it? Pure.

A point is a run's median. Points are split where the fit of two levels is best (`ruptures`, least squares on the log
scale, at least ten points each side), and a split counts when at most 1 in 100 random orders of the same points can be
split as well. Only the parts of a split that counts are looked at further, so that noise alone gives a false alarm in
at most 1 history of 100, whatever its length.

The random orders assume that points of an unchanged arm are exchangeable. A machine that is warm every summer is not;
then a change is reported, rightly, and its cause is not in the versions.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import ruptures

MIN_POINTS = 10  # on each side of a change
FALSE_ALARMS = 0.01
ORDERS = 999  # random orders drawn; the smallest p-value is 1 / (ORDERS + 1)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run of the arm."""

    run_id: str
    at: dt.datetime
    value: float  # the metric's median, > 0
    versions: Mapping[str, str]  # mlx, mlx_lm, engine, os_build, host, checkpoint: what may explain a change


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of level between two runs."""

    before: str  # run ids
    after: str
    at: dt.datetime
    ratio: float  # level after over level before
    p_value: float
    causes: tuple[str, ...]  # "mlx 0.31 -> 0.32": whatever differs between the two runs
    verdict: str  # changed_with | confounded | unexplained

    @property
    def words(self) -> str:
        size = f"{self.ratio - 1:+.1%}"
        if self.verdict == "changed_with":
            return f"{size}, changed with {self.causes[0]}"
        if self.verdict == "confounded":
            return f"{size}, confounded: {' and '.join(self.causes)} changed at once"
        return f"{size}, unexplained: no recorded version changed there"


def change_points(points: Sequence[Point], *, seed: int = 0) -> tuple[Change, ...]:
    """The changes of level, in time order; none with fewer than twice `MIN_POINTS` points."""
    ordered = sorted(points, key=lambda point: point.at)
    y = np.log([point.value for point in ordered])
    splits = _splits(y, 0, rng=np.random.default_rng(seed))
    bounds = [0, *(at for at, _ in splits), len(y)]
    return tuple(
        _change(ordered, y, (bounds[index], at, bounds[index + 2]), p_value)
        for index, (at, p_value) in enumerate(splits)
    )


def _splits(y: Floats, offset: int, *, rng: np.random.Generator) -> list[tuple[int, float]]:
    """Where this part and its parts split, with the p-value of each, in order."""
    if len(y) < 2 * MIN_POINTS:
        return []
    (at, _) = ruptures.Binseg(model="l2", min_size=MIN_POINTS, jump=1).fit_predict(y, n_bkps=1)
    p_value = _p_value(y, rng)
    if p_value > FALSE_ALARMS:
        return []
    left = _splits(y[:at], offset, rng=rng)
    right = _splits(y[at:], offset + at, rng=rng)
    return [*left, (offset + at, p_value), *right]


def _p_value(y: Floats, rng: np.random.Generator) -> float:
    """The share of random orders whose best split is at least as good as the observed, the observed one counted in."""
    orders = rng.permuted(np.tile(y, (ORDERS, 1)), axis=1)
    best = _best_gains(np.vstack([y, orders]))
    return float(np.mean(best >= best[0] * (1 - 1e-12)))


def _best_gains(rows: Floats) -> Floats:
    """For each row, the largest drop of the sum of squares that a split brings."""
    n = rows.shape[1]
    sums = np.cumsum(rows - rows.mean(axis=1, keepdims=True), axis=1)[:, MIN_POINTS - 1 : n - MIN_POINTS]
    left = np.arange(MIN_POINTS, n - MIN_POINTS + 1)
    gains: Floats = (sums**2 * (1 / left + 1 / (n - left))).max(axis=1)
    return gains


def _change(ordered: Sequence[Point], y: Floats, bounds: tuple[int, int, int], p_value: float) -> Change:
    start, at, end = bounds
    before, after = ordered[at - 1], ordered[at]
    causes = tuple(
        f"{name} {before.versions.get(name, 'unknown')} -> {after.versions.get(name, 'unknown')}"
        for name in sorted(set(before.versions) | set(after.versions))
        if before.versions.get(name) != after.versions.get(name)
    )
    verdict = ("unexplained", "changed_with")[len(causes)] if len(causes) < 2 else "confounded"
    return Change(
        before=before.run_id,
        after=after.run_id,
        at=after.at,
        ratio=float(np.exp(np.median(y[at:end]) - np.median(y[start:at]))),
        p_value=p_value,
        causes=causes,
        verdict=verdict,
    )
