"""The spread of one effect from evening to evening on one machine. Pure.

A run's interval holds the noise within the run. Another evening has another system load, other weights in other pages,
another temperature of the room, and an effect of speculation or quantisation moves with these. This can be seen
only if one pair of arms was measured on several evenings: the spread of their effects, pooled over pairs, holds the
noise within the runs as well. Two evenings' effects then differ by less than t sqrt(2) spread in 95 % of cases.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist, fmean

LEAST_FREEDOM = 2  # three evenings of one pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Evenings:
    """The spread of effects between evenings."""

    spread: float  # standard deviation of the log ratios of one pair
    freedom: int  # evenings less pairs

    def half_width(self, alpha: float) -> float:
        """Return the bound on the difference of two evenings' effects in 1 - alpha of cases, on the log scale."""
        return t_quantile(1 - alpha / 2, self.freedom) * math.sqrt(2) * self.spread


def between_evenings(ratios: Mapping[Hashable, Iterable[float]]) -> Evenings | None:
    """Return the pooled spread of each pair's ratios, one per evening, or None if there are too few evenings.

    Args:
        ratios: each pair's ratios, above 0.
    """
    logs = [[math.log(ratio) for ratio in each] for each in ratios.values()]
    freedom = sum(len(each) - 1 for each in logs if each)
    if freedom < LEAST_FREEDOM:
        return None
    squares = sum((value - fmean(each)) ** 2 for each in logs if each for value in each)
    return Evenings(spread=math.sqrt(squares / freedom), freedom=freedom)


def by_pair(rows: Iterable[tuple[Hashable, float]]) -> dict[Hashable, list[float]]:
    """Group ratios by their pair."""
    found: dict[Hashable, list[float]] = defaultdict(list)
    for pair, ratio in rows:
        found[pair].append(ratio)
    return dict(found)


def t_quantile(share: float, freedom: int) -> float:
    """The quantile of Student's t: exact for 1 and 2 degrees of freedom, else the expansion of Abramowitz and Stegun
    26.7.5, whose error is below 0.5 % from 3 degrees on."""
    if freedom == 1:
        return math.tan(math.pi * (share - 0.5))
    if freedom == 2:
        part = 2 * share - 1
        return math.sqrt(2.0 / (1.0 - part * part)) * part
    z: float = NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / math.pow(freedom, power) for power, term in enumerate(terms, start=1))
