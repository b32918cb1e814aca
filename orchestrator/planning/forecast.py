"""Forecast how long a plan will take on this machine, as far as this is known before it runs."""

import sys
from collections.abc import Mapping, Sequence

from orchestrator.plan import Arm, Plan
from orchestrator.planning.estimate import CPU, NONE, Estimate, Machine, Rates, apple, assume, estimate
from orchestrator.planning.residency import is_simulated, model_size, read_bytes
from orchestrator.schedule import ScheduledTrial
from workers.machine.bandwidth import published_gb_per_s
from workers.machine.host import HostFacts, read_host


def forecast(
    plan: Plan,
    schedule: Sequence[ScheduledTrial],
    *,
    measured: Mapping[str, Rates] | None = None,
    machine: Machine | None = None,
) -> Estimate:
    """Estimate the schedule's duration.

    Args:
        measured: rates from earlier runs, by arm name; the others are assumed from the weights that a token reads.
        machine: the assumptions for arms without measured rates; None: those for this machine.
    """
    if any(is_simulated(arm) for arm in plan.arms):
        machine = NONE
    elif machine is None:
        machine = mac(read_host()) if sys.platform == "darwin" else CPU
    rates = dict(measured or {})
    for arm in plan.arms:
        if arm.name not in rates and (found := _assumed(arm, machine)) is not None:
            rates[arm.name] = found
    if absent := {str(arm.checkpoint["name"]): None for arm in plan.arms if arm.name not in rates}:
        return Estimate(duration_s=None, assumption=f"not on this machine yet: {', '.join(absent)}")
    return estimate(plan, schedule, rates, machine=machine)


def _assumed(arm: Arm, machine: Machine) -> Rates | None:
    if is_simulated(arm):
        return assume(0, machine)
    weights_bytes = model_size(arm.checkpoint).weights_bytes
    read = read_bytes(arm.checkpoint)
    if weights_bytes is None or read is None:
        return None
    return assume(weights_bytes, machine, read_bytes=read, bits=arm.checkpoint.get("bits"))


def mac(host: HostFacts) -> Machine:
    """Return the assumptions behind a first estimate for an Apple chip."""
    gb_per_s, _ = published_gb_per_s(host.chip, host.gpu_cores)
    return apple(gb_per_s, host.chip)
