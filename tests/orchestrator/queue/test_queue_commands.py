"""`queue`, `work`, `run` and `status` as they are typed: words, order, exit codes."""

import datetime as dt
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from db import models, queue
from db.engine import Database
from db.session import open_database, transaction
from orchestrator.cli import cli
from orchestrator.errors import HeldError
from orchestrator.plan import Arm
from orchestrator.planning.weights import ArmWeights, Weights
from orchestrator.queue.entry_run import run_entry
from orchestrator.queue.machine_lock import MachineLock
from orchestrator.running.events import Observer
from orchestrator.running.recorder import create_run
from tests.orchestrator.plans import arm
from tests.orchestrator.queue.nights import TWO, queued, small
from workers.machine.host import read_host
from workers.machine.process_identity import current_lease

SIMULATED = ("engine=simulated", "checkpoint=simulated", "workload=quick", "engine.effect=1.0,1.2", "design.rounds=6")


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setenv("INTERLACE_DB", str(tmp_path / "night.db"))
    return open_database(f"sqlite:///{tmp_path / 'night.db'}")


def typed(*words: str, fails: bool = False) -> tuple[int | None, str]:
    """A command's exit code and what it said; None: an error, which `main` turns into its own code."""
    done = CliRunner().invoke(cli, list(words), standalone_mode=False)
    if done.exception is not None:
        if not fails:
            raise done.exception
        return getattr(done.exception, "exit_code", None), str(done.exception)
    return done.return_value, done.output


def test_a_run_waits_with_its_plan_frozen_until_work_runs_it(database: Database, tmp_path: Path) -> None:
    _, said = typed("queue", "add", *SIMULATED)
    (entry,) = queue.entries(database)
    assert f"queued: run {entry.run_id}" in said
    assert "rounds" in said
    assert "1 run, about" in said
    assert "ends about" in said
    assert entry.run_status == "planned"
    code, said = typed("work", "--until", "07:00", "--quiet")
    assert code == 0
    assert said.index("ends about") < said.index("supported")
    assert queue.entries(database) == []
    (summary,) = (tmp_path / "nights").iterdir()
    assert "1 of 1 runs done" in summary.read_text(encoding="utf-8")


def test_what_failed_makes_the_night_end_with_3(database: Database, tmp_path: Path) -> None:
    queued(database, small(arm("a", fault="load_error"), arm("b")), tmp_path)
    queued(database, small(*TWO), tmp_path)
    code, said = typed("work", "--quiet")
    assert code == 3
    assert "preflight  ✗ found before the night:" in said
    assert "load_failed" in said
    _, said = typed("status")
    assert "failed" in said


def test_entries_are_named_by_a_part_of_their_id(database: Database, tmp_path: Path) -> None:
    ids = [queued(database, small(*TWO), tmp_path) for _ in range(3)]
    typed("queue", "move", ids[2][-8:], "--before", ids[1][-8:])
    assert [entry.run_id for entry in queue.entries(database)] == [ids[0], ids[2], ids[1]]
    typed("queue", "move", ids[1][-8:], "--first")
    typed("queue", "cancel", ids[0][-8:])
    _, said = typed("queue", "list")
    assert said.index(ids[1][-12:]) < said.index(ids[2][-12:])
    assert ids[0][-12:] not in said
    assert typed("queue", "move", ids[1][-8:], fails=True) == (
        2,
        "queue move: give one of --before ID, --first or --last",
    )
    assert typed("queue", "cancel", "nothing", fails=True)[0] == 2


def test_a_time_that_is_none_is_bad_input(database: Database) -> None:
    code, said = typed("work", "--until", "soon", fails=True)
    assert (code, "write 07:00" in said) == (2, True)


def test_an_empty_queue_is_no_fault(database: Database) -> None:
    assert typed("work")[0] == 0


def test_a_measured_run_does_not_start_beside_another(database: Database, tmp_path: Path, other: object) -> None:
    """And says who holds the machine, since when, and what to do instead; the entry keeps its place."""
    real = Arm(
        name="a",
        checkpoint=TWO[0].checkpoint,
        engine={"_target_": "workers.engines.mlx_lm.MlxLm", "name": "mlx_lm"},
        sampling=TWO[0].sampling,
        draft=None,
    )
    weights = ArmWeights(for_worker=Weights(checkpoint={}, draft=None), target=None, draft=None)
    recorder = create_run(database, small(real), host=read_host(), weights={"a": weights}, log_root=tmp_path / "logs")
    queue.add(database, recorder.run_id, now=dt.datetime.now(dt.UTC))
    with MachineLock("interlace resume") as lock, pytest.raises(HeldError, match="interlace work, at run the-run"):
        run_entry(database, recorder.run_id, lock=lock, observer=Observer())
    assert [entry.run_id for entry in queue.entries(database)] == [recorder.run_id]
    code, said = typed("work", fails=True)
    assert code == 4
    assert "since" in said
    assert "interlace queue add" in said
    _, said = typed("status")
    assert "this machine is measuring: process" in said


def test_status_says_one_end_of_what_runs_in_the_zone_of_all_its_times(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = queued(database, small(*TWO), tmp_path)
    ends_at = dt.datetime.now(dt.UTC) + dt.timedelta(hours=4, minutes=5)
    current = {"state": "running", "label": "a", "round": 0, "done": 1, "total": 4, "ends_at": ends_at.isoformat()}
    lease = current_lease()
    with transaction(database) as session:
        run = session.get_one(models.Run, run_id)
        run.status, run.current, run.created_at = "running", current, dt.datetime(2026, 11, 30, 8, 13, tzinfo=dt.UTC)
        run.runner_pid, run.runner_started_at, run.boot_id = lease.pid, lease.process_started_at, lease.boot_id
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        _, said = typed("status")
        ends = f"{ends_at.astimezone():%H:%M}"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert f"about 4 h 5 min left, ends about {ends}" in " ".join(said.split())
    (row,) = (line for line in said.splitlines() if line.endswith("runs"))
    assert "4 h 5 min" in row
    assert ends in row
    assert f"1 run, about 4 h 5 min: ends about {ends}" in said
    assert "2026-11-30 03:13" in said
    assert "UTC" not in said


def test_status_says_why_a_run_failed_and_how_it_goes_on(database: Database, tmp_path: Path) -> None:
    queued(database, small(arm("a", fault="no such"), arm("b")), tmp_path)
    newest = queued(database, small(arm("broken", fault="no such"), arm("b")), tmp_path)
    typed("work", "--quiet", "--no-preflight")
    said = " ".join(typed("status")[1].split())
    assert f"{newest[-12:]}: arm broken failed its preflight: unsupported_setting: " in said
    assert "arm a failed its preflight" not in said  # the newest one alone
    assert f"`interlace resume {newest[-12:]}`" in said
    assert "was interrupted" not in said


def test_status_says_why_a_run_was_interrupted_and_how_it_goes_on(database: Database, tmp_path: Path) -> None:
    run_id = queued(database, small(*TWO), tmp_path)
    with transaction(database) as session:
        run = session.get_one(models.Run, run_id)
        run.status, run.note = "interrupted", "the disk was full"
    said = " ".join(typed("status")[1].split())
    assert f"{run_id[-12:]}: the disk was full" in said
    assert "continue an interrupted run with `interlace work` or `interlace resume RUN`" in said
    assert "remove the cause" not in said


def test_run_is_add_and_work(database: Database) -> None:
    code, said = typed("run", *SIMULATED, "--quiet")
    assert code == 0
    assert "supported" in said
    (entry,) = queue.entries(database, state="done")
    assert entry.run_status == "done"
