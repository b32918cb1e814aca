"""A run's state in the database while it runs: its current step, and a sign that its process lives.

`run.current` is the runner's current step, written when a trial begins, while it waits and when its measuring begins:

    state                       preflight | loading | gate | running | after
    sequence, attempt           of the schedule; absent before the first trial
    label, arm, kind, round     of the trial (preflight: the arm alone); `rounds` of the plan
    waiting                     gate: the condition that is waited for
    started_at, ends_at         UTC; the latter predicted from the trials so far, absent before the first
    done, total                 trials of this execution

A trial that `current` names and that is not stored was running when its runner died.
"""

import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table

from db import models
from db.engine import Database
from db.errors import StorageError
from db.session import plain_transaction
from orchestrator.running.events import Observer
from orchestrator.running.progress import Remainder, Unit
from orchestrator.running.trial import Outcome, Verdict
from orchestrator.schedule import ScheduledTrial

_RUN: Table = models.Base.metadata.tables[models.Run.__tablename__]
HEARTBEAT_S = 10.0
WAITING_WRITTEN_EVERY_S = 2.0


@dataclass(slots=True)
class Chronicle(Observer):
    """Writes `run.current`. A failed write does not end the run: the next trial's commit raises."""

    database: Database
    run_id: str
    rounds: int
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    _current: dict[str, Any] = field(default_factory=dict)
    _attempt: int = 0
    _done: int = 0
    _total: int = 0
    _began_s: float = 0.0
    _waiting_written_s: float = float("-inf")

    def checking(self, arm: str) -> None:
        self._write({"state": "preflight", "label": arm, "arm": arm})

    def started(self, left: Remainder) -> None:
        self._began_s = self.clock()
        self._total = sum(len(unit.trials) for unit in left.units)

    def unit_started(self, unit: Unit) -> None:
        self._attempt = unit.attempt

    def unit_replayed(self, unit: Unit) -> None:
        self._total += len(unit.trials)

    def trial_started(self, trial: ScheduledTrial) -> None:
        self._write(
            {
                "state": "loading",
                "sequence": trial.sequence,
                "attempt": self._attempt,
                "label": trial.label,
                "arm": trial.arm,
                "kind": trial.kind,
                "round": trial.round,
            }
        )

    def waiting(self, text: str) -> None:
        if self.clock() - self._waiting_written_s < WAITING_WRITTEN_EVERY_S:
            return
        self._waiting_written_s = self.clock()
        self._write(self._current | {"state": "gate", "waiting": text})

    def measuring(self, trial: ScheduledTrial) -> None:
        self._write({key: value for key, value in self._current.items() if key != "waiting"} | {"state": "running"})

    def trial_ended(self, trial: ScheduledTrial, verdict: Verdict, outcome: Outcome) -> None:
        self._done += 1
        self._waiting_written_s = float("-inf")
        if self._done == self._total:
            self._write({"state": "after"})

    def _write(self, values: Mapping[str, Any]) -> None:
        now = self.now()
        began = {"started_at": now.isoformat(), "rounds": self.rounds}
        self._current = began | dict(values) | {"done": self._done, "total": self._total}
        if self._done:
            left_s = (self.clock() - self._began_s) / self._done * (self._total - self._done)
            self._current["ends_at"] = (now + dt.timedelta(seconds=left_s)).isoformat(timespec="seconds")
        _store(self.database, self.run_id, current=self._current, heartbeat_at=now)


class Heartbeat:
    """Stamps `run.heartbeat_at` from a separate thread, which never delays the process's end.

    Attributes:
        beats, cpu_s: their number, and the CPU time that they cost this process.
    """

    def __init__(self, database: Database, run_id: str, *, interval_s: float = HEARTBEAT_S) -> None:
        self._database, self._run_id, self._interval_s = database, run_id, interval_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="run heartbeat", daemon=True)
        self.beats, self.cpu_s = 0, 0.0

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(1.0)

    def _beat(self) -> None:
        while not self._over.wait(self._interval_s):
            _store(self._database, self._run_id, heartbeat_at=dt.datetime.now(dt.UTC))
            self.beats, self.cpu_s = self.beats + 1, time.thread_time()


def _store(database: Database, run_id: str, **values: Any) -> None:
    try:
        with plain_transaction(database) as connection:
            connection.execute(_RUN.update().where(_RUN.c.id == run_id).values(**values))
    except StorageError:
        return  # locked for long, or disk full: the next trial's commit will report it
