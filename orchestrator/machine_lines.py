"""What a plan means on this machine: its memory, and how long it takes. For the terminal."""

import sys
from collections.abc import Mapping

from orchestrator.estimate import APPLE, CPU, NONE, Estimate, Machine, Rates, assume, estimate
from orchestrator.memory import MemoryPlan
from orchestrator.plan import Arm, Plan
from orchestrator.preparation import memory_line
from orchestrator.residency import is_simulated, plan_of
from orchestrator.schedule import build_schedule


def machine_lines(plan: Plan, *, url: str) -> list[tuple[str, str]]:
    """Memory and duration, each in one line.

    Args:
        url: the database, for rates that were measured before; it need not be there.
    """
    memory = plan_of(plan.arms, plan.prompts)
    return [("memory", memory_line(memory)), ("duration", str(duration(plan, memory, known_rates(plan, url))))]


def duration(plan: Plan, memory: MemoryPlan, known: Mapping[str, Rates]) -> Estimate:
    """How long the run takes: by rates measured here where there are some, else by an assumption that is named."""
    machine = _machine(plan)
    weights = {arm.name: arm.weights_bytes for arm in memory.arms}
    rates: dict[str, Rates] = {}
    for arm in plan.arms:
        found = known.get(arm.name) or _assumed(arm, weights.get(arm.name), machine)
        if found is None:
            return Estimate(duration_s=None, assumption=f"the model of {arm.name} is not on this machine yet")
        rates[arm.name] = found
    return estimate(plan, build_schedule(plan), rates, machine=machine)


def known_rates(plan: Plan, url: str) -> dict[str, Rates]:
    """The rates of arms that were measured on this host before, by name."""
    from db.errors import DatabaseError
    from db.rates import measured_rates
    from db.session import open_existing
    from workers.host import read_host

    by_config = {arm.config_sha256: arm.name for arm in plan.arms}
    try:
        found = measured_rates(open_existing(url), by_config, hostname=read_host().hostname)
    except DatabaseError:
        return {}  # no database yet, or one that `run` will refuse with its reason
    return {
        by_config[key]: Rates(
            prefill_tps=rates.prefill_tps, decode_tps=rates.decode_tps, load_s=rates.load_s, measured=True
        )
        for key, rates in found.items()
    }


def _machine(plan: Plan) -> Machine:
    if all(is_simulated(arm) for arm in plan.arms):
        return NONE
    return APPLE if sys.platform == "darwin" else CPU


def _assumed(arm: Arm, weights_bytes: int | None, machine: Machine) -> Rates | None:
    if is_simulated(arm):
        return assume(0, machine)
    return None if weights_bytes is None else assume(weights_bytes, machine)
