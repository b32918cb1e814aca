"""Runs that are removed or moved: what goes with them, what stays, what is refused."""

import datetime as dt
import os
from pathlib import Path

import pytest
from sqlalchemy import text

from db import models, queue
from db.check import check
from db.engine import Database
from db.session import transaction
from tests.orchestrator.shells import SIMULATED, Shell, one_line
from workers.machine.process_identity import current_lease

NOW = dt.datetime(2026, 11, 30, tzinfo=dt.UTC)
RUN = ["run", *SIMULATED, "engine.effect=1.0,1.2", "design.rounds=6", "--quiet"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made(*RUN, "experiment=kept")
    made(*RUN, "experiment=gone")
    return made


def ids(shell: Shell) -> dict[str, str]:
    sql = "SELECT experiment.name AS name, run.id AS id FROM run JOIN experiment ON experiment.id = run.experiment_id"
    return {str(row["name"]): str(row["id"]) for row in shell.ask(sql)}


def database_of(shell: Shell) -> Database:
    from db.session import open_existing

    return open_existing(f"sqlite:///{shell.db}")


def sound(shell: Shell) -> bool:
    return check(f"sqlite:///{shell.db}").ok


def test_a_deleted_run_takes_its_rows_and_leaves_the_others(shell: Shell) -> None:
    gone, kept = ids(shell)["gone"], ids(shell)["kept"]
    logs = shell.folder / "logs" / gone
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "arm.log").write_text("words")
    before = shell.count(f"SELECT 1 FROM trial_flat WHERE run_id = '{kept}'")
    said = shell("db", "delete", gone, "--yes").stdout
    assert f"run {gone} (gone, done" in said
    assert "1 run deleted" in said
    assert ids(shell) == {"kept": kept}
    assert not logs.exists()
    assert shell.count("SELECT 1 FROM trial_flat") == before > 0
    assert shell.count("SELECT 1 FROM verdict_flat") > 0
    assert [row["name"] for row in shell.ask("SELECT name FROM experiment")] == ["kept"]
    assert sound(shell)
    shell("db", "delete", kept, "--yes")
    for table in ("trial", "generation", "telemetry", "arm", "checkpoint", "environment", "audit", "comparison"):
        assert shell.count(f"SELECT 1 FROM {table}") == 0
    assert sound(shell)


def test_nothing_goes_silently(shell: Shell) -> None:
    gone = ids(shell)["gone"]
    assert "add --yes" in one_line(shell("db", "delete", gone, code=2))
    said = shell("db", "delete", gone, "--dry-run").stdout
    assert "1 run would be deleted" in said
    assert "nothing was changed" in said
    assert "write the run's id" in one_line(shell("db", "delete", "last", "--yes", code=2))
    assert "no run has this" in one_line(shell("db", "delete", "gone", "--yes", code=2))  # an experiment's name
    assert len(ids(shell)) == 2


def test_a_run_that_waits_or_is_being_run_is_refused(shell: Shell) -> None:
    gone, kept = ids(shell)["gone"], ids(shell)["kept"]
    database = database_of(shell)
    queue.add(database, gone, now=NOW) if shell.count(
        f"SELECT 1 FROM queue_entry WHERE run_id = '{gone}'"
    ) == 0 else _set(database, "UPDATE queue_entry SET state = 'waiting' WHERE run_id = :id", gone)
    assert "interlace queue cancel" in one_line(shell("db", "delete", kept, gone, "--yes", code=2))
    assert "interlace queue cancel" in one_line(shell("db", "rename", gone, "other", code=2))
    assert len(ids(shell)) == 2
    lease = current_lease()
    with transaction(database) as session:
        run = session.get_one(models.Run, kept)
        run.status, run.runner_pid, run.runner_started_at = "running", lease.pid, lease.process_started_at
        run.boot_id = lease.boot_id
    assert f"process {os.getpid()}" in one_line(shell("db", "delete", kept, "--yes", code=4))
    assert f"process {os.getpid()}" in one_line(shell("db", "rename", kept, "other", code=4))
    assert len(ids(shell)) == 2


def _set(database: Database, sql: str, run_id: str) -> None:
    with transaction(database) as session:
        session.execute(text(sql), {"id": run_id})


def test_a_renamed_run_belongs_to_the_other_experiment(shell: Shell) -> None:
    gone = ids(shell)["gone"]
    assert "experiment gone is now kept" in shell("db", "rename", gone, "kept").stdout
    assert shell.count("SELECT DISTINCT run_id FROM trial_flat WHERE experiment = 'kept'") == 2
    assert shell.count("SELECT 1 FROM experiment") == 1
    shell("db", "rename", gone, "  an evening  ")
    assert ids(shell)["an evening"] == gone
    assert "is not a name" in one_line(shell("db", "rename", gone, "a\x1b[2Jb", code=2))
    assert sound(shell)


def test_prune_removes_what_ended_without_an_answer(shell: Shell) -> None:
    shell("queue", "add", *RUN[1:-1], "experiment=cancelled")
    cancelled = ids(shell)["cancelled"]
    assert "nothing to prune" in shell("db", "prune").stdout
    shell("queue", "cancel", cancelled)
    assert "1 run would be deleted" in shell("db", "prune", "--dry-run").stdout
    assert "nothing to prune" in shell("db", "prune", "--older-than", "1").stdout
    assert "add --yes" in one_line(shell("db", "prune", code=2))
    assert set(ids(shell)) == {"kept", "gone", "cancelled"}
    shell("db", "prune", "--yes")
    assert set(ids(shell)) == {"kept", "gone"}
    assert "2 runs deleted" in shell("db", "prune", "--simulated", "--yes").stdout
    assert sound(shell)
