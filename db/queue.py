"""The queue: the waiting runs, their order, and the results of their preflights.

An entry's state is of the queue alone: waiting until its run is done, has failed or is cancelled. How far a run got is
the run's own affair, so an interrupted run keeps its place and goes on there.
"""

import datetime as dt
from collections.abc import Mapping

from sqlalchemy import Engine, func, select, update
from sqlalchemy.orm import Session

from db import models
from db.errors import RequestError
from db.queue_entries import Entry, entries, entry_of
from db.session import transaction
from db.vocabulary import EntryState

__all__ = ["Entry", "QueueError", "add", "cancel", "entries", "entry_of", "move", "settle", "store_check"]

LEAST_GAP = 1e-6  # between two places; closer ones are numbered anew


class QueueError(RequestError):
    """An entry that cannot be moved or cancelled."""


def add(engine: Engine, run_id: str, *, now: dt.datetime) -> None:
    """Put a run last."""
    with transaction(engine) as session:
        last = session.scalar(select(func.max(models.QueueEntry.position)))
        session.add(
            models.QueueEntry(
                run_id=run_id, position=1.0 if last is None else last + 1.0, added_at=now, state="waiting"
            )
        )


def settle(engine: Engine, run_id: str, state: EntryState, *, note: str | None) -> None:
    """Say what became of an entry; a run that has none is left alone."""
    with transaction(engine) as session:
        changed = update(models.QueueEntry).where(models.QueueEntry.run_id == run_id)
        session.execute(changed.values(state=state, note=note))


def store_check(engine: Engine, run_id: str, checked: Mapping[str, str | None], *, now: dt.datetime) -> None:
    """Store the results of a preflight, by arm."""
    with transaction(engine) as session:
        changed = update(models.QueueEntry).where(models.QueueEntry.run_id == run_id)
        session.execute(changed.values(checked=dict(checked), checked_at=now))


def cancel(engine: Engine, run_id: str) -> None:
    """Take a run out of the queue. What is stored of it stays; one that never began is cancelled itself.

    Raises:
        QueueError: it does not wait.
    """
    with transaction(engine) as session:
        _waiting(session, run_id).state = "cancelled"
        planned = update(models.Run).where(models.Run.id == run_id, models.Run.status == "planned")
        session.execute(planned.values(status="cancelled"))


def move(engine: Engine, run_id: str, *, before: str | None = None, first: bool = False) -> None:
    """Move a waiting entry before another one, to the front, or (neither) to the end.

    Raises:
        QueueError: it or the other one does not wait.
    """
    with transaction(engine) as session:
        entry = _waiting(session, run_id)
        others = [each for each in _all_waiting(session) if each.run_id != run_id]
        place = 0 if first else len(others)
        if before is not None:
            _waiting(session, before)
            if before == run_id:
                raise QueueError(f"run {run_id}: cannot be moved before itself; name another with --before")
            place = next(number for number, each in enumerate(others) if each.run_id == before)
        _place(entry, others, place)


def _place(entry: models.QueueEntry, others: list[models.QueueEntry], place: int) -> None:
    """Between its neighbours; where they are too close, all are numbered anew."""
    before = others[place - 1].position if place > 0 else None
    after = others[place].position if place < len(others) else None
    if before is not None and after is not None and after - before < LEAST_GAP:
        for number, each in enumerate([*others[:place], entry, *others[place:]], start=1):
            each.position = float(number)
    elif before is None:
        entry.position = 1.0 if after is None else after - 1.0
    else:
        entry.position = before + 1.0 if after is None else (before + after) / 2


def _all_waiting(session: Session) -> list[models.QueueEntry]:
    waiting = select(models.QueueEntry).where(models.QueueEntry.state == "waiting")
    return list(session.scalars(waiting.order_by(models.QueueEntry.position, models.QueueEntry.id)))


def _waiting(session: Session, run_id: str) -> models.QueueEntry:
    found = session.scalar(select(models.QueueEntry).where(models.QueueEntry.run_id == run_id))
    if found is None:
        raise QueueError(f"run {run_id}: not in the queue; see `interlace queue list`")
    if found.state != "waiting":
        raise QueueError(f"run {run_id}: is not waiting but {found.state}; see `interlace status`")
    return found
