"""Measure the rest of a stored run and judge it, as `run` and `resume` do."""

from collections.abc import Sequence

from db.engine import Database
from orchestrator.queue.entry_run import run_entry
from orchestrator.queue.machine_lock import MachineLock
from orchestrator.running.events import Observer
from orchestrator.views.progress_view import ProgressObserver
from orchestrator.views.terminal import console


def measure_and_judge(
    database: Database, run_id: str, lock: MachineLock, *, fail_on: Sequence[str], quiet: bool
) -> int:
    """Run the remaining trials, judge the whole run, and return the exit code."""
    out = console()
    if not quiet:
        out.print(f"run {run_id}")
    with Observer() if quiet else ProgressObserver(out) as observer:
        try:
            run_entry(database, run_id, lock=lock, observer=observer)
        except KeyboardInterrupt:
            out.print(f"interrupted; the finished trials are stored. Continue with: interlace resume {run_id}")
            raise
    from orchestrator.commands.judgement import audit_and_show  # pandas: not while anything is measured
    from orchestrator.stored_run import StoredRun

    return audit_and_show(StoredRun.load(database, run_id), fail_on=fail_on, style="table")
