"""A plan's memory and duration on this machine, for the terminal."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.configuration.detecting import detects
from orchestrator.environments.provision import states
from orchestrator.plan import Plan
from orchestrator.planning.estimate import Estimate, about
from orchestrator.planning.fetching import download_sizes
from orchestrator.planning.forecast import forecast
from orchestrator.planning.headline import headline
from orchestrator.planning.hosts import has_measured, known_rates
from orchestrator.planning.residency import is_simulated, plan_of
from orchestrator.planning.weights import fetch_line, memory_line, what_does_not_fit, wrong_draft
from orchestrator.schedule import ScheduledTrial

if TYPE_CHECKING:
    from orchestrator.statistics.drift import Setting as Noise


@dataclass(frozen=True, slots=True, kw_only=True)
class OnThisMachine:
    """A plan's meaning on this machine."""

    headline: str  # download, memory and duration in one line
    lines: list[tuple[str, str]]  # the same and more, each with its head


def on_this_machine(plan: Plan, schedule: Sequence[ScheduledTrial], *, url: str) -> OnThisMachine:
    """Download, memory, duration and the smallest effect that can be found.

    The hub is asked, briefly, for sizes that nothing else states.

    Args:
        url: the database, for rates that were measured before; it need not exist.
    """
    memory, measured = plan_of(plan.arms, plan.prompts), known_rates(plan, url)
    duration = forecast(plan, schedule, measured=measured)
    downloads = download_sizes(plan)
    lines = [("detects", _detects(plan, url)), ("memory", memory_line(memory)), ("duration", str(duration))]
    if len(duration.by_class) > 1:
        lines.append(("of it", _by_class(duration)))
    lines += [("environment", f"{name}: {words}") for name, words in states(plan)]
    if downloads:
        lines.append(("fetch", fetch_line(downloads)))
    why = wrong_draft(plan) or what_does_not_fit(plan)
    first = headline(
        downloads=downloads,
        memory=memory,
        residency=plan.design.residency,
        duration=duration,
        basis=_basis(plan, measured=len(measured) == len(plan.arms)),
    )
    return OnThisMachine(headline=first, lines=lines if why is None else [*lines, ("refused", why)])


def _by_class(duration: Estimate) -> str:
    return ", ".join(f"{name}: {about(seconds)}" for name, seconds in duration.by_class.items())


def _basis(plan: Plan, *, measured: bool) -> str:
    """Name the basis of a duration in a few words; the line of the duration has the figures."""
    if measured:
        return "by rates measured here"
    if any(is_simulated(arm) for arm in plan.arms):
        return "(simulated)"
    if sys.platform != "darwin":
        return "on this CPU, by an assumed rate"
    from workers.machine.host import read_host

    return f"on an {read_host().chip or 'Apple chip'}, from its bandwidth"


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
