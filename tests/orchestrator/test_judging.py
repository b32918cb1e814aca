"""Judgements are stored whole, and come out the same from the same rows."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from sqlalchemy import Engine as Database

from db.frames import verdicts
from db.session import open_database
from orchestrator.commands import run_recorded
from orchestrator.jsonable import bounded
from orchestrator.judging import host_noise, judge_run
from orchestrator.plan import Plan
from orchestrator.running.preparation import find_weights
from orchestrator.running.recorder import create_run
from orchestrator.views.terminal import SilentObserver
from workers.host import read_host

from .plans import arm, plan

ARMS = tuple(arm(f"{effect} {noise}", effect=effect, noise=noise) for effect in (1.0, 1.2) for noise in (0.01, 0.011))


@pytest.fixture
def finished(tmp_path: Path) -> tuple[Database, Plan, str]:
    database = open_database(f"sqlite:///{tmp_path / 'judged.db'}")
    planned = plan(*ARMS, rounds=8)
    recorder = create_run(database, planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path)
    run_recorded(recorder, observer=SilentObserver())
    return database, planned, recorder.run_id


def test_what_is_stored_is_what_was_judged(finished: tuple[Database, Plan, str]) -> None:
    database, planned, run_id = finished
    judged = judge_run(database, planned, run_id)
    rows = verdicts(database, run_id)
    assert list(rows["treatment"]) == [one.treatment for one in judged.result.comparisons]
    assert list(rows["verdict"]) == [one.verdict for one in judged.result.comparisons]
    assert list(rows["family_p"]) == pytest.approx([one.family_p for one in judged.result.comparisons])
    first = rows.iloc[0]
    assert first["method_version"] == judged.result.method_version
    assert first["inference"] == "fixed"
    assert json.loads(first["best"]) == bounded([asdict(each) for each in judged.result.best])


def test_two_factors_are_stored_with_their_composition(finished: tuple[Database, Plan, str]) -> None:
    database, planned, run_id = finished
    judged = judge_run(database, planned, run_id)
    assert judged.composition is not None
    stored = json.loads(verdicts(database, run_id).iloc[0]["compositions"])
    assert stored["first"] == "engine.effect"
    (one,) = stored["compositions"]
    assert one["composition"]["ratio"] == pytest.approx(1.0, abs=0.03)


def test_the_same_rows_give_the_same_judgement(finished: tuple[Database, Plan, str]) -> None:
    database, planned, run_id = finished
    assert judge_run(database, planned, run_id) == judge_run(database, planned, run_id)


def test_simulated_runs_say_nothing_of_the_host(finished: tuple[Database, Plan, str]) -> None:
    database, _, _ = finished
    assert host_noise(str(database.url), hostname=read_host().hostname) is None
