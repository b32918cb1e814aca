"""What is known only after something was stored: a worker that did not end, an arm that held more than planned."""

from typing import Any

from sqlalchemy import Engine as Database
from sqlalchemy import select, update

from db import models
from db.session import transaction
from orchestrator.running.outcome import Fault


def spoil_newest_trial(database: Database, *, run_id: str, arm_id: str, fault: Fault) -> bool:
    """Make the arm's newest trial invalid, if it counts: a fixed rule, by what the process did, whatever its speed.

    Returns:
        Whether it did: a trial that a rule left out, or that failed by itself, stays what it is.
    """
    newest: Any = (
        select(models.Trial.id)
        .where(models.Trial.run_id == run_id, models.Trial.arm_id == arm_id, models.Trial.kind != "warmup")
        .order_by(models.Trial.ordinal.desc())
        .limit(1)
        .scalar_subquery()
    )
    spoil = update(models.Trial).where(models.Trial.id == newest, models.Trial.status == "done")
    with transaction(database) as session:
        done = session.execute(
            spoil.values(status="invalid", error_kind=fault.kind, error_message=fault.message)
            .execution_options(synchronize_session=False)
            .returning(models.Trial.id)
        )
        return done.first() is not None


def note_memory(database: Database, *, arm_id: str, text: str) -> None:
    """Keep with an arm how its memory differs from its plan."""
    with transaction(database) as session:
        session.get_one(models.Arm, arm_id).memory_note = text
