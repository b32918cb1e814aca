"""How long a plan will take on this machine, as far as one can say before it runs."""

import sys
from collections.abc import Mapping, Sequence

from orchestrator.plan import Plan
from orchestrator.planning.estimate import CPU, NONE, Estimate, Machine, Rates, apple, assume, estimate
from orchestrator.planning.residency import is_simulated, plan_of
from orchestrator.schedule import ScheduledTrial
from workers.machine.bandwidth import published_gb_per_s
from workers.machine.host import HostFacts, read_host


def forecast(
    plan: Plan, schedule: Sequence[ScheduledTrial], *, measured: Mapping[str, Rates] | None = None
) -> Estimate:
    """The schedule's duration.

    Args:
        measured: rates from earlier runs, by arm name; the others are assumed from the weights' size.
    """
    machine = mac(read_host()) if sys.platform == "darwin" else CPU
    weights = {arm.name: arm.weights_bytes for arm in plan_of(plan.arms, plan.prompts).arms}
    if any(is_simulated(arm) for arm in plan.arms):
        machine, weights = NONE, {arm.name: 0 for arm in plan.arms}
    rates = dict(measured or {})
    for arm in plan.arms:
        weights_bytes = weights.get(arm.name)
        if arm.name not in rates and weights_bytes is not None:
            rates[arm.name] = assume(weights_bytes, machine, bits=arm.checkpoint.get("bits"))
    if absent := {str(arm.checkpoint["name"]): None for arm in plan.arms if arm.name not in rates}:
        return Estimate(duration_s=None, assumption=f"not on this machine yet: {', '.join(absent)}")
    return estimate(plan, schedule, rates, machine=machine)


def mac(host: HostFacts) -> Machine:
    """What a first guess stands on where the chip is Apple's."""
    gb_per_s, _ = published_gb_per_s(host.chip, host.gpu_cores)
    return apple(gb_per_s, host.chip)
