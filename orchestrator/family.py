"""Many arms at once: how often would the largest of so many differences look like this if there were none?

Under "these arms are equally fast" all their labels could be dealt anew within each round. The largest |score| of a
treatment against the control over such deals is what the observed ones are held against (max-T: Westfall and Young
1993). Arms found to differ are taken out as known levels and the rest is tested again (step-down: Romano and Wolf
2005), so that one large effect hides no small one. The chance of any false finding in the family is then at most
alpha, and the price is less than Bonferroni's.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from orchestrator.effects import Integers, fit_levels
from orchestrator.inversion import Floats
from orchestrator.observations import ScopeTrials

DEALS = 2_000  # of the labels, the observed one among them


def family_p_values(
    used: ScopeTrials, *, treatments: Sequence[str], control: str, alpha: float, seed: int
) -> dict[str, float]:
    """Each treatment's p-value for the whole family of comparisons with the control.

    A treatment without a round in common with the control is left out. Exact when no arm of the family differs;
    checked by simulation when some do.
    """
    present = [name for name in treatments if used.shares_rounds(name, control)]
    found: dict[str, float] = {}
    least = 0.0
    while left := [name for name in present if name not in found]:
        step = {name: max(p, least) for name, p in _one_step(used, left, control, seed).items()}
        rejected = {name: p for name, p in step.items() if p <= alpha}
        found |= rejected or step
        least = max(rejected.values(), default=1.0)
    return found


def best_arms(
    used: ScopeTrials, *, ratios: Mapping[str, float], lower_is_better: bool, alpha: float, seed: int
) -> tuple[str, ...]:
    """The arms not distinguishable from the best, the best first, the others by their ratios.

    An arm is left out when it differs from the best in the family of all comparisons with the best. The truly best arm
    is among those kept with a chance of at least 1 - alpha (Hsu 1984, multiple comparisons with the best).

    Args:
        ratios: of every arm against the same one, that one included with 1.
    """
    ranked = sorted(ratios, key=lambda arm: ratios[arm], reverse=not lower_is_better)
    best, *others = ranked
    p = family_p_values(used, treatments=others, control=best, alpha=alpha, seed=seed)
    return (best, *(arm for arm in others if p.get(arm, 1.0) > alpha))


def _one_step(used: ScopeTrials, treatments: Sequence[str], control: str, seed: int) -> dict[str, float]:
    """Single-step max-T over these treatments; other arms are levels of their own."""
    members = [control, *treatments]
    member = np.array([members.index(label) if label in members else -1 for label in used.labels], dtype=np.intp)
    others = np.array(list(dict.fromkeys(used.labels)), dtype=object)
    level = np.where(member >= 0, 0, 1 + np.argmax(used.labels[:, None] == others[None, :], axis=1))
    scores = fit_levels(level, used.rounds, used.prompts).slot_scores(used.y[:, None])[:, 0]
    sums, rounds_of = _sums_by_member(scores, used.rounds, member, len(members), seed)
    against = sums[:, 1:] - sums[:, :1]
    # A treatment with fewer rounds has smaller sums; in units of their spread all are alike.
    sizes = np.abs(against) / np.sqrt(rounds_of[1:])
    largest = sizes.max(axis=1)
    tolerance = 1e-9 * len(scores)
    return {name: float((largest >= sizes[0, index] - tolerance).mean()) for index, name in enumerate(treatments)}


def _sums_by_member(
    scores: Floats, rounds: Integers, member: Integers, members: int, seed: int
) -> tuple[Floats, Integers]:
    """Each member's summed score in each deal (deals x members, the observed first), and the rounds it is in."""
    sums = np.zeros((DEALS, members))
    rounds_of = np.zeros(members, dtype=np.intp)
    for index, number in enumerate(np.unique(rounds)):
        slots = np.flatnonzero((rounds == number) & (member >= 0))
        present = member[slots]
        rounds_of[present] += 1
        sums[:, present] += scores[slots][_deals(len(slots), seed + index)]
    return sums, rounds_of


@lru_cache(maxsize=512)
def _deals(size: int, seed: int) -> Integers:
    """Random orders of so many slots, deals x size, the identity first."""
    orders = np.tile(np.arange(size, dtype=np.intp), (DEALS, 1))
    orders[1:] = np.random.Generator(np.random.PCG64(seed)).permuted(orders[1:], axis=1)
    orders.setflags(write=False)
    return orders
