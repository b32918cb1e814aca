"""Removing runs, and moving them between experiments. Whoever calls shows first what goes, and asks.

A run's rows go with it by their foreign keys. Rows that runs share (an experiment's name, a set of versions, a set of
weights) go with the last run that refers to them; the rows of machines stay.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, bindparam, text
from sqlalchemy.orm import Session

from db.errors import RequestError
from db.session import plain_read, transaction
from db.shared_rows import experiment_row


class UpkeepError(RequestError):
    """A run that must not be removed or changed now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A run, and what goes with it."""

    run_id: str
    experiment: str
    status: str
    created_at: dt.datetime  # UTC
    trials: int
    generations: int
    judged: int  # audits
    waits: bool  # in the queue
    simulated: bool
    log_dir: str | None

    def __str__(self) -> str:
        return (
            f"run {self.run_id} ({self.experiment}, {self.status}, {self.created_at:%Y-%m-%d %H:%M} UTC):"
            f" {self.trials} trials, {self.generations} generations, {self.judged} audits"
        )


def stored_runs(engine: Engine, run_ids: Sequence[str] | None = None) -> list[Stored]:
    """These runs with what goes with each, newest first; None: all."""
    with plain_read(engine) as connection:
        rows = connection.execute(text(_STORED)).mappings()
        return [
            Stored(
                **{
                    **row,
                    "created_at": dt.datetime.fromisoformat(row["created_at"]).replace(tzinfo=dt.UTC),
                    "waits": bool(row["waits"]),
                    "simulated": bool(row["simulated"]),
                }
            )
            for row in rows
            if run_ids is None or row["run_id"] in run_ids
        ]


def delete_runs(engine: Engine, run_ids: Sequence[str]) -> None:
    """Remove runs, all or none of them.

    Raises:
        UpkeepError: one of them waits in the queue, or has begun to run meanwhile.
    """
    with transaction(engine) as session:
        for run_id in run_ids:
            _refuse_waiting(session, run_id)
        session.execute(
            text("DELETE FROM run WHERE id IN :ids").bindparams(bindparam("ids", expanding=True)),
            {"ids": list(run_ids)},
        )
        _drop_unused(session)


def rename_experiment(engine: Engine, run_id: str, name: str) -> str:
    """Move a run to the experiment of this name, which is made if need be; the former experiment's name.

    Raises:
        UpkeepError: the run waits in the queue, or its process is at it.
    """
    with transaction(engine) as session:
        _refuse_waiting(session, run_id)
        sql = "SELECT experiment.name FROM run JOIN experiment ON experiment.id = run.experiment_id WHERE run.id = :id"
        former = str(session.execute(text(sql), {"id": run_id}).scalar_one())
        target = experiment_row(session, name).id
        session.execute(text("UPDATE run SET experiment_id = :target WHERE id = :id"), {"target": target, "id": run_id})
        _drop_unused(session)
    return former


def _refuse_waiting(session: Session, run_id: str) -> None:
    row = session.execute(text(_WAITS), {"id": run_id}).one_or_none()
    if row is None:
        raise UpkeepError(f"run {run_id}: it is gone already")
    if row.waits:
        raise UpkeepError(f"run {run_id}: it waits in the queue; take it out first: interlace queue cancel {run_id}")


def _drop_unused(session: Session) -> None:
    for statement in _UNUSED:
        session.execute(text(statement))


_WAITS = """
    SELECT EXISTS (SELECT 1 FROM queue_entry WHERE run_id = run.id AND state = 'waiting') AS waits
    FROM run WHERE id = :id
"""
_STORED = """
    SELECT run.id AS run_id, experiment.name AS experiment, run.status AS status, run.created_at AS created_at,
        (SELECT count(*) FROM trial WHERE trial.run_id = run.id) AS trials,
        (SELECT count(*) FROM generation JOIN trial ON trial.id = generation.trial_id WHERE trial.run_id = run.id)
            AS generations,
        (SELECT count(*) FROM audit WHERE audit.run_id = run.id) AS judged,
        EXISTS (SELECT 1 FROM queue_entry WHERE queue_entry.run_id = run.id AND queue_entry.state = 'waiting') AS waits,
        run.simulated AS simulated, run.log_dir AS log_dir
    FROM run JOIN experiment ON experiment.id = run.experiment_id
    ORDER BY run.created_at DESC, run.id DESC
"""
_UNUSED = (
    "DELETE FROM experiment WHERE id NOT IN (SELECT experiment_id FROM run)",
    "DELETE FROM environment WHERE id NOT IN (SELECT environment_id FROM trial WHERE environment_id IS NOT NULL)",
    "DELETE FROM checkpoint WHERE id NOT IN (SELECT checkpoint_id FROM arm WHERE checkpoint_id IS NOT NULL)"
    " AND id NOT IN (SELECT draft_checkpoint_id FROM arm WHERE draft_checkpoint_id IS NOT NULL)",
)
