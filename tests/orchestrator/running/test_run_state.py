"""A run's state in the database while it runs, and the fate of a trial in which its process died."""

import datetime as dt
import time

import psutil
import pytest
from sqlalchemy import Connection, event, select, text

from db import models
from db.session import read_only, transaction
from orchestrator.errors import HeldError, StoppedError
from orchestrator.running.events import Observer
from orchestrator.running.execution import carry_out, run_recorded
from orchestrator.running.progress import Remainder, Unit, remainder
from orchestrator.running.recorder import Recorder, spoil_newest_trial
from orchestrator.running.run_state import Chronicle, Heartbeat
from orchestrator.running.stored import stored_trials
from orchestrator.running.trial import Fault, Outcome, Verdict
from orchestrator.schedule import ScheduledTrial, build_schedule
from tests.orchestrator.plans import arm, plan
from workers.machine.process_identity import Lease, current_lease, started_s

NOW = dt.datetime(2026, 11, 30, 22, 0, tzinfo=dt.UTC)
PLANNED = plan(arm("a"), arm("b"))


class DiesAt(Observer):
    """Ends the run as a kill would, within the trial that has this number."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence

    def measuring(self, trial: ScheduledTrial) -> None:
        if trial.sequence == self.sequence:
            raise KeyboardInterrupt


def run_row(recorder: Recorder) -> models.Run:
    with read_only(recorder.database) as session:
        return session.get_one(models.Run, recorder.run_id)


def trials(recorder: Recorder) -> list[tuple[int, int, str, str | None]]:
    """(sequence, attempt, status, why it is left out) of the measured trials, as stored."""
    query = (
        select(models.Trial.sequence, models.Round.attempt, models.Trial.status, models.Trial.excluded_reason)
        .join(models.Round)
        .order_by(models.Trial.ordinal)
    )
    with read_only(recorder.database) as session:
        return [(number, attempt, status, why) for number, attempt, status, why in session.execute(query)]


def test_a_trial_that_its_process_died_in_is_stored_and_its_round_replayed_whole(recorder: Recorder) -> None:
    scheduled = [trial for trial in build_schedule(PLANNED) if trial.round == 1]
    with pytest.raises(KeyboardInterrupt):
        carry_out(recorder, observer=DiesAt(scheduled[1].sequence))
    left = run_row(recorder)
    assert left.status == "interrupted"
    assert left.current is not None
    assert (left.current["state"], left.current["label"]) == ("running", scheduled[1].label)
    carry_out(recorder, observer=Observer())
    of_round = [row for row in trials(recorder) if row[0] in {trial.sequence for trial in scheduled}]
    interrupted = "interrupted: the process that ran it ended"
    assert of_round == [
        (scheduled[0].sequence, 0, "excluded", "round_cut_short: replayed whole"),
        (scheduled[1].sequence, 0, "interrupted", interrupted),
        *((trial.sequence, 1, "done", None) for trial in scheduled),
    ]
    assert run_row(recorder).status == "done"
    assert run_row(recorder).current is None


class FailsThenDies(DiesAt):
    """A trial turns out to be invalid, then the run ends within the next one."""

    def __init__(self, recorder: Recorder, failed: ScheduledTrial, killed: ScheduledTrial) -> None:
        super().__init__(killed.sequence)
        self.recorder, self.failed = recorder, failed

    def trial_ended(self, trial: ScheduledTrial, verdict: Verdict, outcome: Outcome) -> None:
        if trial == self.failed:
            fault = Fault(kind="teardown_hang", message="did not stop")
            database, run_id, arm_id = self.recorder.database, self.recorder.run_id, self.recorder.arm_ids[trial.arm]
            spoil_newest_trial(database, run_id=run_id, arm_id=arm_id, fault=fault)


def test_an_invalid_trial_of_a_round_cut_short_keeps_its_fault_and_the_round_is_replayed_whole(
    recorder: Recorder,
) -> None:
    first, second, *_ = scheduled = [trial for trial in build_schedule(PLANNED) if trial.round == 1]
    with pytest.raises(KeyboardInterrupt):
        carry_out(recorder, observer=FailsThenDies(recorder, first, second))
    carry_out(recorder, observer=Observer())
    assert [row for row in trials(recorder) if row[0] in {trial.sequence for trial in scheduled}] == [
        (first.sequence, 0, "invalid", "round_cut_short: replayed whole"),
        (second.sequence, 0, "interrupted", "interrupted: the process that ran it ended"),
        *((trial.sequence, 1, "done", None) for trial in scheduled),
    ]
    with read_only(recorder.database) as session:
        (invalid,) = session.scalars(select(models.Trial).filter_by(status="invalid"))
    assert (invalid.error_kind, invalid.error_message) == ("teardown_hang", "did not stop")


def test_what_is_left_out_once_does_not_count_a_second_time(recorder: Recorder) -> None:
    """A process that ends between leaving a round out and replaying it finds nothing more to leave out."""
    first, second, *_ = (trial for trial in build_schedule(PLANNED) if trial.round == 1)
    with pytest.raises(KeyboardInterrupt):
        carry_out(recorder, observer=FailsThenDies(recorder, first, second))
    recorder.exclude_round(1, reason="round_cut_short: replayed whole")
    recorder.exclude_round(1, reason="another reason")
    stored = stored_trials(recorder.database, recorder.run_id)
    assert remainder(build_schedule(PLANNED), stored.trials).broken_rounds == ()
    assert all(why != "another reason" for *_, why in trials(recorder))


def test_a_control_run_that_its_process_died_in_runs_again(recorder: Recorder) -> None:
    first = next(trial for trial in build_schedule(PLANNED) if trial.kind == "bracket")
    with pytest.raises(KeyboardInterrupt):
        carry_out(recorder, observer=DiesAt(first.sequence))
    carry_out(recorder, observer=Observer())
    with read_only(recorder.database) as session:
        stored = session.scalars(select(models.Trial).filter_by(sequence=first.sequence)).all()
    assert sorted(trial.status for trial in stored) == ["done", "interrupted"]


def test_a_process_that_died_between_two_trials_leaves_no_interrupted_one(recorder: Recorder) -> None:
    def stop_after_the_first_round() -> bool:
        return len(trials(recorder)) >= 3

    with pytest.raises(StoppedError):
        carry_out(recorder, observer=Observer(), should_stop=stop_after_the_first_round)
    run_recorded(recorder, observer=Observer())
    assert {status for _, _, status, _ in trials(recorder)} == {"done"}


def test_a_run_that_a_living_process_runs_is_left_alone(recorder: Recorder) -> None:
    parent = Lease(pid=1, process_started_at=started_s(psutil.Process(1)), boot_id=None)
    recorder.take_lease(parent)
    with pytest.raises(HeldError, match="is being run by process 1"):
        carry_out(recorder, observer=Observer())
    assert run_row(recorder).status == "running"
    with transaction(recorder.database) as session:
        session.execute(text("UPDATE run SET boot_id = 'another boot'"))
    recorder.take_lease(current_lease())
    assert run_row(recorder).runner_pid != 1


def test_current_says_what_the_run_is_at(recorder: Recorder) -> None:
    clock = [0.0]
    chronicle = Chronicle(recorder.database, recorder.run_id, 6, clock=lambda: clock[0], now=lambda: NOW)
    schedule = build_schedule(PLANNED)
    left = remainder(schedule, [])
    unit: Unit = left.units[1]
    trial = unit.trials[0]

    def current() -> dict[str, object]:
        found = run_row(recorder).current
        assert found is not None
        return found

    chronicle.checking("b")
    assert current()["state"] == "preflight"
    chronicle.started(Remainder(units=left.units, broken_rounds=()))
    chronicle.unit_started(unit)
    chronicle.trial_started(trial)
    assert current()["state"] == "loading"
    assert "ends_at" not in current()
    chronicle.waiting("hot: 1 for 3 s")
    clock[0] = 1.0
    chronicle.waiting("hot: 1 for 4 s")
    assert current()["waiting"] == "hot: 1 for 3 s"  # a look a second is written every other one
    clock[0] = 2.0
    chronicle.waiting("hot: 1 for 5 s")
    assert current()["waiting"] == "hot: 1 for 5 s"
    chronicle.measuring(trial)
    assert current()["state"] == "running"
    assert "waiting" not in current()
    chronicle.trial_ended(trial, None, None)  # type: ignore[arg-type]  # it looks at neither
    clock[0] = 4.0
    chronicle.trial_started(unit.trials[1])
    assert current() == {
        "state": "loading",
        "sequence": unit.trials[1].sequence,
        "attempt": 0,
        "label": unit.trials[1].label,
        "arm": unit.trials[1].arm,
        "kind": "measured",
        "round": 0,
        "rounds": 6,
        "started_at": NOW.isoformat(),
        "done": 1,
        "total": 20,
        "ends_at": (NOW + dt.timedelta(seconds=4 * 19)).isoformat(timespec="seconds"),
    }


def test_a_heartbeat_stamps_the_run_and_knows_what_it_costs(recorder: Recorder) -> None:
    with Heartbeat(recorder.database, recorder.run_id, interval_s=0.01) as heartbeat:
        deadline = time.monotonic() + 10
        while heartbeat.beats < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert run_row(recorder).heartbeat_at is not None
    assert 0 < heartbeat.cpu_s < 5
    beats = heartbeat.beats
    time.sleep(0.05)
    assert heartbeat.beats == beats


def test_a_sign_of_life_that_cannot_be_written_ends_nothing(recorder: Recorder, database_full: None) -> None:
    Chronicle(recorder.database, recorder.run_id, 6).checking("a" * 100_000)
    assert run_row(recorder).current is None


@pytest.fixture
def database_full(recorder: Recorder) -> None:
    """No page more than there are."""

    @event.listens_for(recorder.database, "begin")
    def limit(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count=1")
