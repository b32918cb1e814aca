"""Who measures, and the list of runs, on the terminal."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from db.live import Life, Problem
from orchestrator.overnight.machine_lock import Holder
from orchestrator.views.terminal import table
from orchestrator.views.watch_view import at_line
from workers.identity import Lease, holds

if TYPE_CHECKING:
    import pandas as pd

INTERRUPTED = "interrupted"
FAILED = "failed"


def print_at(holder: Holder | None, running: Life | None, out: Console, *, now: dt.datetime) -> None:
    """Who measures on this machine, and what it is at."""
    if holder is not None:
        out.print(Text(f"this machine is measuring: {holder}"))
    if running is not None:
        out.print(Text(f"{running.experiment} ({running.run_id[-12:]}): {at_line(running, now=now)}"))
    if holder is not None or running is not None:
        out.print()


def print_problems(problems: Sequence[Problem], out: Console) -> None:
    """The last problems of the newest run."""
    if problems:
        out.print()
        out.print(Text("last problems of the newest run", style="bold"))
    for problem in problems:
        out.print(Text(str(problem)))


def print_status(runs: "pd.DataFrame", out: Console) -> None:
    """Print the runs, newest first. A run whose process is gone is called what it is: interrupted."""
    if runs.empty:
        out.print("no runs yet: start one with `interlace run`, see `interlace run --help`")
        return
    made = table("run", "experiment", "state", "trials", "started", right=("trials",))
    rows = runs.to_dict("records")
    states = [_state(row) for row in rows]
    for row, state in zip(rows, states, strict=True):
        started = f"{row['created_at'].to_pydatetime().astimezone():%Y-%m-%d %H:%M}"  # local, as all times here
        made.add_row(_short(row), Text(row["experiment"]), state, str(row["trials"]), started)
    out.print(made)
    out.print("any unique part of a run's id names it; so does `last`")
    if INTERRUPTED in states:
        _print_why(rows[states.index(INTERRUPTED)], out)
        out.print("what was interrupted goes on with `interlace work`, or `interlace resume RUN`")
    if FAILED in states:
        failed = rows[states.index(FAILED)]
        _print_why(failed, out)
        out.print(f"mend that, then go on with `interlace resume {_short(failed)}`")


def _short(row: Mapping[Any, object]) -> str:
    return str(row["run_id"])[-12:]


def _print_why(row: Mapping[Any, object], out: Console) -> None:
    """What ended a run, where it could be stored."""
    if isinstance(note := row["note"], str):
        out.print(Text(f"{_short(row)}: {note}"))


def _state(row: Mapping[Any, object]) -> str:
    status = str(row["status"])
    pid, started_at = row["runner_pid"], row["runner_started_at"]
    if status != "running" or not isinstance(pid, int) or not isinstance(started_at, float):
        return status
    boot_id = row["boot_id"]
    lease = Lease(pid=pid, process_started_at=started_at, boot_id=str(boot_id) if boot_id else None)
    return "running" if holds(lease) else INTERRUPTED
