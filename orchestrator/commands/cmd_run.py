"""`interlace run`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands import options

if TYPE_CHECKING:
    from orchestrator.commands.planned_run import Planned


@click.command("run")
@options.plan_arguments
@options.fail_on
@click.option("--quiet", is_flag=True, help="Print no progress, only the audit.")
@click.option(
    "--from", "from_run", metavar="RUN", help="Run the plan of a stored run anew, after showing what it executes."
)
@click.option("--yes", "agreed", is_flag=True, help="With --from: agree to what the plan executes.")
@click.option("--db", "url", metavar="URL", help="With --from: the database that holds RUN and takes the new run.")
def command(
    overrides: tuple[str, ...],
    config_dir: Path | None,
    fail_on: tuple[str, ...],
    from_run: str | None,
    url: str | None,
    *,
    agreed: bool,
    quiet: bool,
) -> int:
    """Plan, run now, and audit at the end.

    With --from RUN: take the plan of a stored run instead of OVERRIDES, such as one that came by `db import`. All that
    it would execute is shown, and it runs as a new run once you agree.
    """
    if from_run is None and (agreed or url is not None):
        raise click.UsageError("--yes and --db belong to --from RUN; without it the database is INTERLACE_DB")
    if from_run is None:
        from orchestrator.commands.planned_run import compose_run, refuse_bare

        refuse_bare("run", overrides, config_dir=config_dir)

        planned = compose_run(overrides, config_dir=config_dir)
    else:
        from orchestrator.commands.adoption import adopted

        planned = adopted(from_run, url=url, overrides=overrides, agreed=agreed)
    return _run(planned, fail_on=fail_on, quiet=quiet)


def _run(planned: "Planned", *, fail_on: tuple[str, ...], quiet: bool) -> int:
    """Put it into the queue and work on it alone, now. What this machine refuses is not stored."""
    from db.session import database_path
    from orchestrator.commands.measurement import measure_and_judge
    from orchestrator.commands.planned_run import fetched_run, store_run
    from orchestrator.queue.machine_lock import MachineLock
    from orchestrator.running.preflight import check_machine

    with MachineLock("interlace run") as lock:
        if planned.measured:
            lock.take()
        planned = fetched_run(planned, quiet=quiet)
        check_machine(planned.plan, database_path(planned.url))
        database, run_id = store_run(planned, quiet=quiet)
        return measure_and_judge(database, run_id, lock, fail_on=fail_on, quiet=quiet)
