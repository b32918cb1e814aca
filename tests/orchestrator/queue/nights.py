"""Queues of simulated runs, and a teller that remembers."""

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from db import queue
from db.engine import Database
from db.queue import Entry
from db.session import open_database
from orchestrator.plan import Arm, Plan
from orchestrator.planning.weights import find_weights
from orchestrator.queue.machine_lock import MachineLock
from orchestrator.queue.night import Check, Ended, Night
from orchestrator.running.events import Observer
from orchestrator.running.recorder import create_run
from tests.orchestrator.plans import arm, plan
from workers.machine.host import read_host

NOW = dt.datetime(2026, 11, 30, 22, 0, tzinfo=dt.UTC)


class Teller:
    """Remembers what it was told."""

    def __init__(self, observer: Observer | None = None) -> None:
        self.observer = observer or Observer()
        self.begun: list[str] = []
        self.ended: list[Ended] = []
        self.checks: list[Check] = []
        self.notes: list[str] = []

    @contextmanager
    def run_begins(self, entry: Entry) -> Iterator[Observer]:
        self.begun.append(entry.run_id)
        yield self.observer

    def run_ended(self, ended: Ended) -> None:
        self.ended.append(ended)

    @contextmanager
    def fetching(self) -> Iterator[Callable[[object], None]]:
        yield lambda progress: None

    def checking(self, entry: Entry) -> None: ...

    def checked(self, found: Sequence[Check]) -> None:
        self.checks += found

    def noted(self, text: str) -> None:
        self.notes.append(text)


def small(*arms: Arm, **design: Any) -> Plan:
    """Two rounds of nothing but what is asked for."""
    return plan(*arms, **({"rounds": 2, "bracket": False, "aa": False, "warmups": 0} | design))


def database_of(folder: Path) -> Database:
    return open_database(f"sqlite:///{folder / 'night.db'}")


def queued(database: Database, planned: Plan, folder: Path, *, now: dt.datetime = NOW) -> str:
    """A run that waits."""
    recorder = create_run(database, planned, host=read_host(), weights=find_weights(planned), log_root=folder / "logs")
    queue.add(database, recorder.run_id, now=now)
    return recorder.run_id


def night_of(database: Database, teller: Teller, **settings: Any) -> Night:
    return Night(
        database=database,
        host=read_host(),
        lock=MachineLock("interlace work"),
        teller=teller,
        **settings,
    )


TWO = (arm("a"), arm("b"))
