"""Databases that older versions wrote, frozen as SQL in tests/fixtures/databases: they upgrade and stay usable.

Each was written by the interlace of its time: a finished run of two simulated arms, and one that was killed half-way.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import update

from db import models
from db.check import check
from db.errors import SchemaError
from db.frames import runs, trials, verdicts
from db.migrate import State, upgrade
from db.session import open_existing, transaction
from orchestrator.audit import METHOD_VERSION
from orchestrator.judging import judge_run
from orchestrator.plan import load
from orchestrator.planning.frozen_plan import stored_plan
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.provenance import agree
from orchestrator.running.recorder import reopen_run
from orchestrator.stored_run import StoredRun
from tests.orchestrator.shells import Shell

FROZEN = Path("tests/fixtures/databases")
VERSIONS = sorted(path.stem for path in FROZEN.glob("*.sql"))


@dataclass(frozen=True, kw_only=True)
class Old:
    path: Path
    trials: dict[str, int]  # by run, as its version stored them


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((FROZEN / f"{request.param}.sql").read_text())
        counts = dict(connection.execute("SELECT run_id, count(*) FROM trial GROUP BY run_id").fetchall())
    return Old(path=path, trials=counts)


def test_there_is_one_of_the_first_version() -> None:
    assert VERSIONS[0] == "0001"


def test_an_old_database_is_refused_until_it_is_upgraded_and_then_sound(old: Old) -> None:
    with pytest.raises(SchemaError, match=r"run `interlace db upgrade` \(it keeps all results\)"):
        open_existing(str(old.path))
    assert upgrade(str(old.path)).state is State.CURRENT
    assert check(str(old.path)).ok


def test_views_answer_and_audits_run(old: Old) -> None:
    upgrade(str(old.path))
    database = open_existing(str(old.path))
    found = runs(database)
    assert dict(zip(found["run_id"], found["trials"], strict=True)) == old.trials
    (done,) = found[found["status"] == "done"]["run_id"]
    frame = trials(database, done)
    assert len(frame) >= old.trials[done]
    assert frame["randomised"].all()
    assert set(frame["origin"]) == {"interlace"}
    stored = verdicts(database, done)
    judged = judge_run(StoredRun.load(database, done))
    (overall,) = (one for one in judged.result.comparisons if one.over_all)
    assert (overall.verdict, overall.direction) == ("supported", "faster")
    (before,) = stored[stored["prompt_class"].isna()]["verdict"]
    assert before == overall.verdict
    database.dispose()


def test_the_command_reports_an_old_verdict_that_the_method_of_today_decides_otherwise(old: Old) -> None:
    """The old file is upgraded and audited as a user does it. The old judgement stays stored, so each audit repeats
    that it differs."""
    shell = Shell(old.path.parent)
    shell("db", "upgrade", "--db", str(old.path))
    with closing(sqlite3.connect(old.path)) as connection:
        ((run, version),) = connection.execute("SELECT run_id, method_version FROM audit").fetchall()
        assert int(version) < int(METHOD_VERSION)
    agreed = " ".join(shell("audit", run, "--db", str(old.path)).stdout.split())
    assert "DECIDED OTHERWISE" not in agreed
    with closing(sqlite3.connect(old.path)) as connection, connection:
        connection.execute(
            "UPDATE comparison SET verdict = 'no_difference', direction = NULL, ratio = 1.001"
            " WHERE prompt_class IS NULL AND audit_id = (SELECT id FROM audit WHERE method_version = ?)",
            (version,),
        )
    for _ in range(2):
        told = " ".join(shell("audit", run, "--db", str(old.path)).stdout.split())
        start = told.index("DECIDED OTHERWISE: effect=1.2 against effect=1: ")
        before, after = told[start:].split("is clear of 1;")[0].split(f"method {METHOD_VERSION} ")
        for word in (f"method {version} ", "2026-11-30", "no difference (1.001)"):
            assert word in before
        assert "supported faster (1.196), because the interval" in after
    with closing(sqlite3.connect(old.path)) as connection:
        versions = {one for (one,) in connection.execute("SELECT DISTINCT method_version FROM audit")}
    assert versions == {version, METHOD_VERSION}


@pytest.mark.slow
def test_a_run_that_was_cut_short_then_is_finished_now(old: Old, tmp_path: Path) -> None:
    upgrade(str(old.path))
    database = open_existing(str(old.path))
    found = runs(database)
    (cut,) = found[found["status"] == "running"]["run_id"]
    with transaction(database) as session:
        session.execute(update(models.Run).values(log_dir=str(tmp_path / "logs")))
    plan = load(stored_plan(database, cut))
    before = set(trials(database, cut)["trial_id"])
    recorder = reopen_run(database, plan, cut)
    agree(database, cut)  # as `interlace resume` does once the user has seen what it executes
    run_recorded(recorder, observer=Observer())
    frame = trials(database, cut)
    assert before <= set(frame["trial_id"])
    counted = frame[(frame["kind"] == "measured") & (frame["status"] == "done")]
    assert counted.groupby("round")["trial_id"].nunique().to_dict() == dict.fromkeys(range(plan.design.rounds), 3)
    assert judge_run(StoredRun.load(database, cut)).result.comparisons[0].verdict == "supported"
    database.dispose()
