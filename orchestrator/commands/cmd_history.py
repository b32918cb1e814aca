"""`interlace history`."""

import click

from orchestrator.commands import options
from orchestrator.commands.stored_runs import open_stored
from orchestrator.vocabulary import DEFAULT_METRIC


@click.command("history")
@options.db
@options.metric(default=DEFAULT_METRIC)
@click.option("--arm", help="Arms whose name matches this SQL pattern, such as '%draft%'.")
@click.option("--engine", help="Arms of this engine.")
@click.option("--checkpoint", help="Arms of this checkpoint.")
@click.option("--experiment", help="Runs of this experiment.")
@click.option("--simulated", is_flag=True, help="Simulated runs instead of real ones.")
@options.document_format
def command(url: str | None, metric: str, style: str, *, simulated: bool, **filters: str | None) -> None:
    """Show each configuration over time, and what changed when its speed did."""
    from db.remarks import remarks
    from orchestrator.commands.documents import show
    from orchestrator.commands.version_history import with_proofs
    from orchestrator.judging import explanations, judged_history, series_of
    from orchestrator.report.relations import build_empty_history, build_history, history_values

    database = open_stored(url)
    rows = judged_history(database, metric=metric, filters=filters, simulated=simulated)
    series = tuple(with_proofs(database, each, metric) for each in series_of(rows))
    explained = explanations(rows)
    if series:
        document = build_history(
            series, explained, metric, {run_id: str(one) for run_id, one in remarks(database).items()}
        )
    else:
        asked = {name: value for name, value in filters.items() if value is not None}
        document = build_empty_history(asked, metric, simulated=simulated)
    show(document, history_values(series, explained, metric), style)
