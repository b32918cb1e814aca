"""`interlace plan`."""

import sys
from pathlib import Path

import click

from orchestrator.commands import options


@click.command("plan")
@options.plan_arguments
@click.option("--json", "as_json", is_flag=True, help="The frozen plan as JSON.")
def command(overrides: tuple[str, ...], config_dir: Path | None, *, as_json: bool) -> None:
    """Show what would run: arms, rounds, order, memory, duration. Runs nothing."""
    from orchestrator.configuration.compose import make_plan
    from orchestrator.environments.provision import looked_up
    from orchestrator.plan import dump
    from orchestrator.views.machine_lines import noise_here, on_this_machine

    composed = make_plan(overrides, config_dir=config_dir, noise_of=noise_here, ask_hub=True)
    plan = looked_up(composed.plan)
    if as_json:
        sys.stdout.write(dump(plan) + "\n")
        return
    from db.session import database_url
    from orchestrator.schedule import build_schedule
    from orchestrator.views.plan_view import print_plan
    from orchestrator.views.terminal import console

    schedule = build_schedule(plan)
    here = on_this_machine(plan, schedule, url=database_url(composed.db_url))
    print_plan(plan, schedule, console(), first=here.headline, extra=here.lines)
