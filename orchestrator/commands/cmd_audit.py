"""`interlace audit`."""

import click

from orchestrator.commands import completing, options
from orchestrator.commands.stored_runs import measured_run, open_stored
from orchestrator.errors import IncompleteError


@click.command("audit")
@click.argument("run_text", shell_complete=completing.runs, metavar="RUN", default="last")
@options.db
@options.fail_on
@options.audit_format
@click.option(
    "--against", metavar="CLAIMS", help="Show published figures beside the results: `claims` for all, or names."
)
@click.option("--full", is_flag=True, help="Print all tables, figures and remarks, then the answer.")
def command(
    run_text: str, url: str | None, fail_on: tuple[str, ...], style: str, against: str | None, *, full: bool
) -> int:
    """Judge a run: which arm is really faster, and could it be drift?"""
    from db.live import life
    from orchestrator.commands.judgement import audit_and_show

    database = open_stored(url)
    run = measured_run(database, run_text)
    code = audit_and_show(run, fail_on=fail_on, style=style, against=against, full=full)
    if fail_on and code == 0 and (status := life(database, run.run_id).status) != "done":
        raise IncompleteError(f"run {run.run_id} ({status}): not finished; no verdict so far matches --fail-on")
    return code
