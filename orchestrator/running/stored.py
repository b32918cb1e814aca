"""The stored state of a run that is to be resumed: its trials, its lease and its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import JSON, column, text

from db.engine import Database
from db.session import plain_read
from orchestrator.errors import RefusedError
from orchestrator.running.leases import held_error, is_held, row_is_held
from orchestrator.running.progress import StoredTrial

if TYPE_CHECKING:
    from orchestrator.planning.weights import ArmWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The stored part of a run."""

    trials: tuple[StoredTrial, ...]
    dropped: frozenset[str]
    finished: bool  # all of it was done, including the work after the rounds
    current: dict[str, Any] | None  # its last step, see orchestrator.running.run_state


def stored_trials(database: Database, run_id: str) -> Stored:
    """Return the trials that former executions stored."""
    with plain_read(database) as connection:
        rows = [
            StoredTrial(
                sequence=sequence,
                round=index,
                attempt=attempt,
                counts=status in ("done", "invalid") and reason is None,
                ended=status != "interrupted",
            )
            for sequence, index, attempt, status, reason in connection.execute(_TRIALS, {"run_id": run_id})
        ]
        run = connection.execute(_RUN, {"run_id": run_id}).one()
        return Stored(
            trials=tuple(rows),
            dropped=frozenset(connection.execute(_DROPPED, {"run_id": run_id}).scalars()),
            finished=run.status == "done",
            current=run.current,
        )


def log_folder(database: Database, run_id: str) -> Path:
    """Return the folder of the logs of a run's workers."""
    with plain_read(database) as connection:
        return Path(connection.execute(_RUN, {"run_id": run_id}).one().log_dir or ".")


def refuse_if_held(database: Database, run_id: str) -> None:
    """Refuse a run that another process executes.

    Raises:
        HeldError: with its pid, if it is seen from here.
    """
    with plain_read(database) as connection:
        run = connection.execute(_RUN, {"run_id": run_id}).one()
    if is_held(database, run_id, run):
        raise held_error(run_id, run.runner_pid if row_is_held(run) else None)


def refuse_other_weights(database: Database, run_id: str, weights: "Mapping[str, ArmWeights]") -> None:
    """Refuse to resume a run with other weights than those that it began with.

    Raises:
        RefusedError: a checkpoint's digest has changed.
    """
    with plain_read(database) as connection:
        digests = {name: digest for name, digest in connection.execute(_DIGESTS, {"run_id": run_id})}
    for name, found in weights.items():
        if found.target is not None and found.target.digest != digests.get(name):
            raise RefusedError(
                f"arm {name}: its checkpoint is not the one that this run began with; put the former one back,"
                " or start a new run"
            )


_RUN = text("""
    SELECT id, status, current, log_dir, runner_pid, runner_started_at, boot_id FROM run WHERE id = :run_id
""").columns(
    column("id"),
    column("status"),
    column("current", JSON),
    column("log_dir"),
    column("runner_pid"),
    column("runner_started_at"),
    column("boot_id"),
)
_TRIALS = text("""
    SELECT trial.sequence, round."index", round.attempt, trial.status, trial.excluded_reason
    FROM trial LEFT JOIN round ON trial.round_id = round.id
    WHERE trial.run_id = :run_id AND trial.kind != 'warmup'
""")
_DROPPED = text("SELECT name FROM arm WHERE run_id = :run_id AND state = 'dropped'")
_DIGESTS = text("""
    SELECT arm.name, checkpoint.digest FROM arm JOIN checkpoint ON arm.checkpoint_id = checkpoint.id
    WHERE arm.run_id = :run_id
""")
