"""Runs of simulated arms, started and looked at as a test does it."""

from pathlib import Path

from sqlalchemy import select

from db import models
from db.engine import Database
from db.session import read_only
from orchestrator.plan import Plan
from orchestrator.planning.weights import find_weights
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.progress import Unit
from orchestrator.running.recorder import Recorder, create_run
from orchestrator.schedule import ScheduledTrial
from workers.machine.host import read_host


class Witness(Observer):
    """Remembers the events of a run."""

    def __init__(self) -> None:
        self.begun: list[Unit | ScheduledTrial] = []  # units and trials in the order of their starts
        self.problems: dict[str, str | None] = {}
        self.dropped: dict[str, str] = {}
        self.notes: list[str] = []
        self.replays = 0

    def preflight(self, arm: str, problem: str | None) -> None:
        self.problems[arm] = problem

    def arm_dropped(self, arm: str, reason: str) -> None:
        self.dropped[arm] = reason

    def noted(self, text: str) -> None:
        self.notes.append(text)

    def unit_started(self, unit: Unit) -> None:
        self.begun.append(unit)

    def trial_started(self, trial: ScheduledTrial) -> None:
        self.begun.append(trial)

    def unit_replayed(self, unit: Unit) -> None:
        self.replays += 1


def recorder_of(database: Database, planned: Plan, tmp_path: Path) -> Recorder:
    return create_run(database, planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path)


def run(database: Database, planned: Plan, tmp_path: Path, witness: Witness | None = None) -> Recorder:
    recorder = recorder_of(database, planned, tmp_path)
    run_recorded(recorder, observer=witness or Witness())
    return recorder


def rows(database: Database, run_id: str, **where: object) -> list[models.Trial]:
    query = select(models.Trial).filter_by(run_id=run_id, **where).order_by(models.Trial.sequence)
    with read_only(database) as session:
        return list(session.scalars(query))
