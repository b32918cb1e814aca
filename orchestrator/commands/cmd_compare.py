"""`interlace compare`."""

import click

from orchestrator.commands import options
from orchestrator.commands.stored_runs import measured_run, open_stored
from orchestrator.errors import InputError


@click.command("compare")
@click.argument("run_a", metavar="RUN_A")
@click.argument("run_b", metavar="RUN_B")
@options.db
@options.document_format
def command(run_a: str, run_b: str, url: str | None, style: str) -> None:
    """Compare two runs through the control that both contain."""
    from orchestrator.commands.documents import show
    from orchestrator.judging import evenings_of, run_side
    from orchestrator.report.relations import build_comparison, comparison_values
    from orchestrator.statistics.compare import compare_runs

    database = open_stored(url)
    sides = [measured_run(database, text) for text in (run_a, run_b)]
    if sides[0].run_id == sides[1].run_id:
        raise InputError(f"{run_a} and {run_b} are the same run: name two different ones, see `interlace status`")
    first, second = map(run_side, sides)
    evenings = evenings_of(database, first.run_id, without=second.run_id)
    found, runs = compare_runs(first, second, evenings=evenings), (first.run_id, second.run_id)
    show(build_comparison(found, runs), comparison_values(found, runs), style)
