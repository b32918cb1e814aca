"""The queue, read: its entries, each with its run."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import JSON, Boolean, Engine, column, text

from db.column_types import UtcDateTime
from db.session import plain_read
from db.vocabulary import EntryState


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A run in the queue."""

    run_id: str
    experiment: str
    host_id: str  # of the machine that it was planned on
    host: str
    simulated: bool
    run_status: str
    run_note: str | None
    trials: int  # stored, warm-ups included
    position: float
    added_at: dt.datetime
    state: str
    note: str | None
    checked_at: dt.datetime | None
    checked: dict[str, Any] | None  # by arm: what is wrong, None: ready

    @property
    def checked_well(self) -> bool:
        """True if its preflight found no problem."""
        return self.checked is not None and not any(self.checked.values())


def entries(engine: Engine, *, state: EntryState = "waiting") -> list[Entry]:
    """The entries of a state, in their order."""
    with plain_read(engine) as connection:
        rows = connection.execute(_ENTRIES, {"state": state, "run_id": None})
        return [Entry(**row) for row in rows.mappings()]


def entry_of(engine: Engine, run_id: str) -> Entry | None:
    """A run's entry; None: it never was in the queue."""
    with plain_read(engine) as connection:
        row = connection.execute(_ENTRIES, {"state": None, "run_id": run_id}).mappings().one_or_none()
    return None if row is None else Entry(**row)


_ENTRIES = text("""
    SELECT entry.run_id, experiment.name AS experiment, run.host_id, host.name AS host, run.simulated,
        run.status AS run_status, run.note AS run_note,
        (SELECT count(*) FROM trial WHERE trial.run_id = run.id) AS trials,
        entry.position, entry.added_at, entry.state, entry.note, entry.checked_at, entry.checked
    FROM queue_entry AS entry
    JOIN run ON entry.run_id = run.id
    JOIN experiment ON run.experiment_id = experiment.id
    JOIN host ON run.host_id = host.id
    WHERE (:state IS NULL OR entry.state = :state) AND (:run_id IS NULL OR entry.run_id = :run_id)
    ORDER BY entry.position, entry.id
""").columns(
    column("run_id"),
    column("experiment"),
    column("host_id"),
    column("host"),
    column("simulated", Boolean),
    column("run_status"),
    column("run_note"),
    column("trials"),
    column("position"),
    column("added_at", UtcDateTime),
    column("state"),
    column("note"),
    column("checked_at", UtcDateTime),
    column("checked", JSON),
)
