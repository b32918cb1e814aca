"""The effect of a trial on the trials after it: a distributed-lag model with a decay. Pure.

A trial of an arm adds decay ** (lag - 1) to the exposure of the trial `lag` places later. Where an arm heats the
machine or leaves it with a slower clock, the values of later trials follow their exposure to it. The arm itself is
exposed the least, because it runs once in each round: it seems faster than it is.

Values, levels and exposures go through one filter: the innovations of a random walk that is seen through noise of
equal variance (Harvey 1989, local level model). What it leaves of a drift looks like noise. Levels are those of the
entries, each at each prompt where prompts have rounds enough; residuals are clipped, so that a spike is one odd trial.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.estimation.inversion import Floats
from orchestrator.schedule import AA_LABEL
from orchestrator.statistics.comparability import Words, words
from orchestrator.statistics.observations import ScopeTrials

Integers = npt.NDArray[np.intp]

# The share of an exposure that is left one trial later. 0: the next trial only; 0.9 lasts about ten trials.
DECAYS = (0.0, 0.5, 0.7, 0.8, 0.9)
GAIN = (math.sqrt(5.0) - 1.0) / 2.0  # of the filter in its steady state
CELL_ROUNDS = 4  # with fewer rounds of a prompt, arms and prompts are fitted as a sum
CLIP = 2.5  # of the residuals, in units of their scale
CLIP_STEPS = 4
LEAST_FREEDOM = 3  # residual degrees of freedom
NORMAL_MAD = 0.6745  # median of |x| for standard normal x
RIDGE = 1e-9
NOISE_STEPS = 3
QUIET = 0.25  # the share of the arms that count as quiet
CLEARLY = 2.0  # times their scale: few trials differ by nearly as much


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """All measured trials in time order, replaced attempts and excluded trials too: they leave heat as any other."""

    labels: Words
    rounds: Integers
    groups: Integers  # numbers of the rounds' attempts, growing
    together: int = 1  # rounds whose labels were dealt as one: a square's

    @classmethod
    def read(cls, trials: pd.DataFrame) -> "Ran":
        """Read rows of `trial_flat`."""
        rows = trials[(trials["kind"] == "measured") & trials["round"].notna()]
        whose = ["round", "attempt"]
        rows = rows.drop_duplicates([*whose, "position", "arm", "is_aa"]).sort_values([*whose, "position"])
        is_aa = rows["is_aa"].fillna(value=False).astype(bool)
        return cls(
            labels=words(rows["arm"].astype(object).where(~is_aa, AA_LABEL)),
            rounds=rows["round"].to_numpy(dtype=np.intp),
            groups=np.asarray(rows.groupby(whose, dropna=False).ngroup(), dtype=np.intp),
        )

    @classmethod
    def of(cls, used: ScopeTrials) -> "Ran":
        """The used trials alone."""
        return cls(
            labels=used.labels,
            rounds=used.rounds,
            groups=np.unique(used.rounds, return_inverse=True)[1].astype(np.intp),
            together=used.together,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A scope's n trials among the N that ran.

    The control's second entry heats as the control does, but has a level of its own: where it differs from the first,
    the A/A floor shows it.
    """

    y: Floats  # (n,) log values
    prompts: Integers | None  # (n,)
    places: Integers  # (n,) among those that ran
    entries: tuple[str, ...]  # labels
    names: tuple[str, ...]  # arms
    arm_of: Integers  # each entry's arm
    ran: Integers  # (N,) numbers of the entries
    groups: Integers  # (N,) see `Ran`
    squares: Integers | None  # (N,) whose labels were dealt as one; None: each round's

    @property
    def codes(self) -> Integers:
        """(n,) numbers of the entries."""
        own: Integers = self.ran[self.places]
        return own

    @classmethod
    def find(cls, used: ScopeTrials, ran: Ran, *, control: str) -> "Placed":
        """Place the used trials; of a round's attempts the newest one is used."""
        entries, codes = np.unique(ran.labels.astype(str), return_inverse=True)
        arms = [control if entry == AA_LABEL else str(entry) for entry in entries]
        names = sorted(set(arms))
        newest = {key: place for place, key in enumerate(zip(ran.rounds.tolist(), ran.labels.tolist(), strict=True))}
        keys = zip(used.rounds.tolist(), used.labels.tolist(), strict=True)
        return cls(
            y=used.y,
            prompts=used.prompts,
            places=np.array([newest[key] for key in keys], dtype=np.intp),
            entries=tuple(map(str, entries)),
            names=tuple(names),
            arm_of=np.array([names.index(arm) for arm in arms], dtype=np.intp),
            ran=codes.astype(np.intp),
            groups=ran.groups,
            squares=None if ran.together == 1 else np.unique(ran.rounds // ran.together, return_inverse=True)[1],
        )


def exposures(codes: Integers, arms: int, decay: float) -> Floats:
    """Each trial's exposure to each arm, shape (..., N, arms), from numbers of arms in time order, shape (..., N)."""
    one_hot = indicators(codes, np.arange(arms))
    found = np.zeros_like(one_hot)
    for place in range(1, codes.shape[-1]):
        found[..., place, :] = decay * found[..., place - 1, :] + one_hot[..., place - 1, :]
    return found


def innovations(columns: Floats) -> Floats:
    """Return the part of each column that the filter cannot predict: shape (..., n, m) to (..., n - 1, m)."""
    found: Floats = np.diff(columns, axis=-2)
    for place in range(1, found.shape[-2]):
        found[..., place, :] += (1.0 - GAIN) * found[..., place - 1, :]
    return found


def whitened(columns: Floats, noise: Floats) -> Floats:
    """The innovations in units of their standard deviation, each trial seen through noise of its own: (n - 1, m).

    A Kalman filter: the value after a noisy trial is predicted from the trials before it.

    Args:
        columns: (n, m).
        noise: (n,) variances, in units of the walk's.
    """
    found = np.zeros((len(columns) - 1, columns.shape[1]))
    level, uncertain = columns[0].copy(), noise[0]
    for place in range(1, len(columns)):
        foreseen = uncertain + 1.0
        variance = foreseen + noise[place]
        ahead = columns[place] - level
        level += foreseen / variance * ahead
        uncertain = foreseen * noise[place] / variance
        found[place - 1] = ahead / math.sqrt(variance)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjusted:
    """An effect on the log scale, with the two arms' carry-over removed."""

    decay: float
    effect: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LagModel:
    """A scope's values and levels after the filter, n - 1 rows."""

    placed: Placed
    levels: Floats  # (n - 1, p)
    solved: Floats  # (p, n - 1) from values to the levels' coefficients
    value: Floats  # (n - 1,) residuals clipped
    cells: int  # columns per arm: its prompts, or 1
    heat: tuple[Floats, ...]  # for each decay (n - 1, arms) exposures

    @classmethod
    def fit(cls, placed: Placed) -> "LagModel | None":
        """Fit all trials as equally noisy; None with too few trials to separate noise from levels."""
        return cls._fit(placed, innovations)

    @classmethod
    def fit_by_noise(cls, placed: Placed) -> "LagModel | None":
        """Fit each arm with its own noise, so that a noisy third arm does not affect two quiet ones."""
        noise, found = np.ones(len(placed.names)), cls.fit(placed)
        for _ in range(NOISE_STEPS):
            if found is None:
                break
            noise = _noise_of_arms(found, noise)
            if (noise == 1.0).all():
                break
            found = cls._fit(placed, partial(whitened, noise=noise[placed.arm_of[placed.codes]]))
        return found

    @classmethod
    def _fit(cls, placed: Placed, filtered: Callable[[Floats], Floats]) -> "LagModel | None":
        cells = _cells(placed)
        plain = np.concatenate([_level_columns(placed, cells), np.linspace(0.0, 1.0, len(placed.y))[:, None]], axis=1)
        levels = filtered(plain)
        if len(levels) - np.linalg.matrix_rank(levels) < LEAST_FREEDOM + 2:
            return None
        solved = _solver(levels)
        value = filtered(placed.y[:, None])[:, 0]
        for _ in range(CLIP_STEPS):
            residual = value - levels @ (solved @ value)
            bound = CLIP * max(float(np.median(np.abs(residual))) / NORMAL_MAD, RIDGE)
            value = value - residual + np.clip(residual, -bound, bound)
        arms = len(placed.names)
        heat = tuple(filtered(exposures(placed.arm_of[placed.ran], arms, decay)[placed.places]) for decay in DECAYS)
        return cls(placed=placed, levels=levels, solved=solved, value=value, cells=cells, heat=heat)

    @property
    def residual(self) -> Floats:
        """Return the values less their levels, shape (n - 1,)."""
        found: Floats = self.value - self.levels @ (self.solved @ self.value)
        return found

    def adjusted(self, treatment: str, control: str, *, alpha: float) -> tuple[Adjusted, ...]:
        """Estimate the treatment against the control if both may have carry-over, for each decay."""
        both = [self.placed.names.index(name) for name in (treatment, control)]
        direct = self._weights(both) @ self.solved
        return tuple(
            self._adjusted(decay, heat[:, both], direct, alpha) for decay, heat in zip(DECAYS, self.heat, strict=True)
        )

    def _weights(self, both: list[int]) -> Floats:
        """Return the levels' weights (p,): the first arm less the second, entries and prompts weighing the same."""
        weights = np.zeros(self.levels.shape[1])
        for arm, sign in zip(both, (1.0, -1.0), strict=True):
            own = np.flatnonzero(self.placed.arm_of == arm)
            for entry in own:
                weights[entry * self.cells : (entry + 1) * self.cells] = sign / (len(own) * self.cells)
        return weights

    def _adjusted(self, decay: float, columns: Floats, direct: Floats, alpha: float) -> Adjusted:
        beside = columns - self.levels @ (self.solved @ columns)
        # The exposures to two arms alone mirror each other: the second direction is then no direction.
        left, sizes, _ = np.linalg.svd(beside, full_matrices=False)
        left = left[:, sizes > 1e-3 * max(float(sizes.max()), RIDGE)]
        span = left * (left.T @ self.value)
        shares = _through(columns, beside, direct, left)
        effect = float(direct @ self.value - shares @ (left.T @ self.value))
        rest = self.residual - span.sum(axis=1)
        freedom = max(len(rest) - self.levels.shape[1] - left.shape[1], LEAST_FREEDOM)
        variance = float(rest @ rest) / freedom * (float(direct @ direct) + float(shares @ shares))
        reach = student(1.0 - alpha / 2.0, freedom) * math.sqrt(variance)
        return Adjusted(decay=decay, effect=effect, low=effect - reach, high=effect + reach)


def _noise_of_arms(model: LagModel, before: Floats) -> Floats:
    """Each arm's noise, in variances of the quiet ones: 1 where it is not clearly noisier than they are."""
    sizes, arms = np.abs(model.residual), model.placed.arm_of[model.placed.codes[1:]]
    scales = np.array([np.median(sizes[arms == arm]) if (arms == arm).any() else 0.0 for arm in range(len(before))])
    scales *= np.sqrt(before)
    quiet = max(float(np.quantile(scales, QUIET, method="higher")), RIDGE)
    found: Floats = np.maximum(scales / (CLEARLY * quiet), 1.0) ** 2
    return found


def _through(columns: Floats, beside: Floats, direct: Floats, left: Floats) -> Floats:
    """Return how much of the direct contrast each orthonormal direction of the exposures explains."""
    seen = direct @ columns
    coefficients = np.linalg.lstsq(beside, left, rcond=1e-6)[0]
    found: Floats = seen @ coefficients
    return found


def _cells(placed: Placed) -> int:
    """Return the columns per entry: its prompts if it has enough rounds of each, else 1."""
    if placed.prompts is None:
        return 1
    prompts = int(placed.prompts.max()) + 1
    counts = np.bincount(placed.codes * prompts + placed.prompts, minlength=len(placed.entries) * prompts)
    return prompts if counts.min() >= CELL_ROUNDS else 1


def _level_columns(placed: Placed, cells: int) -> Floats:
    """Return the level indicators of each trial (n, p); an entry's columns are adjacent."""
    if placed.prompts is not None and cells > 1:
        return indicators(placed.codes * cells + placed.prompts, np.arange(len(placed.entries) * cells))
    own = indicators(placed.codes, np.arange(len(placed.entries)))
    if placed.prompts is None:
        return own
    return np.concatenate([own, indicators(placed.prompts, np.arange(1, placed.prompts.max() + 1))], axis=1)


def indicators(codes: Integers, groups: Integers) -> Floats:
    """Return 1 where a code is the group's, else 0: shape (..., groups)."""
    found: Floats = (codes[..., None] == groups).astype(np.float64)
    return found


def _solver(columns: Floats) -> Floats:
    """Return the least-squares solution as a matrix (p, n), without directions that no row determines."""
    gram = columns.T @ columns
    found: Floats = np.linalg.pinv(gram, rcond=1e-9, hermitian=True) @ columns.T
    return found


def student(share: float, freedom: int) -> float:
    """The quantile of Student's t (Abramowitz and Stegun 26.7.5), to 1 % from 3 degrees of freedom at 97.5 %."""
    z = NormalDist().inv_cdf(share)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(sum(term / float(freedom) ** power for power, term in enumerate(terms)))
