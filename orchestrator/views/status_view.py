"""The measuring process and the list of runs, on the terminal."""

import datetime as dt
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from db.engine import Database
from db.live import Life, Problem
from db.runs import ListedRun
from orchestrator.queue.machine_lock import Holder
from orchestrator.running.leases import is_held
from orchestrator.views.terminal import table
from orchestrator.views.watch_view import at_line

INTERRUPTED = "interrupted"
FAILED = "failed"


def print_at(holder: Holder | None, running: Life | None, out: Console, *, now: dt.datetime) -> None:
    """Print the measuring process of this machine and its current step."""
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


def print_status(database: Database, runs: Sequence[ListedRun], out: Console) -> None:
    """Print the runs, newest first. A run whose process is gone is shown as interrupted."""
    if not runs:
        out.print("no runs yet: start one with `interlace run`, see `interlace run --help`")
        return
    made = table("run", "experiment", "state", "trials", "started", right=("trials",))
    states = [_state(database, run) for run in runs]
    for run, state in zip(runs, states, strict=True):
        started = f"{run.created_at.astimezone():%Y-%m-%d %H:%M}"  # local, as all times here
        tags = "".join(f" #{tag}" for tag in run.said.tags)
        made.add_row(_short(run), Text(f"{run.experiment}{tags}"), state, str(run.trials), started)
    out.print(made)
    for run in runs:
        if run.said.remark:
            out.print(Text(f"{_short(run)}: {run.said.remark}"))
    out.print("name a run by any unique part of its id, or by `last`")
    if INTERRUPTED in states:
        _print_why(runs[states.index(INTERRUPTED)], out)
        out.print("continue an interrupted run with `interlace work` or `interlace resume RUN`")
    if FAILED in states:
        failed = runs[states.index(FAILED)]
        _print_why(failed, out)
        out.print(f"remove the cause, then continue with `interlace resume {_short(failed)}`")


def _short(run: ListedRun) -> str:
    return run.run_id[-12:]


def _print_why(run: ListedRun, out: Console) -> None:
    """Print what ended a run, if it could be stored."""
    if run.note is not None:
        out.print(Text(f"{_short(run)}: {run.note}"))


def _state(database: Database, run: ListedRun) -> str:
    return INTERRUPTED if run.status == "running" and not is_held(database, run.run_id, run) else run.status
