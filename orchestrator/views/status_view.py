"""The list of runs on the terminal."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from orchestrator.views.terminal import table
from workers.host import Lease, holds

if TYPE_CHECKING:
    import pandas as pd


def print_status(runs: "pd.DataFrame", out: Console) -> None:
    """Print the runs, newest first. A run whose process is gone is called what it is: interrupted."""
    if runs.empty:
        out.print("no runs yet: start one with `interlace run`, see `interlace run --help`")
        return
    made = table("run", "experiment", "state", "trials", "started (UTC)", right=("trials",))
    for row in runs.to_dict("records"):
        started = row["created_at"].strftime("%Y-%m-%d %H:%M")
        made.add_row(row["run_id"][-12:], Text(row["experiment"]), _state(row), str(row["trials"]), started)
    out.print(made)
    out.print("any unique part of a run's id names it; so does `last`")


def _state(row: dict[object, object]) -> str:
    status = str(row["status"])
    pid, started_at = row["runner_pid"], row["runner_started_at"]
    if status != "running" or not isinstance(pid, int) or not isinstance(started_at, float):
        return status
    boot_id = row["boot_id"]
    lease = Lease(pid=pid, process_started_at=started_at, boot_id=str(boot_id) if boot_id else None)
    return "running" if holds(lease) else "interrupted: interlace resume"
