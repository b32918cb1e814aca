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
def command(url: str | None, metric: str, *, simulated: bool, **filters: str | None) -> None:
    """Show each configuration over time, and what changed when its speed did."""
    from db.history import SERIES, VERSIONS
    from orchestrator.judging import SHORT_HASH, explanations, judged_history
    from orchestrator.report.relations import print_explanations, print_history
    from orchestrator.statistics.history import Point, change_points
    from orchestrator.views.terminal import console

    out = console()
    rows = judged_history(open_stored(url), metric=metric, filters=filters, simulated=simulated)
    if rows.empty:
        asked = ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in filters.items() if value is not None)
        kind = "simulated" if simulated else "real"
        out.print(f"no finished trials of {kind} runs match {asked}".rstrip() + "; `interlace status` lists the runs")
    for _, series in rows.groupby(list(SERIES), sort=False):
        points = [
            Point(
                run_id=row["run_id"],
                at=row["created_at"].to_pydatetime(),
                value=row["value"],
                versions={name: row[name] for name in VERSIONS if isinstance(row[name], str)},
            )
            for row in series.to_dict("records")
        ]
        newest = series.iloc[-1]
        name = f"{newest['arm']} [{newest['config_sha256'][:SHORT_HASH]}] on {newest['host']}"
        print_history(name, points, change_points(points), metric, out)
    for _, together in rows.groupby(["workload_sha256", "host"], sort=False):
        print_explanations(explanations(together), out)
