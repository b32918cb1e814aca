"""Many arms at once: how often would the largest of so many differences look like this if there were none?

Under "these arms are equally fast" all their labels could be dealt anew within each round. The largest |score| of a
treatment against the control over such deals is what the observed ones are held against (max-T: Westfall and Young
1993). Arms found to differ are taken out as known levels and the rest is tested again (step-down: Romano and Wolf
2005), so that one large effect hides no small one. The chance of any false finding in the family is then at most
alpha, and the price is less than Bonferroni's.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from orchestrator.effects import Floats, Integers, fit_levels
from orchestrator.observations import ScopeTrials

DEALS = 4_000  # of the labels, the observed one among them


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
    scores_by_round, place = _by_round(scores, used.rounds, member, len(members))
    sums = _sums_by_member(scores_by_round, place, seed)
    against = sums[:, 1:] - sums[:, :1]
    # A treatment with fewer rounds has smaller sums; in units of their spread all are alike.
    sizes = np.abs(against) / np.sqrt((place[:, 1:] >= 0).sum(axis=0))
    largest = sizes.max(axis=1)
    tolerance = 1e-9 * len(scores)
    return {name: float((largest >= sizes[0, index] - tolerance).mean()) for index, name in enumerate(treatments)}


def _by_round(scores: Floats, rounds: Integers, member: Integers, members: int) -> tuple[Floats, Integers]:
    """The family's scores, rounds x members, packed to the left, and each member's place there (-1: absent)."""
    numbers, row = np.unique(rounds, return_inverse=True)
    packed = np.full((len(numbers), members), np.nan)
    place = np.full((len(numbers), members), -1, dtype=np.intp)
    filled = np.zeros(len(numbers), dtype=np.intp)
    for index in np.flatnonzero(member >= 0):
        r = row[index]
        packed[r, filled[r]] = scores[index]
        place[r, member[index]] = filled[r]
        filled[r] += 1
    return packed, place


def _sums_by_member(packed: Floats, place: Integers, seed: int) -> Floats:
    """Each member's summed score in each deal, shape deals x members; the first deal is the observed one."""
    rounds, members = packed.shape
    keys = np.random.Generator(np.random.PCG64(seed)).random((DEALS, rounds, members), dtype=np.float32)
    keys[0] = np.arange(members, dtype=np.float32) / members
    absent = np.isnan(packed)
    keys[:, absent] = 2.0  # stay at the right end
    dealt = np.take_along_axis(np.where(absent, 0.0, packed)[None], np.argsort(keys, axis=2), axis=2)
    return np.stack(
        [dealt[:, np.flatnonzero(place[:, m] >= 0), place[place[:, m] >= 0, m]].sum(axis=1) for m in range(members)],
        axis=1,
    )
