"""`interlace resume`."""

from typing import TYPE_CHECKING

import click

from orchestrator.commands import completing, options
from orchestrator.commands.stored_runs import named_run, open_stored, unfinished_run

if TYPE_CHECKING:
    from db.engine import Database


@click.command("resume")
@click.argument("run_text", shell_complete=completing.runs, metavar="[RUN]", default="last")
@options.db
@options.fail_on
@click.option("--yes", "agreed", is_flag=True, help="Agree to what the plan executes, if asked.")
@click.option("--quiet", is_flag=True, help="Print no progress, only the audit.")
def command(run_text: str, url: str | None, fail_on: tuple[str, ...], *, agreed: bool, quiet: bool) -> int:
    """Finish an interrupted run. RUN is an id or a unique part of one.

    Without it, or with `last`: the newest run that was interrupted or failed. A run that was not planned on this
    machine is shown first, with all that it would execute, and goes on once you agree.
    """
    from db.live import life
    from db.runs import LAST
    from orchestrator.commands.adoption import agree_to_resume
    from orchestrator.commands.measurement import measure_and_judge
    from orchestrator.queue.machine_lock import MachineLock
    from orchestrator.running.provenance import refuse_from_elsewhere
    from workers.machine.host import read_host

    database = open_stored(url)
    run_id = unfinished_run(database) if run_text.strip().lower() == LAST else named_run(database, run_text)
    refuse_from_elsewhere(database, run_id, read_host())
    if life(database, run_id).status == "done":
        return _show_finished(database, run_id, fail_on=fail_on, quiet=quiet)
    agree_to_resume(database, run_id, agreed=agreed)
    with MachineLock("interlace resume") as lock:
        return measure_and_judge(database, run_id, lock, fail_on=fail_on, quiet=quiet)


def _show_finished(database: "Database", run_id: str, *, fail_on: tuple[str, ...], quiet: bool) -> int:
    from orchestrator.commands.judgement import audit_and_show
    from orchestrator.stored_run import StoredRun
    from orchestrator.views.terminal import console

    if not quiet:
        console().print(f"run {run_id} is finished already")
    return audit_and_show(StoredRun.load(database, run_id), fail_on=fail_on, style="table")
