"""Two factors at once, such as speculation and quantisation: the effect of each, and whether they compose.

On the log scale, with arms named by their two levels (base levels first), the effect of both together against the
product of the two alone is the interaction

    exp(y_11 - y_10 - y_01 + y_00)

so a composition of 0.92 means that both together reach 92 % of the two's product. The same holds for each pair of
levels in a larger table.

Each round gives one such contrast. Its error is as likely to be positive as negative, whatever the drift: exchanging
the two levels of a factor deals the same four slots anew and turns the sign. So the rounds' signs are dealt, as for two
arms. Drift is taken out first along the means of the rounds, which no such exchange changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from orchestrator.effects import Effect, Series, effect_of, equal_weights
from orchestrator.estimation.inversion import Floats
from orchestrator.statistics.observations import ScopeTrials


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """One level of each factor against the base levels. Ratios are of the metric."""

    first: str
    second: str
    first_alone: Effect  # with the second factor at its base
    second_alone: Effect
    both: Effect
    composition: Effect  # both over the product of the two alone: 1 when they compose


@dataclass(frozen=True, slots=True, kw_only=True)
class Factorial:
    """A table of arms by two factors."""

    base: tuple[str, str]
    main_first: Mapping[str, Effect]  # by level: its mean effect over the second factor's levels
    main_second: Mapping[str, Effect]
    compositions: tuple[Composition, ...]


def factorial(
    used: ScopeTrials, *, levels: Mapping[str, tuple[str, str]], base: tuple[str, str], alpha: float, seed: int
) -> Factorial:
    """Main effects and compositions of a complete table.

    Args:
        levels: each arm's level of the first and of the second factor.
        base: the levels that the others are compared with.

    Raises:
        ValueError: a cell of the table has no arm, two arms share one, or no round holds all arms of a contrast.
    """
    arm_of = {cell: arm for arm, cell in levels.items()}
    if len(arm_of) < len(levels):
        raise ValueError("two arms have the same levels of both factors: name what else differs")
    firsts, seconds = (list(dict.fromkeys(cell[side] for cell in levels.values())) for side in (0, 1))
    if missing := [(a, b) for a in firsts for b in seconds if (a, b) not in arm_of]:
        raise ValueError(f"the table has no arm for {missing[0]}: a composition needs all combinations")
    if base not in arm_of:
        raise ValueError(f"base {base}: no arm has these levels")

    def effect(weights: Mapping[tuple[str, str], float]) -> Effect:
        return contrast_effect(used, {arm_of[cell]: w for cell, w in weights.items()}, alpha=alpha, seed=seed)

    a0, b0 = base
    share_a, share_b = 1 / len(firsts), 1 / len(seconds)
    return Factorial(
        base=base,
        main_first={
            a: effect({(a, b): share_b for b in seconds} | {(a0, b): -share_b for b in seconds})
            for a in firsts
            if a != a0
        },
        main_second={
            b: effect({(a, b): share_a for a in firsts} | {(a, b0): -share_a for a in firsts})
            for b in seconds
            if b != b0
        },
        compositions=tuple(
            Composition(
                first=a,
                second=b,
                first_alone=effect({(a, b0): 1.0, base: -1.0}),
                second_alone=effect({(a0, b): 1.0, base: -1.0}),
                both=effect({(a, b): 1.0, base: -1.0}),
                composition=effect({(a, b): 1.0, (a, b0): -1.0, (a0, b): -1.0, base: 1.0}),
            )
            for a in firsts
            for b in seconds
            if a != a0 and b != b0
        ),
    )


def contrast_effect(used: ScopeTrials, weights: Mapping[str, float], *, alpha: float, seed: int) -> Effect:
    """exp of the weighted sum of the arms' levels, with the interval and the test of "1".

    The test needs weights that some exchange of the arms turns into their negatives, as all contrasts of this module
    are.

    Raises:
        ValueError: no round holds all the arms.
    """
    series = _series(used, weights)
    if series is None:
        raise ValueError(f"no round holds all of {', '.join(weights)}: nothing to compare")
    return effect_of(series, alpha=alpha, seed=seed)


def _series(used: ScopeTrials, weights: Mapping[str, float]) -> Series | None:
    """Return the weighted sum of each round that holds all the arms, less drift, or None without such a round."""
    numbers, row = np.unique(used.rounds, return_inverse=True)
    weight = np.array([weights.get(str(label), 0.0) for label in used.labels])
    whole = np.bincount(row, weights=weight != 0.0, minlength=len(numbers)) == len(weights)
    if not whole.any():
        return None
    raw, flat = (np.bincount(row, weights=weight * y, minlength=len(numbers)) for y in (used.y, used.y - _drift(used)))
    strata = np.zeros(int(whole.sum()), dtype=np.intp)
    if used.prompts is not None:
        prompt = np.zeros(len(numbers), dtype=np.intp)
        prompt[row] = used.prompts
        strata = np.unique(prompt[whole], return_inverse=True)[1].astype(np.intp)
    return Series(
        contrasts=flat[whole], raw=raw[whole], weights=equal_weights(strata), strata=strata, numbers=numbers[whole]
    )


def _drift(used: ScopeTrials) -> Floats:
    """Interpolate the drift at every trial linearly between the means of whole rounds.

    Whole rounds hold the same arms, so their means differ by drift, by prompt and by noise, and by nothing that
    depends on which arm was where.
    """
    numbers, row, sizes = np.unique(used.rounds, return_inverse=True, return_counts=True)
    place = np.arange(len(used.y), dtype=np.float64)
    centre = np.bincount(row, weights=place) / sizes
    mean = np.bincount(row, weights=used.y) / sizes
    if used.prompts is not None:
        prompt = np.zeros(len(numbers), dtype=np.intp)
        prompt[row] = used.prompts
        mean = mean - (np.bincount(prompt, weights=mean) / np.maximum(np.bincount(prompt), 1))[prompt]
    whole = sizes == sizes.max()
    if whole.sum() < 2:
        return np.zeros(len(used.y))
    drift: Floats = np.interp(place, centre[whole], mean[whole])
    ends = np.array([0, -1])
    slopes = np.diff(mean[whole])[ends] / np.diff(centre[whole])[ends]
    first, last = centre[whole][ends]
    drift += slopes[0] * np.minimum(place - first, 0.0) + slopes[1] * np.maximum(place - last, 0.0)
    return drift
