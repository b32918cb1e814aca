"""An arm over time: changes of its speed, their times, and what changed with them. Pure.

A point is a run's median. Points are split where the fit of two levels is best (least squares on the log scale, at
least ten points each side), and a split counts when at most 1 in 100 histories without a change, made of the same
points, can be split as well. Only the parts of a split that counts are looked at further, so that noise alone gives a
false alarm in about 1 history of 100, whatever its length.

A machine's evenings resemble the evenings before, so points of an unchanged arm wander. The histories without a change
wander alike: with r the correlation of neighbouring points, what is new in each point, x_t - r x_(t-1), is put into a
random order, and the history is made of it again. r comes from the spread of differences, Var(x_(t+2) - x_t) =
(1 + r) Var(x_(t+1) - x_t) for a first-order autoregression, in which a change of level is two large values that are
left out; one standard error is added, because an r that is too small is a false alarm. Shares of histories with a
false alarm are in docs/design/judge.md: at most 1 % up to r = 0.6; random orders of the points themselves gave 22 % at
r = 0.4 and 60 % at 0.6. The price: in 24 points a step of twice the noise is found in half of the histories.

A level that moves slowly for months is not such wandering; a change is then rightly reported, and its cause is not in
the versions.
"""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

MIN_POINTS = 10  # on each side of a change
FALSE_ALARMS = 0.01
ORDERS = 999  # histories without a change; the smallest p-value is 1 / (ORDERS + 1)
MOST_CORRELATED = 0.95  # above it a history would wander without end
LARGEST_STEP = 4.0  # in units of the spread: a larger difference between neighbours is a change or an odd run
NORMAL_MAD = 0.6745  # median of |x| for standard normal x

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run of the arm."""

    run_id: str
    at: dt.datetime
    value: float  # the metric's median, > 0
    versions: Mapping[str, str]  # mlx, mlx_lm, engine, os_build, host, checkpoint: what may explain a change
    packages: Mapping[str, str] = field(default_factory=dict)  # every recorded distribution, by name
    environment: str | None = None  # the declared environment; None: whatever was installed


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A package whose version differs between two runs."""

    package: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.package} {self.before} -> {self.after}"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One configuration on one machine over time."""

    name: str
    arm: str  # its name in the newest run
    points: tuple[Point, ...]  # in time order
    changes: tuple[Change, ...]
    proofs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # commands, by the run after a change


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


def moved_packages(before: Point, after: Point) -> tuple[Moved, ...]:
    """The packages that both runs recorded and whose versions differ."""
    return tuple(
        Moved(package=name, before=before.packages[name], after=after.packages[name])
        for name in sorted(before.packages.keys() & after.packages.keys())
        if before.packages[name] != after.packages[name]
    )


def undeclared_at(change: Change, points: Sequence[Point]) -> tuple[Moved, ...]:
    """The packages that moved where the level changed although no arm declared them: what a bisection can prove."""
    by_run = {point.run_id: point for point in points}
    before, after = by_run[change.before], by_run[change.after]
    if before.environment is not None or after.environment is not None:
        return ()
    return moved_packages(before, after)


def _splits(y: Floats, offset: int, *, rng: np.random.Generator) -> list[tuple[int, float]]:
    """Return the splits of this part and of its parts, with the p-value of each, in order."""
    if len(y) < 2 * MIN_POINTS:
        return []
    at = MIN_POINTS + int(np.argmax(_gains(y[None, :])))
    p_value = _p_value(y, rng)
    if p_value > FALSE_ALARMS:
        return []
    left = _splits(y[:at], offset, rng=rng)
    right = _splits(y[at:], offset + at, rng=rng)
    return [*left, (offset + at, p_value), *right]


def _p_value(y: Floats, rng: np.random.Generator) -> float:
    """The share of histories without a change whose best split is at least as good, the observed one counted in."""
    best = _gains(np.vstack([y, _unchanged(y, rng)])).max(axis=1)
    return float(np.mean(best >= best[0] * (1 - 1e-12)))


def _unchanged(y: Floats, rng: np.random.Generator) -> Floats:
    """Draw histories that wander like this one but have no change, shape (ORDERS, n)."""
    correlation = neighbours_correlation(y)
    spread = math.sqrt(1 - correlation**2)
    centred = y - np.median(y)
    news = np.concatenate([centred[:1] * spread, centred[1:] - correlation * centred[:-1]])
    made: Floats = rng.permuted(np.tile(news, (ORDERS, 1)), axis=1)
    made[:, 0] /= spread
    for index in range(1, len(y)):
        made[:, index] += correlation * made[:, index - 1]
    return made


def neighbours_correlation(y: Floats) -> float:
    """The correlation of neighbouring points plus one standard error, from 0 to 0.95; see the module's text."""
    near, far = _spread(np.diff(y)), _spread(y[2:] - y[:-2])
    found = far / near - 1 if near > 0 else 0.0
    return float(np.clip(found + 1 / math.sqrt(len(y)), 0, MOST_CORRELATED))


def _spread(differences: Floats) -> float:
    """Return the variance of the differences, without the few that are far from the others."""
    sizes = np.abs(differences - np.median(differences))
    kept = sizes <= LARGEST_STEP * float(np.median(sizes)) / NORMAL_MAD
    return float(np.var(differences[kept]))


def _gains(rows: Floats) -> Floats:
    """The drop of the sum of squares that a split brings, for each row and each place of a split, first to last."""
    n = rows.shape[1]
    sums = np.cumsum(rows - rows.mean(axis=1, keepdims=True), axis=1)[:, MIN_POINTS - 1 : n - MIN_POINTS]
    left = np.arange(MIN_POINTS, n - MIN_POINTS + 1)
    gains: Floats = sums**2 * (1 / left + 1 / (n - left))
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
