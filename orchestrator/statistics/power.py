"""Planning: which effect a design can detect, by simulating it with the noise and the drift of this machine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.effects import exchanges, make_series, p_values
from orchestrator.schedule import minimum_rounds
from orchestrator.statistics.drift import Setting
from orchestrator.statistics.inversion import Floats
from orchestrator.statistics.levels import fit_levels
from orchestrator.statistics.observations import ScopeTrials
from orchestrator.statistics.simulate import simulated_runs

# Stated wherever it is used for want of a history: a laptop that loses a sixth of its speed over the run.
ASSUMED = Setting(profile="linear", size=-0.17, noise=0.01)

GRID = np.exp(np.geomspace(0.002, 0.7, 36)) - 1  # relative effects, 0.2 % to 100 %
MOST_ROUNDS = 200
MOST_EXCHANGES = 1_000  # enough to plan with; a sample of the exchanges is as exact as all of them, the own one in it
STEP_MEDIAN = 1.137  # median of |difference of two| t variables with 4 degrees of freedom, in scales


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """What a design sees."""

    rounds: int
    effect: float | None  # the smallest relative effect found with the power; None: none up to twofold
    power: float
    setting: Setting


def smallest_effect(
    setting: Setting, *, arms: int, rounds: int, alpha: float = 0.05, power: float = 0.8, runs: int = 200, seed: int = 0
) -> Detectable:
    """The smallest effect that the audit's test finds with the given power, between two arms among `arms`."""
    effect = None
    if rounds >= minimum_rounds(alpha):
        found = power_curve(setting, arms=arms, rounds=rounds, alpha=alpha, runs=runs, seed=seed)
        effect = _crossing(found, power)
    return Detectable(rounds=rounds, effect=effect, power=power, setting=setting)


def rounds_for(
    setting: Setting,
    *,
    arms: int,
    effect: float,
    alpha: float = 0.05,
    power: float = 0.8,
    runs: int = 200,
    seed: int = 0,
) -> int | None:
    """The fewest rounds with which the relative effect is found with the given power; None: more than 200."""
    low, high = minimum_rounds(alpha) - 1, minimum_rounds(alpha)

    def enough(rounds: int) -> bool:
        curve = power_curve(setting, arms=arms, rounds=rounds, effects=[effect], alpha=alpha, runs=runs, seed=seed)
        return bool(curve[0] >= power)

    while not enough(high):
        if high >= MOST_ROUNDS:
            return None
        low, high = high, min(2 * high, MOST_ROUNDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def power_curve(
    setting: Setting,
    *,
    arms: int,
    rounds: int,
    alpha: float,
    runs: int,
    seed: int,
    effects: Sequence[float] | Floats = GRID,
) -> Floats:
    """The share of simulated runs in which each relative effect is found.

    Testing runs without an effect for "the effect is -e" is the same as testing runs with e for "none", so one set of
    runs serves all effects.
    """
    candidates = -np.log1p(np.asarray(effects, dtype=np.float64))
    signs = exchanges(rounds, seed)
    if len(signs) > MOST_EXCHANGES:
        rng = np.random.Generator(np.random.PCG64(seed))
        signs = signs[np.append(0, rng.choice(np.arange(1, len(signs)), MOST_EXCHANGES - 1, replace=False))]
    found = [
        p_values(make_series(run.y, rounds=run.rounds, arms=run.arms), candidates, signs) <= alpha
        for run in simulated_runs(setting, arms=arms, rounds=rounds, effects=(), runs=runs, seed=seed)
    ]
    shares: Floats = np.mean(found, axis=0)
    return shares


def observed_setting(used: ScopeTrials) -> Setting:
    """The noise and the drift of an earlier run, to plan the next one on the same machine with.

    Noise is what neighbouring trials differ by when levels are taken out; drift is the way from the first to the last
    sixth of the trials.
    """
    codes = np.unique(used.labels.astype(str), return_inverse=True)[1]
    fit = fit_levels(codes, used.rounds, used.prompts)
    steps = np.diff(used.y)
    residual = fit.residuals(steps[:, None])[:, 0]
    noise = float(np.median(np.abs(residual))) / STEP_MEDIAN
    level = np.zeros(codes.max() + 1)
    for code in range(len(level)):
        level[code] = np.median(used.y[codes == code])
    path = used.y - level[codes]
    sixth = max(len(path) // 6, 1)
    drift = float(np.expm1(np.median(path[-sixth:]) - np.median(path[:sixth])))
    return Setting(profile="linear", size=drift, noise=noise)


def _crossing(shares: Floats, power: float) -> float | None:
    """Where the curve first reaches the power, between two points of the grid."""
    reached = np.flatnonzero(np.minimum.accumulate(shares[::-1])[::-1] >= power)
    if not len(reached):
        return None
    index = int(reached[0])
    if index == 0:
        return float(GRID[0])
    before, at = shares[index - 1], shares[index]
    share = (power - before) / (at - before) if at > before else 1.0
    logs = np.log(GRID[index - 1 : index + 1])
    return float(np.exp(logs[0] + share * (logs[1] - logs[0])))
