"""Planning: the effect that a design can detect ("supported") with this machine's noise and drift."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from orchestrator.estimation.levels import fit_levels
from orchestrator.schedule import minimum_rounds
from orchestrator.statistics.drift import Setting
from orchestrator.statistics.observations import ScopeTrials
from orchestrator.statistics.planned import Layout, supported_share

MOST_ROUNDS = 200
LEAST_EFFECT, LARGEST_EFFECT = 0.002, 1.0  # relative ones that a plan names
REACH = 8.0  # of an effect, within which a simulation is asked for the one that it finds
BISECTIONS = 9
NEAR = 0.2  # logarithm of effects: simulations within it count for the planned rounds
MAKING_UP = 1.25  # times the rounds that are enough without a margin
FIRST_GUESS = 6.6  # smallest effect of one treatment in units of the noise, for one round
STEP_MEDIAN = 1.137  # median of |difference of two| t variables with 4 degrees of freedom, in scales


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """The effect that a design can detect."""

    rounds: int
    effect: float | None  # the smallest relative effect supported with the power; None: none up to twofold
    power: float
    setting: Setting


def smallest_effect(
    setting: Setting,
    *,
    arms: int,
    rounds: int,
    aa: bool = True,
    alpha: float = 0.05,
    margin: float = 0.02,
    power: float = 0.8,
) -> Detectable:
    """The smallest effect of one treatment whose verdict is "supported" with the given power.

    Args:
        arms: entries of a round, the control's second one included where `aa`.
        margin: of equivalence; a difference within it counts as none.
    """
    effect = None
    if rounds >= minimum_rounds(alpha):
        layout = Layout(setting=setting, arms=arms, aa=aa, alpha=alpha)

        def enough(effect: float) -> bool:
            return supported_share(layout, rounds=rounds, effect=effect, margin=margin) >= power

        effect = _least(enough, LEAST_EFFECT, LARGEST_EFFECT)
    return Detectable(rounds=rounds, effect=effect, power=power, setting=setting)


def rounds_for(
    setting: Setting,
    *,
    arms: int,
    effect: float,
    aa: bool = True,
    alpha: float = 0.05,
    margin: float = 0.02,
    power: float = 0.8,
) -> int | None:
    """The fewest rounds with which the verdict on a treatment with the relative effect is "supported" with the power.

    The smallest effect supported falls with the square root of the rounds, nearly: so each simulated number of rounds
    predicts the number needed, which is simulated next.

    Returns:
        None if more than 200 are needed, or if the margin turns the effect into "no difference" before.
    """
    layout = Layout(setting=setting, arms=arms, aa=aa, alpha=alpha)
    rounds = _rounds_without_margin(layout, effect, power)
    if rounds is None:
        return None
    # Near the margin some runs are called "no difference": a few rounds more may make up for them.
    for more in range(rounds, min(math.ceil(MAKING_UP * rounds), MOST_ROUNDS) + 1):
        if supported_share(layout, rounds=more, effect=effect, margin=margin) >= power:
            return more
    return None


def _rounds_without_margin(layout: Layout, effect: float, power: float) -> int | None:
    fewest = minimum_rounds(layout.alpha)
    guess = layout.lost + (FIRST_GUESS * layout.setting.noise / effect) ** 2
    foretold: dict[int, float] = {}  # by the rounds simulated
    while True:
        rounds = round(np.clip(guess, fewest, MOST_ROUNDS))
        simulated = layout.simulated_rounds(rounds)
        if simulated in foretold:
            break
        foretold[simulated] = guess = _foretold(layout, rounds, effect, power)
    # Two grid points may each predict the other: both predictions are partly luck.
    near = [one for at, one in foretold.items() if abs(math.log(layout.scale(guess, simulated=at))) < NEAR]
    needed = max(math.ceil(math.exp(np.mean(np.log(near or [guess])))), fewest)
    return needed if needed <= MOST_ROUNDS else None


def _foretold(layout: Layout, rounds: int, effect: float, power: float) -> float:
    """Predict the rounds needed from a simulation of about `rounds`; half as many again if it finds no effect."""

    def enough(effect: float) -> bool:
        return supported_share(layout, rounds=rounds, effect=effect, margin=0.0) >= power

    least = _least(enough, effect / REACH, min(effect * REACH, LARGEST_EFFECT))
    if least is None:
        return 1.5 * rounds
    return layout.lost + (rounds - layout.lost) * (math.log1p(least) / math.log1p(effect)) ** 2


def _least(enough: Callable[[float], bool], low: float, high: float) -> float | None:
    """Return the least relative effect between the two that is enough, or None if not even the larger one is."""
    if not enough(high):
        return None
    if enough(low):
        return low
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


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
