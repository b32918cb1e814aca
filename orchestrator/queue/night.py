"""A night: executes the queue of this machine, run after run, until it is empty or the time is up.

No run's error ends it; only an interruption does, or a database that cannot be written to. The queue is read again
after each run, so runs that are added, moved or cancelled meanwhile count.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from db import queue
from db.engine import Database
from db.errors import StorageError
from db.live import problems
from db.queue import Entry
from orchestrator.errors import InputError, RefusedError, StoppedError
from orchestrator.planning.fetching import fetch_weights
from orchestrator.queue.agenda import Waiting, waiting_here
from orchestrator.queue.entry_check import check_run, needs_check, stands_in_the_way
from orchestrator.queue.entry_run import note_of, run_entry, state_after
from orchestrator.queue.machine_lock import MachineLock
from orchestrator.running.events import Observer
from orchestrator.running.provenance import plan_to_execute
from orchestrator.running.recorder import finish_run
from workers.machine.host import HostFacts

if TYPE_CHECKING:
    from workers.weights.hub_download import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of one run in this night."""

    run_id: str
    experiment: str
    state: str  # done | failed | waiting
    note: str | None
    started_at: dt.datetime
    ended_at: dt.datetime
    verdicts: str  # as sentences; empty: nothing was judged
    problems: tuple[str, ...]  # of its trials and arms


class Teller(Protocol):
    """Receives the events of a night."""

    def run_begins(self, entry: Entry) -> AbstractContextManager[Observer]: ...
    def run_ended(self, ended: Ended) -> None: ...
    def fetching(self) -> "AbstractContextManager[Callable[[Progress], None]]": ...
    def checking(self, entry: Entry) -> None: ...
    def checked(self, found: "Sequence[Check]") -> None: ...
    def noted(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one run's preflight."""

    entry: Entry
    found: dict[str, str | None]  # by arm
    refused: str | None  # why it does not start; None: it starts


@dataclass(slots=True, kw_only=True)
class Night:
    """One night on this machine."""

    database: Database
    host: HostFacts
    lock: MachineLock
    teller: Teller
    until: dt.datetime | None = None
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    ended: list[Ended] = field(default_factory=list)
    # Called after each run; returns what became of the search that the run is a step of, and stores its next step.
    then: Callable[[Database, Entry], list[str]] = lambda database, entry: []
    unfetched: set[str] = field(default_factory=set)  # runs whose weights could not be fetched at the start

    @property
    def is_over(self) -> bool:
        """Return whether the time is up."""
        return self.until is not None and self.now() >= self.until

    def fetch(self, waiting: Sequence[Waiting]) -> None:
        """Fetch the weights that the waiting runs lack, before any of them is measured.

        A run whose weights do not exist any more is parked with the reason. One whose weights cannot be fetched now
        tries again when its turn comes.
        """
        for each in waiting:
            if each.plan is None:
                continue
            try:
                plan = plan_to_execute(self.database, each.entry.run_id)
                with self.teller.fetching() as tell:
                    fetch_weights(plan, tell=tell, should_stop=lambda: self.is_over)
            except InputError as error:
                self._fail(each.entry, f"its weights cannot be fetched: {error}")
                self.teller.run_ended(self.ended[-1])
            except RefusedError as error:
                self.unfetched.add(each.entry.run_id)
                self.teller.noted(f"{each.entry.experiment}: {error}")

    def check(self, waiting: Sequence[Waiting]) -> None:
        """Run the preflight of all waiting runs; a run that fails is reported at once and does not start."""
        found = []
        parked = self.unfetched | {each.run_id for each in self.ended}
        for each in waiting:
            if each.plan is None or each.entry.run_id in parked or not needs_check(each.entry, now=self.now()):
                continue
            self.teller.checking(each.entry)
            self.lock.at(each.entry.run_id)
            checked = check_run(
                self.database, each.plan, each.entry.run_id, host=self.host, note=self.teller.noted, now=self.now()
            )
            refused = stands_in_the_way(each.plan, checked)
            found.append(Check(entry=each.entry, found=checked, refused=refused))
            if refused is not None:
                self._fail(each.entry, f"preflight: {refused}")
        self.lock.at(None)
        self.teller.checked(found)

    def _fail(self, entry: Entry, note: str) -> None:
        finish_run(self.database, entry.run_id, "failed", note=note)
        queue.settle(self.database, entry.run_id, "failed", note=note)
        at = self.now()
        self.ended.append(
            Ended(
                run_id=entry.run_id,
                experiment=entry.experiment,
                state="failed",
                note=note,
                started_at=at,
                ended_at=at,
                verdicts="",
                problems=(),
            )
        )

    def drain(self) -> None:
        """Execute the waiting runs.

        Raises:
            KeyboardInterrupt: interrupted; the current run keeps its place.
            StorageError: nothing can be stored.
        """
        tried: set[str] = set()
        while not self.is_over:
            left = [each for each in waiting_here(self.database, self.host) if each.entry.run_id not in tried]
            if not left:
                return
            tried.add(left[0].entry.run_id)
            self._run(left[0].entry)
            self._continue(left[0].entry)

    def _continue(self, entry: Entry) -> None:
        """Go on with the search that a run is a step of; its answer stands with the run."""
        try:
            lines = self.then(self.database, entry)
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 - reported; the next `work` tries again
            lines = [f"{entry.experiment} cannot go on now: {note_of(error)}; the next `interlace work` tries again"]
        for line in lines:
            self.teller.noted(line)
            self.ended[-1] = replace(self.ended[-1], verdicts=f"{self.ended[-1].verdicts}\n\n{line}.".strip())

    def _run(self, entry: Entry) -> None:
        began, error = self.now(), None
        try:
            with self.teller.run_begins(entry) as observer:
                run_entry(
                    self.database, entry.run_id, lock=self.lock, observer=observer, should_stop=lambda: self.is_over
                )
        except (KeyboardInterrupt, StorageError) as stop:
            self._note(entry, began, stop)
            raise
        except Exception as found:  # noqa: BLE001 - it is stored with the entry and reported; the next run goes on
            error = found
        self._note(entry, began, error)

    def _note(self, entry: Entry, began: dt.datetime, error: BaseException | None) -> None:
        readable = not isinstance(error, StorageError)
        partly = isinstance(error, StoppedError | KeyboardInterrupt)
        self.ended.append(
            Ended(
                run_id=entry.run_id,
                experiment=entry.experiment,
                state="done" if error is None else state_after(error),
                note=None if error is None else note_of(error),
                started_at=began,
                ended_at=self.now(),
                verdicts=self._verdicts(entry, store=not partly) if error is None or partly else "",
                problems=tuple(str(each) for each in problems(self.database, entry.run_id)) if readable else (),
            )
        )
        self.teller.run_ended(self.ended[-1])

    def _verdicts(self, entry: Entry, *, store: bool) -> str:
        """Return the verdicts as sentences. Those of an incomplete run are not stored: they are provisional."""
        from orchestrator.judging import judge, judge_run  # pandas: not before the first trial
        from orchestrator.stored_run import StoredRun

        run = StoredRun.load(self.database, entry.run_id)
        mark = "SIMULATED. " if entry.simulated else ""
        try:
            if store:
                return mark + judge_run(run).result.summary
            return mark + judge(run.trials, run.plan).summary
        except Exception as error:  # noqa: BLE001 - reported; a judgement can be made again, a night cannot
            self.teller.noted(f"run {entry.run_id} cannot be judged: {type(error).__name__}: {error}")
            return ""
