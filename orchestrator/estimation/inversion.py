"""Interval by inverting a test: the effects that the test does not reject.

The search goes left and right at once, so that exchanging the two arms mirrors every step and the result with it.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Function = Callable[[Floats], Floats]  # of candidate effects, shape (m,)

FARTHEST = 50.0  # on the log scale
SHORTEST = 1e-9
INTERVAL_WIDTH = 1e-3  # in half-widths


def interval(p: Function, *, root: float, p_of_none: float, alpha: float, reach: float) -> tuple[float, float]:
    """The effects around the root with p above alpha; 0 is among them exactly when p_of_none is above alpha.

    An end is infinite if no effect is rejected on that side.

    Args:
        p: the test.
        root: an effect that the test does not reject.
        p_of_none: p of the effect 0.
        reach: a guess of the interval's half-width.
    """

    def slack(effects: Floats) -> Floats:
        found: Floats = np.log(p(effects) / alpha)
        return found

    inside = np.array([root, root])
    if p_of_none > alpha:
        inside = np.array([min(root, 0.0), max(root, 0.0)])
    outside = _first_outside(slack, inside, reach)
    if p_of_none <= alpha:
        nearer = np.maximum if root > 0 else np.minimum
        outside = np.where(outside * root < root * root, nearer(outside, 0.0), outside)
    bounded = np.isfinite(outside)
    ends = _narrow(slack, inside, np.where(bounded, outside, inside), reach * INTERVAL_WIDTH)
    return (float(ends[0]) if bounded[0] else -math.inf), (float(ends[1]) if bounded[1] else math.inf)


def _first_outside(slack: Function, start: Floats, reach: float) -> Floats:
    """Return the first effects without slack left of start[0] and right of start[1], or infinity; steps grow."""
    found = np.array([-np.inf, np.inf])
    step = reach
    while step < FARTHEST and not np.isfinite(found).all():
        tried = np.array([start[0] - step, start[1] + step])
        found = np.where(np.isinf(found) & (slack(tried) <= 0), tried, found)
        step *= 1.5
    return found


def _narrow(slack: Function, inside: Floats, outside: Floats, width: float) -> Floats:
    """Return the last effects with slack between inside and outside, to within `width`, both sides at once.

    False position with the Illinois rule (an end that stays is given half its weight), and a bisection in every third
    step, because p is a step function.
    """
    at_inside, at_outside = slack(inside), slack(outside)
    kept = np.zeros(2)
    step = 0
    while np.abs(outside - inside).max() > width:
        share = np.full(2, 0.5)
        if step % 3 < 2:
            share = np.clip(at_inside / np.maximum(at_inside - at_outside, 1e-300), 0.02, 0.98)
        tried = inside + share * (outside - inside)
        value = slack(tried)
        holds = value > 0
        at_outside = np.where(holds, at_outside * np.where(kept > 0, 0.5, 1.0), value)
        at_inside = np.where(holds, value, at_inside * np.where(kept < 0, 0.5, 1.0))
        inside, outside = np.where(holds, tried, inside), np.where(holds, outside, tried)
        kept = np.where(holds, 1.0, -1.0)
        step += 1
    return inside
