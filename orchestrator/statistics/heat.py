"""Consequences of carry-over for a verdict: the claims it rules out, and the remedy. Pure."""

import math

from orchestrator.effects import Effect
from orchestrator.statistics.carry_over import CarryOver
from orchestrator.statistics.comparability import Reason
from orchestrator.statistics.lags import LagModel

REMEDIES = "set gate.cooldown_s, design.order=williams or design.interleave_by=workload"


def carry_over_reason(found: CarryOver) -> Reason:
    """Describe the carry-over that was found."""
    lasting = ""
    if found.decay > 0:
        lasting = f", and {found.accumulated:.3f} times after many trials of it (decay {found.decay:g} per trial)"
    text = (
        f"a trial of {found.after} makes the next trial's value {found.ratio:.3f} times what it would be{lasting};"
        f" p = {found.p_value:.3f}: {REMEDIES}"
    )
    return Reason(code="carry_over", text=text)


def hides_a_difference(found: CarryOver, margin: float) -> bool:
    """Return whether accumulated carry-over could keep an effect inside the margin that is outside it otherwise."""
    return abs(math.log(found.accumulated)) > -math.log1p(-margin)


def may_be_heat(
    model: LagModel | None, effect: Effect | None, *, treatment: str, control: str, alpha: float
) -> Reason | None:
    """Return a reason if the effect vanishes once both arms' possible carry-over is removed at some decay, else None.

    A mark of carry-over that is too faint to be found can still make a small effect, so every effect is checked.
    """
    if model is None or effect is None or effect.ci_low <= 1 <= effect.ci_high:
        return None
    if not {treatment, control} <= set(model.placed.names):
        return None
    sign = 1.0 if effect.ratio > 1 else -1.0
    weakest = min(
        model.adjusted(treatment, control, alpha=alpha),
        key=lambda one: one.low if sign > 0 else -one.high,
    )
    if (weakest.low if sign > 0 else -weakest.high) > 0:
        return None
    span = f"{math.exp(weakest.effect):.3f} ({math.exp(weakest.low):.3f} to {math.exp(weakest.high):.3f})"
    text = (
        f"if trials of {treatment} and {control} change the ones after them, with decay {weakest.decay:g} per trial,"
        f" the effect is {span}: {REMEDIES}, or run more rounds"
    )
    return Reason(code="may_be_heat", text=text)
