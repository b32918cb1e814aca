"""A plan's memory and duration on this machine, for the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.configuration.detecting import detects
from orchestrator.environments.provision import states
from orchestrator.plan import Plan
from orchestrator.planning.forecast import forecast
from orchestrator.planning.hosts import has_measured, known_rates
from orchestrator.planning.residency import is_simulated, plan_of
from orchestrator.planning.weights import fetch_line, memory_line, what_does_not_fit, wrong_draft
from orchestrator.schedule import ScheduledTrial

if TYPE_CHECKING:
    from orchestrator.statistics.drift import Setting as Noise


def machine_lines(plan: Plan, schedule: Sequence[ScheduledTrial], *, url: str) -> list[tuple[str, str]]:
    """Return memory, duration and the smallest effect that can be found, each in one line.

    Args:
        url: the database, for rates that were measured before; it need not exist.
    """
    memory = plan_of(plan.arms, plan.prompts)
    duration = forecast(plan, schedule, measured=known_rates(plan, url))
    lines = [("detects", _detects(plan, url)), ("memory", memory_line(memory)), ("duration", str(duration))]
    lines += [("environment", f"{name}: {words}") for name, words in states(plan)]
    if missing := fetch_line(plan):
        lines.append(("fetch", missing))
    why = wrong_draft(plan) or what_does_not_fit(plan)
    return lines if why is None else [*lines, ("refused", why)]


def _detects(plan: Plan, url: str) -> str:
    simulated = any(is_simulated(arm) for arm in plan.arms)
    return detects(
        arms=len(plan.arms) + plan.design.aa,
        aa=plan.design.aa,
        rounds=plan.design.rounds,
        alpha=plan.design.alpha,
        margin=plan.design.margin,
        noise=None if simulated else noise_here(url),
    )


def noise_here(url: str | None) -> "Noise | None":
    """Return this host's noise and drift from its last run."""
    from db.session import database_url
    from workers.machine.host import read_host

    where, host = database_url(url), read_host()
    if not has_measured(where, host):
        return None
    from orchestrator.judging import host_noise  # pandas

    return host_noise(where, host=host)
