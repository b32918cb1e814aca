"""Many arms at once: how likely the largest of their differences is if there is none.

Each comparison with the control has its own mean over its own standard error, so that a noisy arm does not affect
a quiet one. The largest of them is compared with the largest when the signs of all rounds' contrasts are redrawn, a
round's contrasts together (max-T: Westfall and Young 1993). Arms found to differ are taken out and the rest is tested
again (step-down: Romano and Wolf 2005), so that one large effect hides no small one.

For one comparison an exchange of its two labels is such a sign, and the test is exact. For several at once no exchange
of labels turns all signs: the family's error is right asymptotically, and by simulation from six rounds on. The price
is far less than Bonferroni's, which six rounds could not pay for two treatments.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from orchestrator.effects import MOST_EXCHANGED, Exchanged, Series, exchanges, spread
from orchestrator.estimation.inversion import Floats
from orchestrator.schedule import minimum_rounds
from orchestrator.statistics.observations import ScopeTrials

Name = TypeVar("Name", bound=Hashable)  # of a comparison

DEALS = 2_000  # of the signs, the observed ones among them


def family_p_values(
    used: ScopeTrials, *, treatments: Sequence[str], control: str, alpha: float, seed: int
) -> dict[str, float]:
    """Each treatment's p-value for the whole family of comparisons with the control.

    A treatment without a round in common with the control is left out.
    """
    series = {name: one for name in treatments if (one := used.pair(name, control)) is not None}
    return step_down(series, alpha=alpha, seed=seed)


def step_down(series: Mapping[Name, Series], *, alpha: float, seed: int) -> dict[Name, float]:
    """Return each comparison's p-value for the family of those with enough rounds to be found at all.

    One round has no spread: its mean over its standard error would be beyond that of every other comparison.
    """
    series = {name: one for name, one in series.items() if one.rounds >= minimum_rounds(alpha)}
    if not series:
        return {}
    numbers = np.unique(np.concatenate([one.numbers for one in series.values()]))
    # A square's rounds turn together.
    units = np.unique(numbers // next(iter(series.values())).together, return_inverse=True)[1]
    signs = spread(_signs(int(units.max()) + 1, seed), units)
    sizes = {name: _sizes(one, signs[:, np.searchsorted(numbers, one.numbers)]) for name, one in series.items()}
    found: dict[Name, float] = {}
    least = 0.0
    while left := [name for name in sizes if name not in found]:
        largest = np.max([sizes[name] for name in left], axis=0)
        p_values = {name: max(least, float(np.mean(largest >= sizes[name][0] * (1 - 1e-9)))) for name in left}
        decided = {name: p for name, p in p_values.items() if p <= alpha}
        found |= decided or p_values
        least = max(found.values())
    return found


def adjusted(p_values: Mapping[Name, float]) -> dict[Name, float]:
    """Holm's p-values for the family: valid for any single ones, those that hold at any time among them."""
    least = 0.0
    found: dict[Name, float] = {}
    ranked = sorted(p_values, key=lambda name: p_values[name])
    for rank, name in enumerate(ranked):
        least = max(least, min(1.0, (len(ranked) - rank) * p_values[name]))
        found[name] = least
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The arm with the best ratio in a scope, and the others beside it."""

    best: str
    others: tuple[str, ...]  # the better ones first
    series: Mapping[str, Series]  # each arm against the best, for arms that share rounds with it


def standing(used: ScopeTrials, *, ratios: Mapping[str, float], lower_is_better: bool) -> Standing:
    """Compare the arms with the best of them.

    Args:
        ratios: the ratio of every arm to the same arm, which is included with 1.
    """
    best, *others = sorted(ratios, key=lambda arm: ratios[arm], reverse=not lower_is_better)
    series = {arm: one for arm in others if (one := used.pair(arm, best)) is not None}
    return Standing(best=best, others=tuple(others), series=series)


def _signs(rounds: int, seed: int) -> Floats:
    """Signs of the rounds, shape (deals, rounds); see `orchestrator.effects.exchanges`."""
    signs = exchanges(rounds, seed)[:DEALS] if rounds > 11 else exchanges(rounds, seed)
    groups = np.arange(rounds) * signs.shape[1] // rounds if rounds > MOST_EXCHANGED else np.arange(rounds)
    return signs[:, groups]


def _sizes(series: Series, signs: Floats) -> Floats:
    """|mean| over its standard error within strata, in each deal of the signs."""
    return Exchanged.of(series, signs, studentised=True).sizes(0.0)
