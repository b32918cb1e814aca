"""Nights of simulated runs: errors, times, what is checked before, and what the morning finds."""

import datetime as dt
from pathlib import Path

import pytest
from sqlalchemy import Engine as Database
from sqlalchemy import text

from db import queue
from db.errors import StorageError
from db.live import life
from db.session import transaction
from orchestrator.errors import HeldError, IncompleteError, InputError, RefusedError, StoppedError
from orchestrator.queue.agenda import waiting_here
from orchestrator.queue.entry_check import HOLDS, WHOLE_RUN, needs_check, stands_in_the_way
from orchestrator.queue.entry_run import note_of, state_after
from orchestrator.queue.night import Night
from orchestrator.running.events import Observer
from orchestrator.schedule import ScheduledTrial
from tests.orchestrator.plans import arm
from tests.orchestrator.queue.nights import NOW, TWO, Teller, database_of, night_of, queued, small
from workers.machine.host import read_host


def states(night: Night) -> list[tuple[str, str | None]]:
    return [(ended.state, ended.note) for ended in night.ended]


def test_one_runs_error_does_not_end_the_night(tmp_path: Path) -> None:
    database, teller = database_of(tmp_path), Teller()
    broken = queued(database, small(arm("a", fault="no such"), arm("b")), tmp_path)
    good = queued(database, small(*TWO), tmp_path)
    night = night_of(database, teller)
    night.drain()
    assert teller.begun == [broken, good]
    assert [ended.state for ended in night.ended] == ["failed", "done"]
    assert "arm a failed its preflight: unsupported_setting" in str(night.ended[0].note)
    failed, done = queue.entry_of(database, broken), queue.entry_of(database, good)
    assert failed is not None
    assert done is not None
    assert (failed.state, failed.run_status) == ("failed", "failed")
    assert "unsupported_setting" in str(failed.note)
    assert (done.state, done.run_status) == ("done", "done")
    assert night.ended[1].verdicts.startswith("SIMULATED. b against a:")


def test_what_would_fail_at_three_is_known_at_ten(tmp_path: Path) -> None:
    database, teller = database_of(tmp_path), Teller()
    broken = queued(database, small(arm("a"), arm("fast", acceptance=0.7, fallback=True)), tmp_path)
    partly = queued(
        database, small(*TWO, arm("fast", acceptance=0.7, fallback=True), on_preflight_failure="drop"), tmp_path
    )
    night = night_of(database, teller, now=lambda: NOW)
    night.check(waiting_here(database, read_host()))
    assert [(check.entry.run_id, check.refused is None) for check in teller.checks] == [(broken, False), (partly, True)]
    assert "not_engaged" in str(teller.checks[0].found["fast"])
    assert teller.checks[0].found["a"] is None
    assert states(night)[0][0] == "failed"
    (waiting,) = queue.entries(database)
    assert waiting.run_id == partly
    assert waiting.checked is not None
    assert set(waiting.checked) == {"a", "b", "fast"}
    assert waiting.trials == 0  # a preflight stores no trial
    assert life(database, broken).status == "failed"


def test_a_check_that_found_nothing_holds_for_some_hours(tmp_path: Path) -> None:
    database = database_of(tmp_path)
    run_id = queued(database, small(*TWO), tmp_path)
    entry = queue.entry_of(database, run_id)
    assert entry is not None
    assert needs_check(entry, now=NOW)
    queue.store_check(database, run_id, {"a": None, "b": None}, now=NOW)
    entry = queue.entry_of(database, run_id)
    assert entry is not None
    assert not needs_check(entry, now=NOW + HOLDS)
    assert needs_check(entry, now=NOW + HOLDS + dt.timedelta(seconds=1))
    queue.store_check(database, run_id, {"a": None, "b": "hung_load: ..."}, now=NOW)
    entry = queue.entry_of(database, run_id)
    assert entry is not None
    assert needs_check(entry, now=NOW)


def test_whether_a_problem_stands_in_the_way_is_the_designs_choice() -> None:
    stop, drop = small(*TWO), small(*TWO, on_preflight_failure="drop")
    assert stands_in_the_way(stop, {"a": None, "b": None}) is None
    assert stands_in_the_way(stop, {"a": None, "b": "hung"}) == "arm b: hung"
    assert stands_in_the_way(drop, {"a": None, "b": "hung"}) is None
    assert stands_in_the_way(drop, {"a": "hung", "b": None}) == "its control a: hung"
    assert stands_in_the_way(drop, {WHOLE_RUN: "too large"}) == "too large"


def stored_verdicts(database: Database, run_id: str) -> int:
    with transaction(database) as session:
        return session.execute(text("SELECT count(*) FROM audit WHERE run_id = :id"), {"id": run_id}).scalar_one()


class Clock:
    """Time that passes with each question."""

    def __init__(self, step: dt.timedelta) -> None:
        self.now, self.step = NOW, step

    def __call__(self) -> dt.datetime:
        self.now += self.step
        return self.now


def test_at_the_time_the_round_is_finished_and_the_next_night_goes_on(tmp_path: Path) -> None:
    database, teller = database_of(tmp_path), Teller()
    first = queued(database, small(*TWO, rounds=40), tmp_path)
    second = queued(database, small(*TWO), tmp_path)
    clock = Clock(dt.timedelta(minutes=1))
    night = night_of(database, teller, until=NOW + dt.timedelta(minutes=8), now=clock)
    night.drain()
    assert teller.begun == [first]
    assert night.is_over
    entry = queue.entry_of(database, first)
    assert entry is not None
    assert entry.state == "waiting"
    assert "stopped as requested" in str(entry.note)
    assert entry.run_status == "interrupted"
    assert 0 < entry.trials < 80
    assert entry.trials % 2 == 0  # whole rounds
    assert night.ended[0].verdicts.startswith("SIMULATED. b against a:")
    assert stored_verdicts(database, first) == 0  # half a run's are of the moment
    assert [each.entry.run_id for each in waiting_here(database, read_host())] == [first, second]
    tomorrow = night_of(database, Teller())
    tomorrow.drain()
    assert [ended.state for ended in tomorrow.ended] == ["done", "done"]
    with transaction(database) as session:
        counted = session.execute(
            text("SELECT count(*), count(DISTINCT sequence) FROM trial WHERE run_id = :id"), {"id": first}
        ).one()
    assert tuple(counted) == (80, 80)
    assert stored_verdicts(database, first) > 0


class Interrupts(Observer):
    """Ctrl-C within the first trial."""

    def measuring(self, trial: ScheduledTrial) -> None:
        raise KeyboardInterrupt


def test_an_interruption_ends_the_night_and_the_run_keeps_its_place(tmp_path: Path) -> None:
    database, teller = database_of(tmp_path), Teller(Interrupts())
    run_id = queued(database, small(*TWO), tmp_path)
    queued(database, small(*TWO), tmp_path)
    night = night_of(database, teller)
    with pytest.raises(KeyboardInterrupt):
        night.drain()
    assert states(night) == [("waiting", "interrupted by hand")]
    assert queue.entries(database)[0].run_id == run_id


def test_runs_of_another_machine_wait_for_that_machine(tmp_path: Path) -> None:
    database = database_of(tmp_path)
    queued(database, small(*TWO), tmp_path)
    with transaction(database) as session:
        session.execute(text("UPDATE host SET machine_sha256 = 'another'"))
    assert waiting_here(database, read_host()) == []
    assert len(queue.entries(database)) == 1


def test_a_run_whose_plan_this_version_cannot_read_fails_alone(tmp_path: Path) -> None:
    database = database_of(tmp_path)
    run_id = queued(database, small(*TWO), tmp_path)
    with transaction(database) as session:
        session.execute(text("UPDATE run SET plan = json_set(plan, '$.version', 999)"))
    (waiting,) = waiting_here(database, read_host())
    assert waiting.plan is None
    night = night_of(database, Teller())
    night.drain()
    assert night.ended[0].run_id == run_id
    assert night.ended[0].state == "waiting"  # the version that made it can run it
    assert "use the interlace version that made it" in str(night.ended[0].note)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (StoppedError(3), "waiting"),
        (KeyboardInterrupt(), "waiting"),
        (RefusedError("power comes from battery"), "waiting"),
        (HeldError("process 7"), "waiting"),
        (StorageError("disk full"), "waiting"),
        (InputError("arm b failed its preflight"), "failed"),
        (IncompleteError("the control takes no further part"), "failed"),
        (RuntimeError("a fault of the program"), "failed"),
    ],
)
def test_only_what_would_end_the_same_way_again_leaves_the_queue(error: BaseException, state: str) -> None:
    assert state_after(error) == state


def test_a_note_says_what_it_was() -> None:
    assert note_of(RuntimeError("no such thing")) == "RuntimeError: no such thing"
    assert note_of(InputError("arm b: no draft")) == "arm b: no draft"
    assert note_of(KeyboardInterrupt()) == "interrupted by hand"
