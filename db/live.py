"""A run's current state and its problems, in reads so small that a watcher disturbs nobody."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import JSON, Boolean, Engine, column, text

from db.column_types import UtcDateTime
from db.session import plain_read

PROBLEMS_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A run's state and its last sign of life."""

    run_id: str
    experiment: str
    status: str
    rounds: int
    simulated: bool
    current: dict[str, Any] | None  # see orchestrator.running.run_state
    heartbeat_at: dt.datetime | None
    runner_pid: int | None
    runner_started_at: float | None
    boot_id: str | None
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A trial that does not count, or an arm that takes no further part."""

    arm: str
    round: int | None
    what: str  # invalid | excluded | interrupted | dropped
    why: str

    def __str__(self) -> str:
        where = "" if self.round is None else f", round {self.round + 1}"
        return f"{self.what} {self.arm}{where}: {self.why}"


def life(engine: Engine, run_id: str) -> Life:
    """One run, by its key."""
    with plain_read(engine) as connection:
        return Life(**connection.execute(_LIVES, {"run_id": run_id, "status": None}).mappings().one())


def running(engine: Engine) -> list[Life]:
    """Return the runs with the status running, newest first; their processes may no longer live."""
    with plain_read(engine) as connection:
        rows = connection.execute(_LIVES, {"run_id": None, "status": "running"})
        return [Life(**row) for row in rows.mappings()]


def problems(engine: Engine, run_id: str, *, limit: int = PROBLEMS_SHOWN) -> list[Problem]:
    """Dropped arms first, then the last trials that do not count, newest first."""
    with plain_read(engine) as connection:
        dropped = connection.execute(_DROPPED, {"run_id": run_id})
        found = [Problem(arm=name, round=None, what="dropped", why=reason or "") for name, reason in dropped]
        for row in connection.execute(_UNCOUNTED, {"run_id": run_id, "limit": limit}):
            why = f"{row.error_kind}: {row.error_message}" if row.error_kind else row.excluded_reason or ""
            found.append(Problem(arm=row.arm, round=row.round, what=row.status, why=why))
        return found


_LIVES = text("""
    SELECT run.id AS run_id, experiment.name AS experiment, run.status, run.rounds, run.simulated, run.current,
        run.heartbeat_at, run.runner_pid, run.runner_started_at, run.boot_id, run.note
    FROM run JOIN experiment ON experiment.id = run.experiment_id
    WHERE (:run_id IS NULL OR run.id = :run_id) AND (:status IS NULL OR run.status = :status)
    ORDER BY run.id DESC
""").columns(
    column("run_id"),
    column("experiment"),
    column("status"),
    column("rounds"),
    column("simulated", Boolean),
    column("current", JSON),
    column("heartbeat_at", UtcDateTime),
    column("runner_pid"),
    column("runner_started_at"),
    column("boot_id"),
    column("note"),
)
_DROPPED = text("SELECT name, state_reason FROM arm WHERE run_id = :run_id AND state = 'dropped'")
_UNCOUNTED = text("""
    SELECT arm.name AS arm, round."index" AS round, trial.status AS status, trial.error_kind AS error_kind,
        trial.error_message AS error_message, trial.excluded_reason AS excluded_reason
    FROM trial JOIN arm ON trial.arm_id = arm.id LEFT JOIN round ON trial.round_id = round.id
    WHERE trial.run_id = :run_id AND trial.status != 'done'
    ORDER BY trial.ordinal DESC LIMIT :limit
""")
