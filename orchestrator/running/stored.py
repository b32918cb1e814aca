"""What is stored of a run: its frozen plan, what a former execution left, and who may go on with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine as Database
from sqlalchemy import select

from db import models
from db.session import reading
from orchestrator.errors import RefusedError
from orchestrator.running.preparation import ArmWeights
from orchestrator.running.progress import StoredTrial
from workers.host import Lease, holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is already there of a run."""

    trials: tuple[StoredTrial, ...]
    dropped: frozenset[str]
    finished: bool  # everything of it was done, what follows the rounds included


def stored_plan(database: Database, run_id: str) -> str:
    """The frozen plan's JSON."""
    with reading(database) as session:
        return session.get_one(models.Run, run_id).plan


def stored_trials(database: Database, run_id: str) -> Stored:
    """What a former execution left."""
    trials = (
        select(models.Trial.sequence, models.Round.index, models.Round.attempt, models.Trial.status)
        .outerjoin(models.Round, models.Trial.round_id == models.Round.id)
        .where(models.Trial.run_id == run_id, models.Trial.kind != "warmup")
    )
    dropped = select(models.Arm.name).where(models.Arm.run_id == run_id, models.Arm.state == "dropped")
    with reading(database) as session:
        rows = [
            StoredTrial(sequence=sequence, round=index, attempt=attempt, counts=status in ("done", "invalid"))
            for sequence, index, attempt, status in session.execute(trials)
        ]
        status = session.scalar(select(models.Run.status).where(models.Run.id == run_id))
        return Stored(trials=tuple(rows), dropped=frozenset(session.scalars(dropped)), finished=status == "done")


def log_folder(database: Database, run_id: str) -> Path:
    """The folder of a run's workers' logs."""
    with reading(database) as session:
        return Path(session.get_one(models.Run, run_id).log_dir or ".")


def refuse_if_held(database: Database, run_id: str) -> None:
    """Two processes must not run one run.

    Raises:
        RefusedError: the process that took the lease still runs.
    """
    with reading(database) as session:
        run = session.get_one(models.Run, run_id)
        pid, started_at, boot_id, status = run.runner_pid, run.runner_started_at, run.boot_id, run.status
    if status != "running" or pid is None or started_at is None:
        return
    if holds(Lease(pid=pid, process_started_at=started_at, boot_id=boot_id)):
        raise RefusedError(f"run {run_id} is being run by process {pid}: wait for it, or stop it first")


def refuse_other_weights(database: Database, run_id: str, weights: Mapping[str, ArmWeights]) -> None:
    """A run goes on with the weights that it began with.

    Raises:
        RefusedError: a checkpoint's digest changed since.
    """
    stored = select(models.Arm.name, models.Checkpoint.digest).join(
        models.Checkpoint, models.Arm.checkpoint_id == models.Checkpoint.id
    )
    with reading(database) as session:
        digests = dict(session.execute(stored.where(models.Arm.run_id == run_id)).tuples().all())
    for name, found in weights.items():
        if found.target is not None and found.target.digest != digests.get(name):
            raise RefusedError(
                f"arm {name}: its checkpoint is not the one that this run began with; put the former one back,"
                " or start a new run"
            )
