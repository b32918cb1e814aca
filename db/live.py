"""What a run is at, and what went wrong in it: reads so small that a watcher disturbs nobody."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, select

from db import models
from db.session import read_only

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
    what: str  # invalid | excluded | interrupted | parked
    why: str

    def __str__(self) -> str:
        where = "" if self.round is None else f", round {self.round + 1}"
        return f"{self.what} {self.arm}{where}: {self.why}"


def life(engine: Engine, run_id: str) -> Life:
    """One run, by its key."""
    with read_only(engine) as session:
        return Life(**session.execute(_LIFE.where(models.Run.id == run_id)).mappings().one())


def running(engine: Engine) -> list[Life]:
    """The runs that say they run, newest first; whether their processes live is another question."""
    with read_only(engine) as session:
        rows = session.execute(_LIFE.where(models.Run.status == "running").order_by(models.Run.id.desc()))
        return [Life(**row) for row in rows.mappings()]


def problems(engine: Engine, run_id: str, *, limit: int = PROBLEMS_SHOWN) -> list[Problem]:
    """Parked arms first, then the last trials that do not count, newest first."""
    parked = select(models.Arm.name, models.Arm.state_reason).where(
        models.Arm.run_id == run_id, models.Arm.state == "dropped"
    )
    trials = (
        select(
            models.Arm.name,
            models.Round.index,
            models.Trial.status,
            models.Trial.error_kind,
            models.Trial.error_message,
            models.Trial.excluded_reason,
        )
        .join(models.Arm, models.Trial.arm_id == models.Arm.id)
        .outerjoin(models.Round, models.Trial.round_id == models.Round.id)
        .where(models.Trial.run_id == run_id, models.Trial.status != "done")
        .order_by(models.Trial.ordinal.desc())
        .limit(limit)
    )
    with read_only(engine) as session:
        found = [
            Problem(arm=name, round=None, what="parked", why=reason or "") for name, reason in session.execute(parked)
        ]
        for name, index, status, kind, message, reason in session.execute(trials):
            why = f"{kind}: {message}" if kind else reason or ""
            found.append(Problem(arm=name, round=index, what=status, why=why))
        return found


_LIFE = select(
    models.Run.id.label("run_id"),
    models.Experiment.name.label("experiment"),
    models.Run.status,
    models.Run.rounds,
    models.Run.simulated,
    models.Run.current,
    models.Run.heartbeat_at,
    models.Run.runner_pid,
    models.Run.runner_started_at,
    models.Run.boot_id,
    models.Run.note,
).join(models.Experiment, models.Run.experiment_id == models.Experiment.id)
