"""What is stored of a run: its frozen plan, what a former execution left, and who may go on with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from db import models
from db.engine import Database
from db.session import read_only
from orchestrator.errors import HeldError, RefusedError
from orchestrator.running.progress import StoredTrial
from workers.machine.process_identity import Lease, holds

if TYPE_CHECKING:
    from orchestrator.planning.weights import ArmWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is already there of a run."""

    trials: tuple[StoredTrial, ...]
    dropped: frozenset[str]
    finished: bool  # everything of it was done, what follows the rounds included
    current: dict[str, Any] | None  # what it was at, see orchestrator.running.run_state


def stored_trials(database: Database, run_id: str) -> Stored:
    """What a former execution left."""
    trials = (
        select(
            models.Trial.sequence,
            models.Round.index,
            models.Round.attempt,
            models.Trial.status,
            models.Trial.excluded_reason,
        )
        .outerjoin(models.Round, models.Trial.round_id == models.Round.id)
        .where(models.Trial.run_id == run_id, models.Trial.kind != "warmup")
    )
    dropped = select(models.Arm.name).where(models.Arm.run_id == run_id, models.Arm.state == "dropped")
    with read_only(database) as session:
        rows = [
            StoredTrial(
                sequence=sequence,
                round=index,
                attempt=attempt,
                counts=status in ("done", "invalid") and reason is None,
                ended=status != "interrupted",
            )
            for sequence, index, attempt, status, reason in session.execute(trials)
        ]
        run = session.get_one(models.Run, run_id)
        return Stored(
            trials=tuple(rows),
            dropped=frozenset(session.scalars(dropped)),
            finished=run.status == "done",
            current=run.current,
        )


def log_folder(database: Database, run_id: str) -> Path:
    """The folder of a run's workers' logs."""
    with read_only(database) as session:
        return Path(session.get_one(models.Run, run_id).log_dir or ".")


def refuse_if_held(database: Database, run_id: str) -> None:
    """Two processes must not run one run.

    Raises:
        HeldError: the process that took the lease still runs.
    """
    with read_only(database) as session:
        refuse_held_run(session.get_one(models.Run, run_id))


def refuse_held_run(run: models.Run) -> None:
    """Refuse a run whose lease a living process holds.

    Raises:
        HeldError: with that process's id.
    """
    if run.status != "running" or run.runner_pid is None or run.runner_started_at is None:
        return
    lease = Lease(pid=run.runner_pid, process_started_at=run.runner_started_at, boot_id=run.boot_id)
    if holds(lease):
        raise HeldError(f"run {run.id} is being run by process {lease.pid}: wait for it, or stop it first")


def refuse_other_weights(database: Database, run_id: str, weights: "Mapping[str, ArmWeights]") -> None:
    """A run goes on with the weights that it began with.

    Raises:
        RefusedError: a checkpoint's digest changed since.
    """
    stored = select(models.Arm.name, models.Checkpoint.digest).join(
        models.Checkpoint, models.Arm.checkpoint_id == models.Checkpoint.id
    )
    with read_only(database) as session:
        digests = {name: digest for name, digest in session.execute(stored.where(models.Arm.run_id == run_id))}
    for name, found in weights.items():
        if found.target is not None and found.target.digest != digests.get(name):
            raise RefusedError(
                f"arm {name}: its checkpoint is not the one that this run began with; put the former one back,"
                " or start a new run"
            )
