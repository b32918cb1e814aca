"""A night in seconds: real workers, a real database, a machine on a fake clock that heats up, is disturbed, sleeps and
has its clock set back. What is stored, and what the audit says of it."""

import datetime as dt
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import psutil
import pytest
from sqlalchemy import select

from db import models
from db.engine import Database
from db.frames import trials
from db.session import read_only, transaction
from orchestrator.errors import HeldError
from orchestrator.judging import judge_run
from orchestrator.plan import Gate
from orchestrator.planning.weights import find_weights
from orchestrator.running.execution import run_recorded
from orchestrator.running.recorder import Recorder, create_run, reopen_run
from orchestrator.schedule import ScheduledTrial
from orchestrator.stored_run import StoredRun
from tests.orchestrator.running.nights import QUIET, TICK_S, Night, State, planned, run_night
from tests.orchestrator.running.trials import Witness, rows
from workers.machine.host import read_host
from workers.machine.process_identity import started_s

HOUR_S = 3600.0


def disturbed(when: Callable[[float], bool], **changes: float) -> Callable[[float], State]:
    return lambda at_s: QUIET | changes if when(at_s) else QUIET


def reasons(found: Sequence[models.Trial]) -> list[str]:
    return [trial.excluded_reason for trial in found if trial.excluded_reason is not None]


def verdict(database: Database, recorder: Recorder) -> tuple[str, float, int, str]:
    """Return the faster arm's verdict, ratio, rounds and remarks over all prompts."""
    result = judge_run(StoredRun.load(database, recorder.run_id)).result
    (found,) = (one for one in result.comparisons if one.prompt_class is None and one.turn is None)
    assert found.ratio is not None
    return found.verdict, found.ratio, found.rounds, "; ".join(reason.text for reason in found.reasons)


def complete_rounds(found: Sequence[models.Trial]) -> int:
    return len([trial for trial in found if trial.status == "done"]) // 3


def test_a_quiet_night_is_stored_as_one(database: Database, tmp_path: Path) -> None:
    recorder, watcher = run_night(database, planned(), tmp_path, Night())
    measured = rows(database, recorder.run_id, kind="measured")
    assert {trial.gate_state for trial in measured} == {"open"}
    assert reasons(measured) == []
    assert watcher.replays == 0
    word, ratio, rounds, _ = verdict(database, recorder)
    assert (word, rounds) == ("supported", 8)
    assert ratio == pytest.approx(1.1, abs=0.02)


def test_heat_that_comes_in_a_trial_leaves_it_out_and_the_next_one_waits(database: Database, tmp_path: Path) -> None:
    """The round is replayed whole when it is cool again, and the verdict is that of a quiet night."""
    hot = disturbed(lambda at_s: 2 * HOUR_S <= at_s < 2 * HOUR_S + 500, thermal_level=2.0)
    recorder, watcher = run_night(database, planned(drift="linear", drift_size=-0.2), tmp_path, Night(state=hot))
    measured = rows(database, recorder.run_id, kind="measured")
    found = reasons(measured)
    assert "thermal: level 2 while it ran, above 1" in found
    assert any(reason.startswith("round_replayed: thermal: level 2") for reason in found)
    assert watcher.replays >= 1
    assert any(text.startswith("thermal level 2, waiting for 0 for 30 s") for text in watcher.waits)
    assert max(trial.thermal_max or 0 for trial in measured) == 2
    assert complete_rounds(measured) == 8
    word, ratio, rounds, says = verdict(database, recorder)
    assert (word, rounds) == ("supported", 8)
    assert ratio == pytest.approx(1.1, abs=0.02)
    assert "a round was replayed " in says
    assert "thermal: level 2 while it ran, above 1" in says


def test_load_bursts_are_waited_for_and_flagged_and_exclude_nothing_by_default(
    database: Database, tmp_path: Path
) -> None:
    """Other load meets all arms of a round alike; it costs precision, not honesty."""
    busy = disturbed(lambda at_s: at_s % HOUR_S < 400, cpu_cores_others=3.0)
    recorder, watcher = run_night(database, planned(drift="bursts", drift_size=-0.2), tmp_path, Night(state=busy))
    measured = rows(database, recorder.run_id, kind="measured")
    assert {"open", "waited"} <= {trial.gate_state for trial in measured}
    assert any(text.startswith("others use 3.0 cores, waiting for 0.5") for text in watcher.waits)
    waited = next(trial for trial in measured if trial.gate_state == "waited")
    assert waited.gate_detail is not None
    assert waited.gate_detail["waited_for"]["cpu_cores_others"] == waited.gate_wait_s
    assert reasons(measured) == []
    word, ratio, _, says = verdict(database, recorder)
    assert word in ("supported", "could_be_drift")
    assert ratio == pytest.approx(1.1, abs=0.08)  # a mean pays for what bursts take from single trials
    assert "replayed" not in says
    assert "ran before the machine was quiet" not in says  # each waited until the burst was over


def test_a_load_that_does_not_end_is_reported_beside_the_verdict_and_changes_nothing(
    database: Database, tmp_path: Path
) -> None:
    always_busy: State = QUIET | {"cpu_cores_others": 3.0}
    night = Night(state=lambda at_s: always_busy)
    recorder, _ = run_night(database, planned(Gate(busy_budget_s=0)), tmp_path, night)
    measured = rows(database, recorder.run_id, kind="measured")
    assert {trial.gate_state for trial in measured} == {"hot_start"}
    word, _, rounds, says = verdict(database, recorder)
    assert (word, rounds) == ("supported", 8)
    assert "faster: 8 trials ran before the machine was quiet, and count" in says


def test_by_a_rule_of_the_plan_they_leave_trials_out_up_to_the_limit_of_replays(
    database: Database, tmp_path: Path
) -> None:
    always_busy: State = QUIET | {"cpu_cores_others": 3.0}
    gate = Gate(exclude_cpu_cores_others_above=1.0, busy_budget_s=0, replays=1)
    recorder, watcher = run_night(database, planned(gate, rounds=6), tmp_path, Night(state=lambda at_s: always_busy))
    measured = rows(database, recorder.run_id, kind="measured")
    assert len(measured) == 2 * 6 * 3  # each round once more, then the limit is reached; all of it stays stored
    assert complete_rounds(measured) == 0
    assert {reason.partition(":")[0] for reason in reasons(measured)} == {"cpu_others"}
    assert watcher.replays == 6 + 2
    (found, *_) = judge_run(StoredRun.load(database, recorder.run_id)).result.comparisons
    assert (found.verdict, found.rounds) == ("underpowered", 0)
    assert found.included is not None
    assert found.included.rounds > 0


def test_a_sleep_voids_the_trial_that_it_overlaps(database: Database, tmp_path: Path) -> None:
    """As in the log of a Mac that slept from 8:08 to 9:42: monotonic time stood still, the wall clock went on."""
    recorder, watcher = run_night(database, planned(), tmp_path, Night(jumps={9: 94 * 60.0}))
    measured = rows(database, recorder.run_id, kind="measured")
    assert "clock: wall ran +5640.0 s against monotonic" in reasons(measured)
    assert watcher.replays == 1
    slept = next(trial for trial in measured if trial.excluded_reason and trial.excluded_reason.startswith("clock"))
    assert slept.monotonic_s == TICK_S
    assert slept.wall_s == TICK_S + 5640
    assert complete_rounds(measured) == 8
    word, _, _, says = verdict(database, recorder)
    assert word == "supported"
    assert "a round was replayed once (clock: wall ran +5640.0 s against monotonic)" in says


def test_one_night_with_all_of_it(database: Database, tmp_path: Path) -> None:
    """Heat, a burst of load, a sleep and a clock that is set back, on a machine that drifts by a fifth: the verdict is
    that of a quiet night, and says what was left out for it."""
    heat = disturbed(lambda at_s: 2 * HOUR_S <= at_s < 2 * HOUR_S + 500, thermal_level=2.0)
    load = disturbed(lambda at_s: 3.5 * HOUR_S <= at_s < 3.5 * HOUR_S + 600, cpu_cores_others=3.0)
    night = Night(
        state=lambda at_s: heat(at_s) | {"cpu_cores_others": load(at_s)["cpu_cores_others"]},
        jumps={5: 94 * 60.0, 19: -HOUR_S},
    )
    recorder, watcher = run_night(database, planned(drift="saturating", drift_size=-0.2), tmp_path, night)
    measured = rows(database, recorder.run_id, kind="measured")
    codes = {reason.partition(":")[0] for reason in reasons(measured)}
    assert codes == {"thermal", "clock", "round_replayed"}
    waits = " ".join(watcher.waits)
    assert "thermal level 2, waiting for 0" in waits
    assert "others use 3.0 cores, waiting for 0.5" in waits
    assert complete_rounds(measured) == 8
    assert watcher.replays >= 3
    word, ratio, rounds, says = verdict(database, recorder)
    assert (word, rounds) == ("supported", 8)
    assert ratio == pytest.approx(1.1, abs=0.02)
    for words in ("thermal: level 2 while it ran, above 1", "clock: wall ran +5640.0 s", "clock: wall ran -3600.0 s"):
        assert words in says, says
    assert f"a round was replayed {watcher.replays} times" in says


def test_a_clock_that_is_set_back_changes_neither_order_nor_durations(database: Database, tmp_path: Path) -> None:
    recorder, _ = run_night(database, planned(), tmp_path, Night(jumps={9: -5 * HOUR_S}))
    frame = trials(database, recorder.run_id)
    assert not frame["started_at"].is_monotonic_increasing
    assert frame["ordinal"].is_monotonic_increasing
    once = frame[frame["attempt"].fillna(0) == 0]
    assert once[once["kind"] == "measured"]["sequence"].is_monotonic_increasing
    assert set(frame[frame["kind"] == "measured"]["monotonic_s"]) == {TICK_S}
    assert verdict(database, recorder)[:1] == ("supported",)


def test_the_end_of_daylight_saving_time_is_no_gap(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 3:00 in Berlin it is 2:00 again: an hour that clocks show twice must not void or reorder trials."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        start = dt.datetime(2026, 10, 24, 23, 0, tzinfo=dt.UTC)  # two hours before
        night = Night(epoch_s=start.timestamp())
        recorder, watcher = run_night(database, planned(), tmp_path, night)
    finally:
        monkeypatch.undo()
        time.tzset()
    frame = trials(database, recorder.run_id)
    moments = pd.to_datetime(frame["started_at"], utc=True)
    assert moments.is_monotonic_increasing
    assert moments.iloc[0] < dt.datetime(2026, 10, 25, 1, 0, tzinfo=dt.UTC) < moments.iloc[-1]
    assert (watcher.replays, reasons(rows(database, recorder.run_id))) == (0, [])
    assert verdict(database, recorder)[0] == "supported"


def test_a_gate_that_does_not_open_skips_by_choice(database: Database, tmp_path: Path) -> None:
    hot: State = QUIET | {"thermal_level": 3.0}
    gate = Gate(on_timeout="skip", replays=0, timeout_s=10)
    recorder, _ = run_night(database, planned(gate, rounds=6), tmp_path, Night(state=lambda at_s: hot))
    measured = rows(database, recorder.run_id, kind="measured")
    assert {trial.gate_state for trial in measured} == {"skipped"}
    assert all(reason.startswith("skipped: thermal level 3") for reason in reasons(measured))
    with read_only(database) as session:
        ids = [trial.id for trial in measured]
        assert session.scalars(select(models.Generation).where(models.Generation.trial_id.in_(ids))).all() == []


def test_or_runs_and_flags_a_hot_start(database: Database, tmp_path: Path) -> None:
    hot: State = QUIET | {"thermal_level": 1.0}
    gate = Gate(replays=0, timeout_s=10)
    recorder, _ = run_night(database, planned(gate, rounds=6), tmp_path, Night(state=lambda at_s: hot))
    measured = rows(database, recorder.run_id, kind="measured")
    assert {trial.gate_state for trial in measured} == {"hot_start"}
    assert all(reason.startswith("hot_start: thermal level 1") for reason in reasons(measured))
    assert {trial.gate_wait_s for trial in measured} == {10.0}


def test_the_canary_sees_a_machine_that_throttles_at_level_0(database: Database, tmp_path: Path) -> None:
    """GPU clocks fall while the thermal level stays nominal: only the speed itself shows it."""
    gate = Gate(canary_tokens=8, timeout_s=20, replays=0)
    recorder, watcher = run_night(
        database, planned(gate, rounds=6, drift="linear", drift_size=-0.3, noise=0.0), tmp_path, Night()
    )
    measured = rows(database, recorder.run_id, kind="measured")
    assert measured[0].gate_state == "open"
    assert measured[-1].gate_state == "hot_start"
    assert measured[-1].excluded_reason is not None
    assert "of its cold speed" in measured[-1].excluded_reason
    assert any("the canary runs at" in text for text in watcher.waits)
    with read_only(database) as session:
        ratios = session.scalars(
            select(models.Telemetry.value).where(
                models.Telemetry.field == "canary_ratio", models.Telemetry.trial_id == measured[-1].id
            )
        ).all()
    assert ratios
    assert (ratios[0] or 1.0) < 0.8


def test_what_the_sampler_saw_is_stored_as_during(database: Database, tmp_path: Path) -> None:
    recorder, _ = run_night(database, planned(rounds=6), tmp_path, Night())
    trial = rows(database, recorder.run_id, kind="measured")[0]
    with read_only(database) as session:
        found = {
            (row.phase, row.field): row.value
            for row in session.scalars(select(models.Telemetry).filter_by(trial_id=trial.id))
        }
    assert found["during", "thermal_level_max"] == 0.0
    assert found["during", "cpu_cores_others_mean"] == pytest.approx(0.1)
    assert ("before", "thermal_level") in found
    assert ("after", "thermal_level") in found


def rebooted(monkeypatch: pytest.MonkeyPatch, boot_id: str) -> None:
    """This machine, after another boot."""
    monkeypatch.setattr("workers.machine.process_identity.read_boot_id", lambda system=None: boot_id)


def test_a_reboot_in_the_middle_frees_the_run_and_costs_the_round_that_it_cut_short(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pid and start of the lease match a living process; only its boot shows that the run's process is gone."""

    class Power(Witness):
        trials = 0

        def trial_started(self, trial: ScheduledTrial) -> None:
            Power.trials += 1
            if Power.trials == 12:
                raise KeyboardInterrupt  # as far as the database is concerned: the power goes

    rebooted(monkeypatch, "boot-1")
    small = planned(rounds=8)
    recorder = create_run(database, small, host=read_host(), weights=find_weights(small), log_root=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_recorded(recorder, observer=Power())
    other = psutil.Process(os.getppid())  # a process that lives has the pid and the start of the one that ran it
    with transaction(database) as session:
        row = session.get_one(models.Run, recorder.run_id)
        assert row.status == "running"
        row.runner_pid, row.runner_started_at = other.pid, started_s(other)
    with pytest.raises(HeldError):
        run_recorded(reopen_run(database, small, recorder.run_id), observer=Witness())
    rebooted(monkeypatch, "boot-2")
    recorder = reopen_run(database, small, recorder.run_id)
    run_recorded(recorder, observer=Witness())
    frame = trials(database, recorder.run_id)
    assert frame["ordinal"].is_monotonic_increasing
    measured = rows(database, recorder.run_id, kind="measured")
    assert {trial.boot_id for trial in measured if trial.status == "done"} == {"boot-1", "boot-2"}
    boots: dict[str | None, set[str | None]] = {}
    for trial in measured:
        if trial.status == "done":
            boots.setdefault(trial.round_id, set()).add(trial.boot_id)
    assert len(boots) == 8
    assert all(len(found) == 1 for found in boots.values())  # no round that counts spans two boots
    assert "round_cut_short: replayed whole" in reasons(measured)
    word, ratio, rounds, says = verdict(database, recorder)
    assert (word, rounds) == ("supported", 8)
    assert ratio == pytest.approx(1.1, abs=0.02)
    assert "a round was replayed once (round_cut_short: replayed whole" in says


def test_a_simulated_run_asks_nothing_of_the_machine(database: Database, tmp_path: Path) -> None:
    small = planned(Gate(thermal_hold_s=0, cpu_cores_others_max=0.0, busy_timeout_s=60), rounds=2)
    recorder = create_run(database, small, host=read_host(), weights=find_weights(small), log_root=tmp_path)
    run_recorded(recorder, observer=Witness())
    assert {trial.gate_wait_s for trial in rows(database, recorder.run_id)} == {0.0}
