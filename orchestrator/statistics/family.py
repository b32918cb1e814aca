"""Many arms at once: how often would the largest of so many differences look like this if there were none?

Under "these arms are equally fast" all their labels could be dealt anew within each round. The largest effect of any
treatment against the control in such deals is what the observed ones are held against (max-T: Westfall and Young
1993). Arms found to differ are taken out as known levels and the rest is tested again (step-down: Romano and Wolf
2005), so that one large effect hides no small one. The chance of any false finding in the family is alpha, exactly so
when no arm differs; the price is far less than Bonferroni's, which six rounds could not pay for two treatments.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.effects import MOST_EXCHANGED, Integers, fit_levels
from orchestrator.statistics.inversion import Floats
from orchestrator.statistics.observations import ScopeTrials

DEALS = 1_000  # of the labels, the observed one among them
CLIP = 1.345  # of the scores; wider than for a pair, so that one arm far from all others stands out


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
        sizes, p_values = _one_step(used, left, control, seed)
        p_values = np.maximum(p_values, least)
        # A large effect widens what the deals yield, so a step decides only about arms as far out as the farthest.
        decided = (p_values <= alpha) & (sizes >= sizes.max() / 2)
        done = decided if decided.any() else np.ones(len(left), dtype=bool)
        found |= {name: float(p) for name, p, is_done in zip(left, p_values, done, strict=True) if is_done}
        least = float(p_values[done].max())
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


def _one_step(used: ScopeTrials, treatments: Sequence[str], control: str, seed: int) -> tuple[Floats, Floats]:
    """Single-step max-T over these treatments: sizes and p-values; other arms are levels of their own."""
    members = [control, *treatments]
    member = np.array([members.index(label) if label in members else len(members) for label in used.labels])
    level = np.where(member < len(members), 0, 1 + pd.factorize(used.labels)[0])
    residual = fit_levels(level, used.rounds, used.prompts).clipped_residuals(used.y[:, None], clip=CLIP)[:, 0]
    dealt = _deal(used.rounds, member, len(members), seed)
    sizes = np.abs(_effects_of_deals(residual, dealt, len(members)))
    largest = sizes.max(axis=1)
    return sizes[0], (largest[:, None] >= sizes[:1] - 1e-9).mean(axis=0)


def _deal(rounds: Integers, member: Integers, members: int, seed: int) -> npt.NDArray[np.int32]:
    """The members' labels dealt anew within each round, shape deals x trials, the observed ones first."""
    dealt = np.tile(member.astype(np.int32), (DEALS, 1))
    places = np.flatnonzero(member < members)
    places = places[np.argsort(rounds[places], kind="stable")]
    starts = np.flatnonzero(np.diff(rounds[places])) + 1
    for index, slots in enumerate(np.split(places, starts)):
        # Rounds that share an order are dealt together, which is as exact: see `orchestrator.effects.MOST_EXCHANGED`.
        dealt[:, slots] = member[slots][_orders(len(slots), seed + index % MOST_EXCHANGED)]
    return dealt


@lru_cache(maxsize=512)
def _orders(size: int, seed: int) -> Integers:
    """Random orders of so many slots, deals x size, the identity first."""
    orders = np.tile(np.arange(size, dtype=np.intp), (DEALS, 1))
    orders[1:] = np.random.Generator(np.random.PCG64(seed)).permuted(orders[1:], axis=1)
    orders.setflags(write=False)
    return orders


def _effects_of_deals(residual: Floats, dealt: npt.NDArray[np.int32], members: int) -> Floats:
    """Each treatment's effect against member 0 in each deal over that deal's residual spread, deals x (members - 1).

    The least-squares effects from first differences: with L the Laplacian of the graph whose edges join the arms of
    neighbouring trials, and a the arms' summed scores, they solve L b = a. So a high trial does not make its
    neighbours' arms look low. What a deal's effects explain of the squares is a'b; the rest is its spread. Only the
    observed deal has the arms' true effects taken out of that, which is what makes them stand out. An arm that is no
    member (number `members`) is a node of level 0.
    """
    deals, nodes, kept = len(dealt), members + 1, np.arange(members)
    edge = np.concatenate([[0.0], residual]) - np.concatenate([residual, [0.0]])
    sums, edges = np.empty((deals, nodes)), np.empty((deals, nodes, nodes))
    for number, labels in enumerate(dealt):  # one deal at a time stays in the processor's cache
        sums[number] = np.bincount(labels, edge, minlength=nodes)
        pairs = np.bincount(labels[:-1] * nodes + labels[1:], minlength=nodes**2)
        edges[number] = pairs.reshape(nodes, nodes)
    sums = sums[:, kept]
    edges += edges.transpose(0, 2, 1)
    edges[:, np.arange(nodes), np.arange(nodes)] = 0.0
    laplacian = -edges[:, kept[:, None], kept]
    laplacian[:, kept, kept] = edges.sum(axis=2)[:, kept] + 1e-9
    levels = np.linalg.solve(laplacian, sums[..., None])[..., 0]
    unexplained = np.maximum((residual**2).sum() - (sums * levels).sum(axis=1), 1e-9 * len(residual))
    effects: Floats = (levels[:, 1:] - levels[:, :1]) / np.sqrt(unexplained)[:, None]
    return effects
