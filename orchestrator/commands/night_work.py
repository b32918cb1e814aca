"""A night of `interlace work`: refused early if it cannot run, carried out, and summed up however it ends."""

import datetime as dt
import sys
from collections.abc import Sequence
from pathlib import Path

from db.engine import Database
from db.errors import StorageError
from db.escaping import shown
from orchestrator.errors import IncompleteError, InterlaceError
from orchestrator.planning.residency import is_simulated
from orchestrator.queue.agenda import Waiting, waiting_here
from orchestrator.queue.machine_lock import MachineLock
from orchestrator.queue.night import Night
from orchestrator.queue.notification import notify
from orchestrator.queue.summary import Summary, markdown, write_summary
from orchestrator.running.preflight import check_machine


def take_machine(waiting: Sequence[Waiting], lock: MachineLock, database: Database) -> None:
    """Refuse at once what would fail at night: another process is measuring, or this machine is not fit."""
    for each in waiting:
        if each.plan is not None and not all(is_simulated(arm) for arm in each.plan.arms):
            lock.take()
            check_machine(each.plan, Path(database.url.database or "."))


def spend(night: Night, waiting: Sequence[Waiting], *, preflight: bool) -> int:
    """Run the night: fetch, check where asked to, measure. However it ends, write its summary and notify."""
    began_at = night.now()
    try:
        night.fetch(waiting)
        if preflight:
            night.check(waiting)
        night.drain()
    except KeyboardInterrupt:
        _sum_up(night, began_at, why="it was interrupted", code=130)
        raise
    except StorageError as error:
        _sum_up(night, began_at, why=f"nothing could be stored: {error}", code=error.exit_code)
        raise
    except InterlaceError as error:
        _sum_up(night, began_at, why=str(error), code=error.exit_code)
        raise
    left = _left(night)
    code = IncompleteError.exit_code if left or any(run.state == "failed" for run in night.ended) else 0
    why = "the queue is empty" if not left else "the time was up" if night.is_over else "the rest cannot continue now"
    _sum_up(night, began_at, why=why, code=code)
    return code


def _left(night: Night) -> int:
    return len(waiting_here(night.database, night.host))


def _sum_up(night: Night, began_at: dt.datetime, *, why: str, code: int) -> None:
    """Write the summary file and send the notification. A failure of either becomes a note."""
    path = Path(night.database.url.database or ".")
    try:
        left = _left(night)
    except StorageError:
        left = 0
    summary = Summary(
        host=night.host.hostname,
        database=str(path),
        began_at=began_at,
        ended_at=night.now(),
        why=why,
        runs=night.ended,
        waiting=left,
    )
    try:
        written = write_summary(summary, path)
    except OSError as error:
        where = shown(str(error.filename or path.parent))
        sys.stderr.write(f"interlace: {where}: the night's summary cannot be written ({error.strerror})\n")
        written = path
    else:
        night.teller.noted(f"summary of the night: {written}")
    for problem in notify(summary.headline, markdown(summary), written, exit_code=code):
        night.teller.noted(f"notification failed: {problem}")
