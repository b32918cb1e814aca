"""Judgements are stored whole, and come out the same from the same rows."""

import json
import sqlite3
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import delete, select, update

from db import models
from db.engine import Database
from db.frames import trials, verdicts
from db.session import open_database, read_only, transaction
from orchestrator.audit import METHOD_VERSION
from orchestrator.errors import StoppedError
from orchestrator.jsonable import bounded
from orchestrator.judging import decisions, host_noise, judge_run, judged_history
from orchestrator.planning.weights import find_weights
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.recorder import create_run
from orchestrator.stored_run import StoredRun
from workers.machine.host import read_host

from .flat import FlatRun
from .plans import arm, plan, prompt

ARMS = tuple(arm(f"{effect} {noise}", effect=effect, noise=noise) for effect in (1.0, 1.2) for noise in (0.01, 0.011))


@pytest.fixture
def finished(tmp_path: Path) -> tuple[Database, str]:
    database = open_database(f"sqlite:///{tmp_path / 'judged.db'}")
    planned = plan(*ARMS, rounds=8)
    recorder = create_run(database, planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path)
    run_recorded(recorder, observer=Observer())
    return database, recorder.run_id


def test_what_is_stored_is_what_was_judged(finished: tuple[Database, str]) -> None:
    database, run_id = finished
    judged = judge_run(StoredRun.load(database, run_id))
    rows = verdicts(database, run_id)
    assert list(rows["treatment"]) == [one.treatment for one in judged.result.comparisons]
    assert list(rows["verdict"]) == [one.verdict for one in judged.result.comparisons]
    assert list(rows["family_p"]) == pytest.approx([one.family_p for one in judged.result.comparisons])
    first = rows.iloc[0]
    assert first["method_version"] == judged.result.method_version
    assert first["inference"] == "fixed"
    assert json.loads(first["best"]) == bounded([asdict(each) for each in judged.result.best])


def test_planned_arms_are_judged_before_they_ran(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'begun.db'}")
    planned = plan(arm("a"), arm("b", effect=1.1), rounds=8, warmups=0)
    recorder = create_run(database, planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path)
    stops = iter((False, True))  # after the control run before the rounds
    with pytest.raises(StoppedError):
        run_recorded(recorder, observer=Observer(), should_stop=lambda: next(stops))
    assert set(trials(database, recorder.run_id)["arm"]) == {"a"}
    (one,) = judge_run(StoredRun.load(database, recorder.run_id)).result.comparisons
    assert (one.treatment, one.verdict, one.rounds) == ("b", "underpowered", 0)
    assert list(verdicts(database, recorder.run_id)["treatment"]) == ["b"]


def test_two_factors_are_stored_with_their_composition(finished: tuple[Database, str]) -> None:
    database, run_id = finished
    judged = judge_run(StoredRun.load(database, run_id))
    assert judged.composition is not None
    stored = json.loads(verdicts(database, run_id).iloc[0]["compositions"])
    assert stored["first"] == "engine.effect"
    (one,) = stored["compositions"]
    assert one["composition"]["ratio"] == pytest.approx(1.0, abs=0.03)


def test_the_same_rows_give_the_same_judgement_elsewhere(finished: tuple[Database, str], tmp_path: Path) -> None:
    """In another file, after another's random numbers."""
    database, run_id = finished
    first = judge_run(StoredRun.load(database, run_id))
    with (
        closing(sqlite3.connect(str(database.url.database))) as here,
        closing(sqlite3.connect(tmp_path / "c.db")) as to,
    ):
        here.backup(to)
    elsewhere = open_database(f"sqlite:///{tmp_path / 'c.db'}")
    np.random.seed(7)
    assert judge_run(StoredRun.load(elsewhere, run_id)).result == first.result
    elsewhere.dispose()


def test_simulated_runs_say_nothing_of_the_host(finished: tuple[Database, str]) -> None:
    database, _ = finished
    assert host_noise(str(database.url), host=read_host()) is None


def test_a_resumed_run_at_another_nice_value_is_compared_by_the_number(finished: tuple[Database, str]) -> None:
    """`nice` has a number and no words."""
    database, run_id = finished
    slow = recorder_arm_trials(database, run_id, "1.2 0.01")
    with transaction(database) as session:
        session.execute(delete(models.Telemetry).where(models.Telemetry.field == "nice"))
        for trial in session.scalars(select(models.Trial).filter_by(run_id=run_id)):
            nice = 5.0 if trial.id in slow else 0.0
            session.add(models.Telemetry(trial_id=trial.id, phase="before", field="nice", value=nice))
    judged = {one.treatment: one for one in judge_run(StoredRun.load(database, run_id)).result.comparisons}
    assert judged["1.2 0.01"].verdict == "confounded"
    assert "nice value differs" in judged["1.2 0.01"].reasons[0].text
    assert "5 against 0" in judged["1.2 0.01"].reasons[0].text


def test_another_power_mode_in_one_arm_confounds(finished: tuple[Database, str]) -> None:
    database, run_id = finished
    slow = recorder_arm_trials(database, run_id, "1.2 0.01")
    with transaction(database) as session:
        for trial in session.scalars(select(models.Trial).filter_by(run_id=run_id)):
            mode = "low" if trial.id in slow else "automatic"
            session.add(models.Telemetry(trial_id=trial.id, phase="before", field="power_mode", value_text=mode))
    judged = {one.treatment: one for one in judge_run(StoredRun.load(database, run_id)).result.comparisons}
    assert judged["1.2 0.01"].verdict == "confounded"
    assert "power mode" in judged["1.2 0.01"].reasons[0].text
    assert judged["1.2 0.011"].verdict != "confounded"


def recorder_arm_trials(database: Database, run_id: str, name: str) -> set[str]:
    query = select(models.Trial.id).join(models.Arm).where(models.Arm.run_id == run_id, models.Arm.name == name)
    with read_only(database) as session:
        return set(session.scalars(query))


def test_the_control_runs_stand_beside_every_verdict(finished: tuple[Database, str]) -> None:
    database, run_id = finished
    comparisons = judge_run(StoredRun.load(database, run_id)).result.comparisons
    over_all = [one for one in comparisons if one.prompt_class is None and one.turn is None]
    assert over_all
    assert all("run_drift" in {reason.code for reason in one.reasons} for one in over_all)


def test_a_design_that_stops_early_looks_at_whole_passes_over_its_prompts() -> None:
    prompts = tuple(prompt(number) for number in range(4))
    asked = plan(arm("plain"), arm("fast"), prompts=prompts, rounds=40, interleave_by="prompt", stop="early")
    frame = FlatRun(
        effects={"plain": 1.0, "fast": 1.5}, rounds=40, by_prompt=True, prompts=dict.fromkeys("abcd", "x")
    ).frame()

    def decided_after(rounds: int) -> bool:
        return "fast" in decisions(frame[(frame["round"] < rounds).fillna(value=True).astype(bool)], asked)

    first = next(rounds for rounds in range(1, 41) if decided_after(rounds))
    assert first % 4 == 0
    assert decided_after(first + 3)
    assert not decided_after(3)


def test_an_old_verdict_that_no_longer_holds_is_named_with_the_reason(finished: tuple[Database, str]) -> None:
    database, run_id = finished
    first = judge_run(StoredRun.load(database, run_id))
    assert first.revisions == ()
    with transaction(database) as session:
        stored = session.scalars(select(models.Audit)).one()
        stored.method_version = "4"
    assert judge_run(StoredRun.load(database, run_id)).revisions == ()  # another method, the same decision
    with transaction(database) as session:
        for one in session.scalars(select(models.Comparison).where(models.Comparison.audit_id == stored.id)):
            one.verdict, one.direction, one.ratio = "no_difference", None, 1.001
    lines = judge_run(StoredRun.load(database, run_id)).revisions
    changed = [one for one in first.result.comparisons if one.over_all and one.verdict != "no_difference"]
    assert len([line for line in lines if "in parts of the run" not in line]) == len(changed) > 0
    for one, line in zip(changed, lines, strict=False):
        assert line.startswith(f"{one.treatment} against {one.control}: method 4 gave no difference (1.001) on ")
        assert f"; method {METHOD_VERSION} gives" in line
        assert one.reasons[0].text in line


def test_a_history_shows_the_figures_of_the_audits(finished: tuple[Database, str]) -> None:
    """A rule leaves one trial out and with it the round of every arm: also where configurations stand over time."""
    database, run_id = finished
    with transaction(database) as session:
        of_round = (
            select(models.Trial, models.Arm.name)
            .join(models.Arm)
            .join(models.Round, models.Trial.round_id == models.Round.id)
            .where(models.Trial.run_id == run_id, models.Round.index == 2)
        )
        trials_of = {name: trial for trial, name in session.execute(of_round)}
        trials_of["1.0 0.011"].status, trials_of["1.0 0.011"].excluded_reason = "excluded", "hot_start"
        fast = models.Generation.trial_id == trials_of["1.2 0.01"].id
        faster = models.Generation.end_to_end_tps * 40  # would move the median, if the round counted
        session.execute(update(models.Generation).where(fast).values(end_to_end_tps=faster))
    rows = judged_history(database, metric="end_to_end_tps", filters={"arm": "1.2 0.01"}, simulated=True)
    (told,) = rows.to_dict("records")
    arms = judge_run(StoredRun.load(database, run_id)).result.arms
    (audited,) = (one for one in arms if one.label == "1.2 0.01" and one.prompt_class is None)
    assert audited.trials == 7
    assert told["generations"] == 7 * len(plan(*ARMS).prompts)
    assert told["value"] == pytest.approx(audited.end_to_end_tps)
