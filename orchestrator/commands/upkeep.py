"""`interlace db delete`, `rename` and `prune`: shown first, never silent."""

import datetime as dt
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from db.engine import Database
from db.escaping import shown_line
from db.upkeep import Stored, delete_runs, rename_experiment, stored_runs
from orchestrator.commands.stored_runs import open_stored
from orchestrator.errors import InputError
from orchestrator.running.stored import refuse_if_held

# Runs in these states without one measured trial hold nothing that an audit could use.
_OVER = ("failed", "interrupted", "cancelled")


def delete(run_texts: Sequence[str], *, url: str | None, agreed: bool, dry_run: bool) -> None:
    """Remove the named runs, once they are shown and agreed to.

    Raises:
        InputError: no agreement, or a name that fits no run or several.
        UpkeepError: one of them waits in the queue.
        HeldError: one of them is being run.
    """
    database = open_stored(url)
    chosen = [_named(database, each) for each in dict.fromkeys(run_texts)]
    found = stored_runs(database, chosen)
    _remove(database, found, command="db delete", agreed=agreed, dry_run=dry_run)


def prune(*, url: str | None, older_than_days: float, simulated: bool, agreed: bool, dry_run: bool) -> None:
    """Remove runs that hold no measured trial and are over, or simulated ones; shown first.

    Raises:
        InputError: no agreement.
    """
    database = open_stored(url)
    before = dt.datetime.now(dt.UTC) - dt.timedelta(days=older_than_days)
    found = [
        each
        for each in stored_runs(database)
        if not each.waits
        and each.created_at <= before
        and (each.simulated if simulated else each.status in _OVER and each.generations == 0)
    ]
    if not found:
        what = "no simulated run" if simulated else "no run that ended without a generation"
        sys.stdout.write(f"nothing to prune: {what} is older than {older_than_days:g} days\n")
        return
    _remove(database, found, command="db prune", agreed=agreed, dry_run=dry_run)


def rename(run_text: str, name: str, *, url: str | None) -> None:
    """Move a run to an experiment of another name.

    Raises:
        InputError: the name is empty or holds what a terminal obeys.
        HeldError, UpkeepError: the run is being run, or waits.
    """
    if not name.strip() or not name.isprintable():
        raise InputError(f"db rename: {name!r} is not a name; give words of letters that can be printed")
    database = open_stored(url)
    run_id = _named(database, run_text)
    refuse_if_held(database, run_id)
    former = rename_experiment(database, run_id, name.strip())
    sys.stdout.write(f"run {run_id}: experiment {shown_line(former)} is now {shown_line(name.strip())}\n")


def _named(database: Database, run_text: str) -> str:
    """The run, by its id or a unique part: an experiment's name could mean another run tomorrow."""
    from sqlalchemy import text

    from db.runs import LAST, RUNS_SQL, choose_run
    from db.session import plain_read

    if run_text.strip().lower() == LAST:
        raise InputError("`last` means another run each time; write the run's id: see `interlace query runs`")
    with plain_read(database) as connection:
        return choose_run([tuple(row) for row in connection.execute(text(RUNS_SQL))], run_text)


def _remove(database: Database, found: Sequence[Stored], *, command: str, agreed: bool, dry_run: bool) -> None:
    for each in found:
        refuse_if_held(database, each.run_id)
        sys.stdout.write(f"{shown_line(str(each))}\n")
    sys.stdout.flush()
    count = "1 run" if len(found) == 1 else f"{len(found)} runs"
    if dry_run:
        sys.stdout.write(f"{count} would be deleted, with logs; nothing was changed\n")
        return
    _require_agreement(f"Delete {count} for good?", command=command, agreed=agreed)
    delete_runs(database, [each.run_id for each in found])
    kept = [folder for each in found if (folder := _logs_left(each)) is not None]
    sys.stdout.write(f"{count} deleted\n")
    for folder in kept:
        sys.stdout.write(f"kept: {shown_line(folder)}, which is not a folder of this run's logs alone\n")


def _logs_left(run: Stored) -> str | None:
    """Remove a run's folder of logs; return one that is there and does not bear the run's id."""
    if run.log_dir is None:
        return None
    folder = Path(run.log_dir)
    if folder.name == run.run_id and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
    return str(folder) if folder.exists() else None


def _require_agreement(question: str, *, command: str, agreed: bool) -> None:
    if agreed:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError(f"{command}: needs your agreement, and there is no terminal to ask on; add --yes or --dry-run")
    if not click.confirm(question, default=False):
        raise InputError(f"{command}: not agreed to; nothing was changed")
