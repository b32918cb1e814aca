"""Whole runs on the simulated engine: real processes, a real database, no model and no waiting."""

import importlib.metadata
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import select

from db import models
from db.engine import Database
from db.session import read_only
from orchestrator.errors import IncompleteError, InputError, InterlaceError, RefusedError, StoppedError
from orchestrator.plan import Arm, Plan
from orchestrator.running.crew import Crew
from orchestrator.running.execution import run_recorded
from orchestrator.running.progress import Unit
from orchestrator.running.recorder import Recorder
from tests.orchestrator.plans import DEADLINES, OPEN_GATE, arm, plan, prompt
from tests.orchestrator.running.trials import Witness, recorder_of, rows, run


def test_every_trial_of_the_plan_is_stored_once(database: Database, tmp_path: Path) -> None:
    planned = plan(arm("a"), arm("b", effect=1.2), prompts=(prompt(0), prompt(1, prompt_class="prose")))
    witness = Witness()
    recorder = run(database, planned, tmp_path, witness)
    measured = rows(database, recorder.run_id, kind="measured")
    assert len(measured) == 6 * 3
    units = [each for each in witness.begun if isinstance(each, Unit)]
    assert witness.begun == [each for unit in units for each in (unit, *unit.trials)]
    assert sum(unit.round is not None for unit in units) == 6
    assert {trial.status for trial in measured} == {"done"}
    assert sum(trial.is_aa for trial in measured) == 6
    assert len(rows(database, recorder.run_id, kind="bracket")) == 2
    assert len(rows(database, recorder.run_id, kind="warmup")) == 2
    assert len({trial.sequence for trial in measured}) == len(measured)


def test_everything_a_trial_must_carry_is_there(database: Database, tmp_path: Path) -> None:
    recorder = run(database, plan(arm("a"), arm("b")), tmp_path)
    with read_only(database) as session:
        run_row = session.get_one(models.Run, recorder.run_id)
        trial = session.scalars(select(models.Trial).filter_by(kind="measured")).first()
        assert trial is not None
        environment = session.get_one(models.Environment, trial.environment_id)
        arm_row = session.get_one(models.Arm, trial.arm_id)
        assert run_row.simulated
        assert run_row.plan_sha256 == recorder.plan.sha256
        assert environment.python
        assert environment.interlace_version
        assert environment.mlx_version == importlib.metadata.version("mlx")
        assert environment.mlx_lm_version == importlib.metadata.version("mlx-lm")
        assert arm_row.fingerprint
        assert arm_row.config["engine"]["name"] == "simulated"
        assert trial.thermal_before is not None or trial.thermal_reason
        assert trial.power_source is not None or trial.power_reason


def test_generations_hold_raw_stamps_text_and_evidence(database: Database, tmp_path: Path) -> None:
    recorder = run(database, plan(arm("a"), arm("b", acceptance=0.7), prompts=(prompt(turns=2),)), tmp_path)
    trial = rows(database, recorder.run_id, kind="measured")[0]
    with read_only(database) as session:
        generations = list(session.scalars(select(models.Generation).filter_by(trial_id=trial.id)))
        assert [row.turn for row in generations] == [0, 1]
        for row in generations:
            assert len(row.stamps_us) == len(row.token_ids) == row.completion_tokens == 16
            assert row.text
            assert row.total_s == pytest.approx(row.stamps_us[-1] / 1e6)
            assert session.scalars(select(models.Evidence).filter_by(generation_id=row.id)).all()


def test_a_silent_fallback_never_starts_a_night(database: Database, tmp_path: Path) -> None:
    planned = plan(arm("a"), arm("fast", acceptance=0.7, fallback=True))
    with pytest.raises(InputError, match="arm fast failed its preflight: not_engaged"):
        run(database, planned, tmp_path)
    assert rows(database, recorder_run_id(database), kind="measured") == []


def real(checkpoint: dict[str, str], target: str, **settings: str) -> Arm:
    engine = {"_target_": f"workers.engines.{target}", "name": "real"} | settings
    return Arm(name="bad", checkpoint=checkpoint, engine=engine, sampling=arm("bad").sampling, draft=None)


NOBODY_ANSWERS = real(
    {"name": "tiny", "source": "dummy", "shape": "tiny"}, "openai_http.OpenaiHttp", url="http://127.0.0.1:1"
)
NO_ADDRESS = real(
    {"name": "tiny", "source": "dummy", "shape": "tiny"}, "openai_http.OpenaiHttp", url="http://127.0.0.1:port"
)
NO_NETWORK = real({"name": "hub", "source": "hub", "hub_id": "nobody/nothing"}, "mlx_lm.MlxLm")


@pytest.mark.parametrize(
    ("bad", "error", "kind"),
    [
        (arm("bad", fault="crash"), RefusedError, "crashed"),
        (arm("bad", fault="oom"), RefusedError, "out_of_memory"),
        (arm("bad", fault="hang_load"), RefusedError, "hung_load"),
        (NOBODY_ANSWERS, RefusedError, "generation_failed"),
        (NO_NETWORK, RefusedError, "checkpoint_missing"),
        (arm("bad", fault="no such"), InputError, "unsupported_setting"),
        (arm("bad", fault="load_error"), RefusedError, "load_failed"),
        (arm("bad", fault="zero_tokens"), RefusedError, "zero_tokens"),
        (NO_ADDRESS, InputError, "unsupported_setting"),
    ],
)
def test_only_what_the_plan_got_wrong_is_bad_input(
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bad: Arm,
    error: type[InterlaceError],
    kind: str,
) -> None:
    """A fault that ends a worker on this machine now may be gone later. The message names the arm once."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    load_s = 1.0 if kind == "hung_load" else DEADLINES.load_s
    planned = replace(plan(bad, arm("b"), deadlines=replace(DEADLINES, load_s=load_s)), gate=OPEN_GATE)
    with pytest.raises(InterlaceError, match=f"arm bad failed its preflight: {kind}: ") as caught:
        run(database, planned, tmp_path)
    assert type(caught.value) is error
    assert str(caught.value).count("arm bad") == 1


def recorder_run_id(database: Database) -> str:
    with read_only(database) as session:
        return session.scalars(select(models.Run.id)).one()


def test_or_the_arm_is_left_out_by_choice(database: Database, tmp_path: Path) -> None:
    witness = Witness()
    planned = plan(arm("a"), arm("b"), arm("fast", acceptance=0.7, fallback=True), on_preflight_failure="drop")
    recorder = run(database, planned, tmp_path, witness)
    assert "fast" in witness.dropped
    measured = rows(database, recorder.run_id, kind="measured")
    assert len(measured) == 6 * 3
    with read_only(database) as session:
        dropped = session.scalars(select(models.Arm).filter_by(name="fast")).one()
        assert dropped.state == "dropped"
        assert dropped.state_reason is not None
        assert "not_engaged" in dropped.state_reason


def test_without_engagement_a_trial_is_invalid_and_says_why(database: Database, tmp_path: Path) -> None:
    """With the policy `record` the fallback runs, and stays visible on each generation."""
    planned = plan(arm("a"), arm("fast", acceptance=0.7, fallback=True), evidence="record")
    recorder = run(database, planned, tmp_path)
    with read_only(database) as session:
        engaged = session.scalars(
            select(models.Generation.engaged)
            .join(models.Trial)
            .where(models.Trial.arm_id == recorder.arm_ids["fast"], models.Trial.kind == "measured")
        ).all()
    assert set(engaged) == {False}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("crash", "crashed"), ("error", "generation_failed"), ("hang_between", "hung_inter_token")],
)
def test_a_fault_ends_one_trial_and_never_the_night(database: Database, tmp_path: Path, fault: str, kind: str) -> None:
    # The fault comes at the fourth generation of each process: preflight, warm-up and one trial before it.
    planned = plan(arm("a"), arm("bad", fault=fault, fault_at=3), deadlines=replace(DEADLINES, inter_token_s=1.0))
    recorder = run(database, planned, tmp_path)
    measured = rows(database, recorder.run_id, kind="measured")
    assert len(measured) == 6 * 3
    invalid = [trial for trial in measured if trial.status == "invalid"]
    assert invalid
    assert {trial.error_kind for trial in invalid} == {kind}
    assert {trial.arm_id for trial in invalid} == {recorder.arm_ids["bad"]}
    with read_only(database) as session:
        assert session.get_one(models.Arm, recorder.arm_ids["bad"]).state == "active"


@pytest.mark.parametrize("fault_at", [3, 4])
def test_what_was_answered_before_a_fault_stays_with_its_trial(
    database: Database, tmp_path: Path, fault_at: int
) -> None:
    """Turns count from 0: one of the preflight, two of the warm-up, then those of the first trial."""
    bad = arm("bad", fault="error", fault_at=fault_at)
    planned = plan(arm("a"), bad, prompts=(prompt(turns=2),), rounds=2, aa=False, bracket=False)
    recorder = run(database, planned, tmp_path)
    trials = rows(database, recorder.run_id, kind="measured", arm_id=recorder.arm_ids["bad"])
    with read_only(database) as session:
        turns = {
            trial.sequence: session.scalars(
                select(models.Generation.turn).filter_by(trial_id=trial.id).order_by(models.Generation.turn)
            ).all()
            for trial in trials
        }
    assert [trial.status for trial in trials] == ["invalid", "done"]
    assert list(turns.values()) == [list(range(fault_at - 3)), [0, 1]]


def test_three_faults_in_a_row_park_the_arm(database: Database, tmp_path: Path) -> None:
    witness = Witness()
    prompts = (prompt(0), prompt(1), prompt(2))
    bad = arm("bad", fault="crash", fault_at=2)  # survives the preflight, and no trial of three prompts
    planned = plan(arm("a"), bad, prompts=prompts, interleave_by="workload", warmups=0)
    recorder = run(database, planned, tmp_path, witness)
    assert "3 faults in a row" in witness.dropped["bad"]
    assert len(rows(database, recorder.run_id, kind="measured", arm_id=recorder.arm_ids["bad"])) == 3
    assert len(rows(database, recorder.run_id, kind="measured", arm_id=recorder.arm_ids["a"])) == 12


def test_a_control_that_cannot_run_ends_the_run(database: Database, tmp_path: Path) -> None:
    prompts = (prompt(0), prompt(1), prompt(2))
    bad = arm("a", fault="crash", fault_at=2)
    planned = plan(bad, arm("b"), prompts=prompts, interleave_by="workload", warmups=0)
    with pytest.raises(IncompleteError, match="the control a takes no further part"):
        run(database, planned, tmp_path)


def test_swapped_arms_are_loaded_and_warmed_up_for_each_trial(database: Database, tmp_path: Path) -> None:
    planned = plan(arm("a"), arm("b"), residency="swap", rounds=6, bracket=False)
    recorder = run(database, planned, tmp_path)
    assert len(rows(database, recorder.run_id, kind="measured")) == 18
    # At least one load a change of arm, each with its warm-up.
    assert len(rows(database, recorder.run_id, kind="warmup")) >= 2 + 6


def test_an_early_stop_ends_decided_arms_and_goes_on_for_the_others(database: Database, tmp_path: Path) -> None:
    arms = (arm("a"), arm("twice", effect=2.0), arm("close", effect=1.01, noise=0.05))
    planned = plan(*arms, rounds=30, stop="early")
    recorder = run(database, planned, tmp_path)
    trials = {
        name: len(rows(database, recorder.run_id, kind="measured", arm_id=key))
        for name, key in recorder.arm_ids.items()
    }
    assert 5 <= trials["twice"] <= 8
    assert trials["close"] == 30
    assert trials["a"] == 60
    assert len(rows(database, recorder.run_id, kind="bracket")) == 2


def test_a_twofold_effect_alone_ends_the_run_after_a_few_rounds(database: Database, tmp_path: Path) -> None:
    planned = plan(arm("a"), arm("twice", effect=2.0), rounds=30, stop="early")
    recorder = run(database, planned, tmp_path)
    measured = rows(database, recorder.run_id, kind="measured")
    assert 5 * 3 <= len(measured) <= 7 * 3
    assert len(rows(database, recorder.run_id, kind="bracket")) == 2
    run_recorded(recorder, observer=Witness())  # nothing is left: what is decided stays decided
    assert len(rows(database, recorder.run_id, kind="measured")) == len(measured)


def test_asked_to_stop_a_run_finishes_its_round_and_goes_on_later(database: Database, tmp_path: Path) -> None:
    planned = plan(arm("a"), arm("b"))
    recorder = recorder_of(database, planned, tmp_path)
    answers = iter([False, False, True])  # before the first control run, the first round, the second one
    with pytest.raises(StoppedError, match="stopped as requested with 6 rounds and control runs left"):
        run_recorded(recorder, observer=Witness(), should_stop=lambda: next(answers))
    assert [trial.position for trial in rows(database, recorder.run_id, kind="measured")] == [0, 1, 2]
    run_recorded(recorder, observer=Witness())
    measured = rows(database, recorder.run_id, kind="measured")
    assert len({trial.sequence for trial in measured}) == len(measured) == 6 * 3
    assert {trial.status for trial in measured} == {"done"}


def test_what_follows_the_rounds_has_the_workers_and_costs_no_run(database: Database, tmp_path: Path) -> None:
    recorder, witness = recorder_of(database, plan(arm("a"), arm("b")), tmp_path), Witness()
    there: list[str] = []

    def probe(_plan: Plan, probed: Recorder, crew: Crew) -> None:
        assert len(rows(database, probed.run_id, kind="measured")) == 6 * 3
        there.extend(name for name, member in crew.members.items() if member.process.alive)
        raise LookupError("no such logits")

    run_recorded(recorder, observer=witness, after_rounds=probe)
    assert there == ["a", "b"]
    assert witness.notes == ["after the last round: LookupError: no such logits"]


def test_a_run_that_ended_within_what_follows_the_rounds_goes_on_there(database: Database, tmp_path: Path) -> None:
    recorder = recorder_of(database, plan(arm("a"), arm("b")), tmp_path)
    run_recorded(recorder, observer=Witness())
    calls: list[str] = []
    again = partial(run_recorded, recorder, observer=Witness(), after_rounds=lambda *_: calls.append("probe"))
    again()
    assert calls == ["probe"]
    recorder.finish("done")
    again()
    assert calls == ["probe"]
