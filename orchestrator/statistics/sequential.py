"""A sequential test by betting: it may look after every round and stop at any time.

In every round the order was random, so if the treatment is `theta` (log) times the control, then, whatever the two
values are, the sign of the round's difference less theta is a fair coin. A gambler who bets on these coins, each stake
chosen before the coin is seen, doubles money only by luck: the chance that the wealth ever reaches 1 / alpha is at most
alpha (Ville's inequality; Ramdas et al. 2023, game-theoretic statistics). So the wealth may be looked at after any
round, and the effects against which it never reached 1 / alpha are a confidence sequence.

With several prompts the coin is a whole pass over them: the sign of the mean of its rounds' differences. A round of one
prompt is no evidence on the mean over all of them, whatever the order in which prompts are dealt; rounds of a pass that
has not ended do not count yet.

Two gamblers share the money, one bets on faster, one on slower. A stake may depend on the size of the difference,
which the coin does not touch, and on earlier rounds. It is Kelly's for a shift delta in normal noise sigma, both
estimated from earlier rounds: tanh(delta |d| / sigma**2).
"""

import math
from dataclasses import dataclass

import numpy as np

from orchestrator.effects import Effect, Integers, effect_from
from orchestrator.estimation.inversion import Floats, interval

FIRST_STAKES = (0.7, 0.8)  # before anything is known of the noise
LARGEST_STAKE = 0.95
LEAST_SHIFT = 0.5  # in sigma: below it a gambler would never begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The decision after these rounds; it is valid however often earlier rounds were looked at."""

    effect: Effect
    decision: str | None  # supported | no_difference | None: go on


def look(contrasts: Floats, *, alpha: float, margin: float) -> Look:
    """Decide after the rounds so far.

    Args:
        contrasts: treatment less control of each complete round in order, on the log scale.
        alpha: chance that a decision at any time is wrong.
        margin: as the audit's: ratios inside it are no difference.

    Raises:
        ValueError: no rounds.
    """
    effect = sequential_effect(contrasts, alpha=alpha)
    decision = None
    if effect.ci_low > 1 - margin and effect.ci_high < 1 / (1 - margin):
        decision = "no_difference"
    elif not effect.ci_low <= 1 <= effect.ci_high:
        decision = "supported"
    return Look(effect=effect, decision=decision)


def sequential_effect(rounds: Floats, *, alpha: float, prompts: Integers | None = None) -> Effect:
    """The median effect of a pass with the interval and the p-value that hold at any time of stopping.

    Args:
        rounds: treatment less control of each complete round in order, on the log scale.
        prompts: each round's prompt, numbered from 0 without gaps; None if all rounds hold the same. Before the
            first pass has ended the interval is open and p is 1.

    Raises:
        ValueError: no rounds.
    """
    if not len(rounds):
        raise ValueError("no complete round yet: there is nothing to look at")
    passes = whole_passes(rounds, np.zeros(len(rounds), dtype=np.intp) if prompts is None else prompts)
    if not len(passes):
        middle = float(np.median(rounds))
        return effect_from(rounds, root=middle, low=-math.inf, high=math.inf, p_value=1.0, alpha=alpha, typical=middle)
    contrasts: Floats = passes.mean(axis=1)

    def p(effects: Floats) -> Floats:
        return 1.0 / largest_wealth(contrasts, effects)

    p_value = float(p(np.zeros(1))[0])
    root = float(np.median(contrasts))
    low, high = -math.inf, math.inf
    if float(p(np.array([root]))[0]) > alpha:
        spread = float(np.median(np.abs(contrasts - root)))
        reach = max(4.0 * spread / math.sqrt(len(contrasts)), 1e-6)
        low, high = interval(p, root=root, p_of_none=p_value, alpha=alpha, reach=reach)
    return effect_from(passes.ravel(), root=root, low=low, high=high, p_value=p_value, alpha=alpha, typical=root)


def whole_passes(rounds: Floats, prompts: Integers) -> Floats:
    """The rounds of each whole pass, shape (passes, prompts): the first round of each prompt is of the first pass."""
    of_prompt = [rounds[prompts == number] for number in range(int(prompts.max(initial=0)) + 1)]
    count = min(len(own) for own in of_prompt)
    return np.stack([own[:count] for own in of_prompt], axis=1)


def largest_wealth(contrasts: Floats, effects: Floats) -> Floats:
    """Return the largest wealth from betting 1 against each candidate effect, shape (len(effects),); at least 1."""
    wealth = np.full((2, len(effects)), 0.5)
    largest = np.ones(len(effects))
    side = np.array([[1.0], [-1.0]])
    for index, contrast in enumerate(contrasts):
        excess = contrast - effects
        stake = _stakes(contrasts[:index], effects, np.abs(excess), side)
        wealth = wealth * (1.0 + side * stake * np.sign(excess))
        largest = np.maximum(largest, wealth.sum(axis=0))
    return largest


def _stakes(earlier: Floats, effects: Floats, sizes: Floats, side: Floats) -> Floats:
    """Return the shares of their wealth that the two gamblers bet, shape (2, len(effects))."""
    if len(earlier) < len(FIRST_STAKES):
        return np.full((2, len(effects)), FIRST_STAKES[len(earlier)])
    middle = float(np.median(earlier))
    # Few rounds understate their spread.
    sigma = 1.5 * float(np.median(np.abs(earlier - middle))) * (1 + 2 / len(earlier)) + 1e-9
    shift = np.maximum(side * (middle - effects), LEAST_SHIFT * sigma)
    stakes: Floats = np.minimum(np.tanh(shift * sizes / sigma**2), LARGEST_STAKE)
    return stakes
