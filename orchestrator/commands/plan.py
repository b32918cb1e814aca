"""`interlace plan` and `interlace simulate`: before anything runs."""

import sys
from collections.abc import Sequence

from orchestrator.commands.opening import optional_path
from orchestrator.plan import dump


def show_plan(overrides: Sequence[str], *, config_dir: str | None, as_json: bool) -> None:
    """`interlace plan`."""
    from orchestrator.configuration.compose import make_plan
    from orchestrator.views.machine_lines import machine_lines, noise_here

    composed = make_plan(overrides, config_dir=optional_path(config_dir), noise_of=noise_here)
    if as_json:
        sys.stdout.write(dump(composed.plan) + "\n")
        return
    from db.session import database_url
    from orchestrator.schedule import build_schedule
    from orchestrator.views.plan_view import print_plan
    from orchestrator.views.terminal import console

    schedule = build_schedule(composed.plan)
    lines = machine_lines(composed.plan, schedule, url=database_url(composed.db_url))
    print_plan(composed.plan, schedule, console(), extra=lines)


def simulate_design(
    overrides: Sequence[str],
    *,
    config_dir: str | None,
    profiles: Sequence[str],
    effect: str,
    noise: str,
    drift: str | None,
    runs: int,
) -> None:
    """`interlace simulate`: the plan's design on simulated machines."""
    from orchestrator.configuration.compose import make_plan
    from orchestrator.configuration.detecting import percentage, refuse_one_entry
    from orchestrator.statistics.drift import PROFILES
    from orchestrator.statistics.judge_design import judge_design
    from orchestrator.views.machine_lines import noise_here
    from orchestrator.views.plan_view import print_judgements
    from orchestrator.views.terminal import console

    plan = make_plan(overrides, config_dir=optional_path(config_dir), noise_of=noise_here).plan
    refuse_one_entry(len(plan.arms) + plan.design.aa, what="simulate")
    true_effect = percentage(effect, what="--effect", low=-0.9, high=10)
    found = judge_design(
        profiles or PROFILES,
        entries=len(plan.arms) + plan.design.aa,
        rounds=plan.design.rounds,
        alpha=plan.design.alpha,
        effect=true_effect,
        noise=percentage(noise, what="--noise", low=0, high=1),
        size=None if drift is None else percentage(drift, what="--drift", low=-0.9, high=1),
        runs=runs,
        seed=plan.design.seed,
    )
    print_judgements(found, plan=plan, effect=true_effect, runs=runs, out=console())
