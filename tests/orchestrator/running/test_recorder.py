"""Recording a run: its end is stored once, its trials are numbered in their order, and what is known stays."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from db import models
from db.session import read_only, transaction
from orchestrator.errors import HeldError
from orchestrator.running.gate import Passage
from orchestrator.running.progress import UnderWay, Unit
from orchestrator.running.recorder import Recorder, finish_run
from orchestrator.running.trial import Fault, LoadMemory, Outcome
from orchestrator.schedule import ScheduledTrial, build_schedule
from tests.orchestrator.plans import arm, plan
from workers.machine.host import read_host
from workers.machine.process_identity import Lease, current_lease
from workers.machine.telemetry import Reading
from workers.protocol import Hello, Loaded

PLANNED = plan(arm("a"), arm("b"))
SCHEDULE = build_schedule(PLANNED)


def run_of(recorder: Recorder) -> models.Run:
    with read_only(recorder.database) as session:
        return session.get_one(models.Run, recorder.run_id)


def trials_of(recorder: Recorder) -> list[models.Trial]:
    with read_only(recorder.database) as session:
        return list(session.scalars(select(models.Trial).order_by(models.Trial.ordinal)))


def under_way(trials: Sequence[ScheduledTrial], attempt: int = 0) -> UnderWay:
    unit = Unit.of(trials, attempt=attempt, seed=None)
    return UnderWay(trial=trials[0], unit=unit, started_at="2026-11-30T22:00:00+00:00")


def of_round(number: int | None) -> list[ScheduledTrial]:
    return [trial for trial in SCHEDULE if trial.round == number]


def test_the_first_end_of_a_run_is_the_one_that_stays(recorder: Recorder) -> None:
    recorder.finish("done", note="first")
    ended = run_of(recorder)
    assert (ended.status, ended.note) == ("done", "first")
    assert ended.finished_at is not None
    recorder.finish("done", note="second")
    again = run_of(recorder)
    assert (again.note, again.finished_at) == ("first", ended.finished_at)


@pytest.mark.parametrize(("status", "has_ended"), [("done", True), ("failed", True), ("interrupted", False)])
def test_only_what_does_not_go_on_has_an_end(recorder: Recorder, status: str, *, has_ended: bool) -> None:
    finish_run(recorder.database, recorder.run_id, status, note="why")
    run = run_of(recorder)
    assert (run.status, run.note, run.finished_at is not None) == (status, "why", has_ended)
    finish_run(recorder.database, "another run", "failed")
    assert run_of(recorder).status == status


def test_each_trial_has_the_place_after_the_last_one_also_for_a_second_recorder(recorder: Recorder) -> None:
    first, second, third, fourth = (under_way([trial]) for trial in of_round(None)[:2] + of_round(0)[:2])
    recorder.save_interrupted(first)
    recorder.save_interrupted(second)
    later = Recorder(database=recorder.database, plan=PLANNED, run_id=recorder.run_id, arm_ids=recorder.arm_ids)
    later.save_interrupted(third)
    later.save_interrupted(fourth)
    assert [trial.ordinal for trial in trials_of(recorder)] == [0, 1, 2, 3]


def test_a_trial_that_was_cut_short_keeps_its_place_and_counts_as_nothing(recorder: Recorder) -> None:
    trials = of_round(1)
    recorder.save_interrupted(under_way(trials, attempt=2))
    (stored,) = trials_of(recorder)
    assert (stored.sequence, stored.position, stored.kind) == (trials[0].sequence, trials[0].position, "measured")
    assert (stored.status, stored.excluded_reason) == ("interrupted", "interrupted: the process that ran it ended")
    assert stored.started_at == dt.datetime(2026, 11, 30, 22, tzinfo=dt.UTC)
    with read_only(recorder.database) as session:
        round_ = session.get_one(models.Round, stored.round_id)
    assert (round_.index, round_.attempt, round_.order) == (1, 2, [trial.label for trial in trials])
    assert round_.prompt_id == trials[0].prompt_ids[0]


def test_a_round_is_one_row_per_attempt(recorder: Recorder) -> None:
    for number, attempt, place in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)):
        trials = of_round(number)
        recorder.save_interrupted(under_way(trials[place:] + trials[:place], attempt=attempt))
    first, same, again, other = (trial.round_id for trial in trials_of(recorder))
    assert first == same
    assert len({first, again, other}) == 3


def test_a_trial_that_is_measured_again_belongs_to_the_new_attempt(recorder: Recorder) -> None:
    for attempt in (0, 1):
        recorder.save(measured(of_round(0)[0]), attempt=attempt, order=["a", "b"])
    assert len({trial.round_id for trial in trials_of(recorder)}) == 2


def test_an_unfinished_round_is_left_out_and_no_other(recorder: Recorder) -> None:
    """A trial that was no result keeps saying so."""
    states = ["done", "done", "invalid"]
    for trial in (of_round(0)[0], *of_round(1)[:2]):
        recorder.save_interrupted(under_way([trial]))
    with transaction(recorder.database) as session:
        stored = session.scalars(select(models.Trial).order_by(models.Trial.ordinal))
        for row, status in zip(stored, states, strict=True):
            row.status, row.excluded_reason = status, None
    recorder.exclude_round(1, reason="cut short")
    recorder.exclude_round(1, reason="a second reason")
    assert [(trial.status, trial.excluded_reason) for trial in trials_of(recorder)] == [
        ("done", None),
        ("excluded", "cut short"),
        ("invalid", "cut short"),
    ]


def test_a_run_that_somebody_runs_is_not_taken(recorder: Recorder) -> None:
    own = current_lease()
    recorder.take_lease(own)
    recorder.take_lease(own)  # its own
    run = run_of(recorder)
    assert (run.status, run.runner_pid, run.boot_id) == ("running", own.pid, own.boot_id)
    assert run.heartbeat_at is not None
    other = Lease(pid=own.pid + 1, process_started_at=own.process_started_at, boot_id=own.boot_id)
    with pytest.raises(HeldError):
        recorder.take_lease(other)
    assert run_of(recorder).runner_pid == own.pid


def test_a_dropped_arm_has_its_reason(recorder: Recorder) -> None:
    recorder.arm_dropped(PLANNED.arms[1], "too slow")
    with read_only(recorder.database) as session:
        states = {row.name: (row.state, row.state_reason) for row in session.scalars(select(models.Arm))}
    assert states == {"a": ("active", None), "b": ("dropped", "too slow")}


def test_a_run_is_simulated_where_all_of_its_arms_are(recorder: Recorder) -> None:
    assert recorder.simulated


def measured(trial: ScheduledTrial, **changes: Any) -> Outcome:
    """As it was seen: level 1 before, 2 while it ran, 0 after."""

    def level(field: str, value: float) -> Reading:
        return Reading(field=field, value=value, source="test")

    seen = Outcome(
        trial=trial,
        started_at=dt.datetime(2026, 11, 30, 22, tzinfo=dt.UTC),
        wall_s=10.0,
        monotonic_s=10.25,
        passage=Passage(waited_s=3.0, waited_for={"thermal_level": 3.0}),
        generations=[],
        fault=None,
        before=(level("thermal_level", 1), Reading(field="power_source", value_text="mains", source="test")),
        during=(level("thermal_level_max", 2),),
        after=(level("thermal_level", 0),),
        log_path="/logs/a",
    )
    return replace(seen, **changes)


def test_a_trial_is_stored_with_its_state_and_every_reading(recorder: Recorder) -> None:
    trial = of_round(0)[0]
    verdict = recorder.save(measured(trial), attempt=0, order=["a", "b"])
    (row,) = trials_of(recorder)
    assert (row.status, row.excluded_reason) == (verdict.status, verdict.excluded_reason)
    assert (row.status, row.excluded_reason) == ("excluded", "thermal: level 2 while it ran, above 1")
    assert (row.thermal_before, row.thermal_max, row.thermal_after, row.thermal_reason) == (1, 2, 0, None)
    assert (row.power_source, row.power_reason) == ("mains", None)
    assert (row.wall_s, row.monotonic_s, row.gate_wait_s, row.gate_state) == (10.0, 10.25, 3.0, "waited")
    assert (row.error_kind, row.error_message, row.log_path, row.ordinal) == (None, None, "/logs/a", 0)
    with read_only(recorder.database) as session:
        readings = {(each.phase, each.field): each.value for each in session.scalars(select(models.Telemetry))}
    assert readings == {
        ("before", "thermal_level"): 1.0,
        ("before", "power_source"): None,
        ("during", "thermal_level_max"): 2.0,
        ("after", "thermal_level"): 0.0,
    }


def test_a_fault_is_stored_with_its_kind_and_what_is_unknown_with_its_reason(recorder: Recorder) -> None:
    unread = (Reading(field="thermal_level", reason="no sensor"), Reading(field="power_source", reason="no battery"))
    fault = Fault(kind="crashed", message="it ended")
    recorder.save(
        measured(of_round(0)[0], fault=fault, before=unread, during=(), after=()), attempt=0, order=["a", "b"]
    )
    (row,) = trials_of(recorder)
    assert (row.status, row.error_kind, row.error_message) == ("invalid", "crashed", "it ended")
    assert (row.thermal_before, row.thermal_max, row.thermal_after) == (None, None, None)
    assert (row.thermal_reason, row.power_source, row.power_reason) == ("no sensor", None, "no battery")


@pytest.mark.parametrize(("drafted", "width", "block_size"), [(3, 4, 4), (None, 1, None)])
def test_what_loading_showed_is_the_arms_and_its_versions_make_its_fingerprint(
    recorder: Recorder, drafted: int | None, width: int, block_size: int | None
) -> None:
    loaded = Loaded(
        load_s=1.5,
        active_memory_bytes=7,
        peak_memory_bytes=9,
        simulated=True,
        drafted_per_step=drafted,
        verify_width=width,
        engine_version="1.2",
    )
    memory = LoadMemory(planned_bytes=5, footprint_bytes=6, note="more")
    found = []
    for mlx in ("0.32.0", "0.32.0", "0.32.1"):
        hello = Hello(protocol=1, pid=1, python="3.13", versions={"mlx": mlx})
        recorder.arm_loaded(PLANNED.arms[0], hello, loaded, read_host(), memory=memory)
        with read_only(recorder.database) as session:
            found.append(session.get_one(models.Arm, recorder.arm_ids["a"]))
    row = found[0]
    assert (row.block_size, row.drafted_per_step, row.engine_version) == (block_size, drafted, "1.2")
    assert (row.load_s, row.active_memory_bytes) == (1.5, 7)
    assert (row.planned_weights_bytes, row.footprint_bytes, row.memory_note) == (5, 6, "more")
    assert found[0].fingerprint == found[1].fingerprint != found[2].fingerprint
    recorder.save(measured(of_round(0)[0]), attempt=0, order=["a", "b"])
    assert {trial.environment_id for trial in trials_of(recorder)} <= {*recorder.environment_ids.values(), None}
