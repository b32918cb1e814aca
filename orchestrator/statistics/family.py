"""Many arms at once: how often would the largest of so many differences look like this if there were none?

Each comparison with the control has its own mean over its own standard error, so that a noisy arm says nothing about a
quiet one. The largest of them is held against the largest when the signs of all the rounds' contrasts are dealt anew, a
round's contrasts together (max-T: Westfall and Young 1993). Arms found to differ are taken out and the rest is tested
again (step-down: Romano and Wolf 2005), so that one large effect hides no small one.

For one comparison an exchange of its two labels is such a sign, and the test is exact. For several at once no exchange
of labels turns all signs: the family's error is right asymptotically, and by simulation from six rounds on. The price
is far less than Bonferroni's, which six rounds could not pay for two treatments.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from orchestrator.effects import MOST_EXCHANGED, Exchanged, Series, exchanges
from orchestrator.schedule import minimum_rounds
from orchestrator.statistics.inversion import Floats
from orchestrator.statistics.observations import ScopeTrials

DEALS = 2_000  # of the signs, the observed ones among them


def family_p_values(
    used: ScopeTrials, *, treatments: Sequence[str], control: str, alpha: float, seed: int
) -> dict[str, float]:
    """Each treatment's p-value for the whole family of comparisons with the control.

    A treatment without a round in common with the control is left out.
    """
    series = {name: one for name in treatments if (one := used.pair(name, control)) is not None}
    return step_down(series, alpha=alpha, seed=seed)


def step_down(series: Mapping[str, Series], *, alpha: float, seed: int) -> dict[str, float]:
    """Each comparison's p-value for the family of those that have rounds enough to be found at all.

    One round has no spread: its mean over its standard error would be beyond that of every other comparison.
    """
    series = {name: one for name, one in series.items() if one.rounds >= minimum_rounds(alpha)}
    if not series:
        return {}
    numbers = np.unique(np.concatenate([one.numbers for one in series.values()]))
    signs = _signs(len(numbers), seed)
    sizes = {name: _sizes(one, signs[:, np.searchsorted(numbers, one.numbers)]) for name, one in series.items()}
    found: dict[str, float] = {}
    least = 0.0
    while left := [name for name in sizes if name not in found]:
        largest = np.max([sizes[name] for name in left], axis=0)
        p_values = {name: max(least, float(np.mean(largest >= sizes[name][0] * (1 - 1e-9)))) for name in left}
        decided = {name: p for name, p in p_values.items() if p <= alpha}
        found |= decided or p_values
        least = max(found.values())
    return found


def adjusted(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's p-values for the family: valid for any single ones, those that hold at any time among them."""
    least, found = 0.0, {}
    ranked = sorted(p_values, key=lambda name: p_values[name])
    for rank, name in enumerate(ranked):
        least = max(least, min(1.0, (len(ranked) - rank) * p_values[name]))
        found[name] = least
    return found


def best_arms(
    *,
    ratios: Mapping[str, float],
    lower_is_better: bool,
    alpha: float,
    p_values: Callable[[str, Sequence[str]], Mapping[str, float]],
) -> tuple[str, ...]:
    """The arms not distinguishable from the best, the best first, the others by their ratios.

    An arm is left out when it differs from the best in the family of all comparisons with the best. The truly best arm
    is among those kept with a chance of at least 1 - alpha (Hsu 1984, multiple comparisons with the best).

    Args:
        ratios: of every arm against the same one, that one included with 1.
        p_values: of the family of comparisons of the first argument with all of the second.
    """
    ranked = sorted(ratios, key=lambda arm: ratios[arm], reverse=not lower_is_better)
    best, *others = ranked
    p = p_values(best, others)
    return (best, *(arm for arm in others if p.get(arm, 1.0) > alpha))


def _signs(rounds: int, seed: int) -> Floats:
    """Signs of the rounds, shape (deals, rounds); see `orchestrator.effects.exchanges`."""
    signs = exchanges(rounds, seed)[:DEALS] if rounds > 11 else exchanges(rounds, seed)
    groups = np.arange(rounds) * signs.shape[1] // rounds if rounds > MOST_EXCHANGED else np.arange(rounds)
    return signs[:, groups]


def _sizes(series: Series, signs: Floats) -> Floats:
    """|mean| over its standard error within strata, in each deal of the signs."""
    return Exchanged.of(series, signs, studentised=True).sizes(0.0)
