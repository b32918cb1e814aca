"""The wall: a plan that came from elsewhere is judged here, and never executed before the user has seen and agreed."""

import hashlib
import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from db import models
from db.errors import TransferError
from db.session import open_existing, read_only
from orchestrator.errors import InputError, NotOursError
from orchestrator.planning.frozen_plan import frozen_plan
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.recorder import reopen_run
from tests.orchestrator.desk import Desk, changed, hostile_file, make_hostile


def test_a_plan_that_its_hash_does_not_name_is_not_taken_in(desk: Desk) -> None:
    run_id, file = hostile_file(desk, hashed=False)
    found = desk("db", "import", str(file)).exception
    assert isinstance(found, TransferError)
    assert f"run {run_id}, column plan: is not the plan that plan_sha256 names" in str(found)
    assert desk.sql("SELECT count(*) FROM run") == [(0,)]


@pytest.mark.parametrize("way", ["import", "merge"])
def test_an_imported_plan_executes_nothing(desk: Desk, way: str) -> None:
    run_id, file = hostile_file(
        desk, further="UPDATE run SET arrived_at = NULL, arrived_from = NULL, created_at = '2026-01-01 00:00:00.000000'"
    )
    if way == "merge":
        with zipfile.ZipFile(file) as archive:
            file = Path(archive.extract("run.db", desk.folder))
    assert desk("db", way, str(file)).exception is None
    assert desk.sql("SELECT simulated, arrived_from FROM run") == [(0, file.name)]
    refused = desk("resume", run_id).exception
    assert isinstance(refused, NotOursError)
    assert f"`interlace run --from {run_id}`" in str(refused)
    assert isinstance(desk("resume").exception, InputError)  # it is nobody's newest unfinished run here
    assert desk("work").exception is None
    database = open_existing(str(desk.db))
    recorder = reopen_run(database, frozen_plan(database, run_id), run_id)
    with pytest.raises(NotOursError, match="came from elsewhere"):
        run_recorded(recorder, observer=Observer())
    database.dispose()
    assert not (desk.folder / "pwned").exists()
    assert desk("audit", run_id).exit_code in (0, 1)  # judged it may be: here nothing of it is measured


def test_what_a_plan_would_execute_is_shown_whole_before_anybody_agrees(desk: Desk) -> None:
    run_id, file = hostile_file(desk)
    desk("db", "import", str(file))
    shown = desk("run", "--from", run_id)
    assert isinstance(shown.exception, InputError)
    assert shown.exception.exit_code == 2
    assert "--yes" in str(shown.exception)
    said = [line.strip() for line in shown.output.splitlines()]
    for expected in (
        "engine.log_command=sh -c 'touch pwned'",
        "engine.python=/tmp/evil/bin/python",
        "LD_PRELOAD=/tmp/evil.so",
        "engine.url=http://203.0.113.9:8080",
        "engine.body.callback=https://evil.example/x",
        "engine.api_key_env: the value of AWS_SECRET_ACCESS_KEY",
        "engine.body.note: ${oc.env:HF_TOKEN}",
        "engine.tokenizer=someone/tokenizer",
    ):
        assert expected in said
    assert f"taken from {file.name}" in shown.output
    assert desk.sql("SELECT count(*) FROM run") == [(1,)]
    assert isinstance(desk("run", "--from", run_id, "--yes", "design.rounds=9").exception, InputError)


def test_a_plan_that_was_agreed_to_is_a_new_run(desk: Desk) -> None:
    run_id = desk.planned()
    file = desk.exported(run_id)
    desk.forget()
    desk("db", "import", str(file))
    before = desk.sql("SELECT * FROM run")
    done = desk("run", "--from", run_id, "--yes", "--quiet")
    assert done.exception is None, done.exception
    assert [row for row in desk.sql("SELECT * FROM run") if row in before] == before
    ((new, status, plan, arrived_at),) = desk.sql("SELECT id, status, plan, arrived_at FROM run WHERE id <> ?", run_id)
    assert (status, arrived_at) == ("done", None)
    assert f"the plan of run {run_id}, taken from run.interlace" in json.loads(plan)["notes"][-1]
    assert desk.sql("SELECT count(*) FROM trial WHERE run_id = ?", run_id) == [(0,)]
    assert desk.sql("SELECT count(*) > 0 FROM trial WHERE run_id = ?", new) == [(1,)]


def test_a_run_of_ours_that_comes_back_keeps_its_plan_and_its_place(desk: Desk) -> None:
    run_id = desk.planned()
    whole = ("SELECT * FROM run", "SELECT * FROM arm ORDER BY id", "SELECT * FROM queue_entry")
    before = [desk.sql(sql) for sql in whole]
    file = desk.exported(run_id)
    swapped = changed(file, lambda found: make_hostile(found, hashed=False))
    assert isinstance(desk("db", "import", str(swapped)).exception, TransferError)
    rehashed = desk("db", "import", str(changed(file, lambda found: make_hostile(found, hashed=True))))
    assert "has another plan here" in rehashed.output
    later = "UPDATE run SET status = 'done', heartbeat_at = '2026-11-30 00:00:00.000000', simulated = 0"
    arms = "UPDATE arm SET state = 'dropped', config = '{}', engine = 'openai_http'"
    returned = changed(file, lambda found: found.executescript(f"{later}; {arms}"))
    assert "waits in the queue here; the other's rows are left out" in desk("db", "import", str(returned)).output
    assert [desk.sql(sql) for sql in whole] == before
    desk("queue", "cancel", run_id)
    assert "1 of them brought up to date" in desk("db", "import", str(returned)).output
    assert desk.sql(whole[1]) == before[1]
    assert desk.sql("SELECT status, seed, simulated, arrived_at FROM run") == [("done", 0, 1, None)]
    assert desk.sql("SELECT state FROM queue_entry") == [("cancelled",)]


def test_a_plan_edited_in_our_own_database_is_not_executed(desk: Desk) -> None:
    run_id = desk.planned()
    ((plan,),) = desk.sql("SELECT plan FROM run")
    desk.sql("UPDATE run SET plan = ?", plan.replace('"rounds":6', '"rounds":7'))
    refused = desk("resume", run_id).exception
    assert isinstance(refused, NotOursError)
    assert "its SHA-256 differs from plan_sha256" in str(refused)
    assert isinstance(desk("run", "--from", run_id, "--yes").exception, NotOursError)
    worked = desk("work", "--no-preflight", "--quiet")
    assert worked.return_value == 3
    assert desk.sql("SELECT state FROM queue_entry") == [("failed",)]
    assert desk.sql("SELECT count(*) FROM trial") == [(0,)]


def test_other_tools_results_have_no_plan_to_run(desk: Desk) -> None:
    desk("db", "import", str(Path(__file__).parents[1] / "fixtures" / "foreign" / "llama_bench.json"))
    ((run_id, arrived_from),) = desk.sql("SELECT id, arrived_from FROM run")
    assert arrived_from == "llama_bench.json"
    assert isinstance(desk("run", "--from", run_id, "--yes").exception, NotOursError)
    assert isinstance(desk("resume", run_id).exception, NotOursError)


def test_a_plan_of_wrong_types_is_one_clear_line(desk: Desk) -> None:
    run_id = desk.planned()
    file = desk.exported(run_id)
    desk.forget()
    for place, value, said in (
        (("design", "alpha"), "high", "plan.design.alpha is not a number"),
        (("design", "metric"), "speed", "plan.design.metric is not one of"),
        (("prompts",), {}, "plan.prompts is not a list"),
        (("arms",), [], "plan.arms does not hold the control"),
        (("control",), 3, "plan.control is not text"),
        (("extra",), 3, "plan has an unknown key 'extra'"),
    ):

        def change(found: sqlite3.Connection, place: tuple[str, ...] = place, value: Any = value) -> None:
            ((text,),) = found.execute("SELECT plan FROM run").fetchall()
            plan = json.loads(text)
            inner = plan
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            text = json.dumps(plan)
            found.execute("UPDATE run SET plan = ?, plan_sha256 = ?", (text, hashlib.sha256(text.encode()).hexdigest()))

        found = desk("db", "import", str(changed(file, change))).exception
        assert isinstance(found, TransferError), found
        assert said in str(found)


def test_runs_of_before_are_distinguished_as_far_as_their_rows_show_it(tmp_path: Path) -> None:
    from db.migrate import upgrade

    database = tmp_path / "old.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(Path("tests/fixtures/databases/0004.sql").read_text())
        ids = [row[0] for row in connection.execute("SELECT id FROM run ORDER BY id")]
        connection.execute("UPDATE run SET log_dir = ? WHERE id = ?", (str(tmp_path / "logs" / ids[0]), ids[0]))
        connection.commit()
    upgrade(str(database))
    with closing(sqlite3.connect(database)) as connection:
        found = dict(connection.execute("SELECT id, arrived_at IS NULL FROM run"))
    assert found == {ids[0]: 1, ids[1]: 0}  # the other's logs lie beside another database


def test_every_run_table_column_of_provenance_is_the_importers(desk: Desk) -> None:
    run_id = desk.planned()
    file = changed(
        desk.exported(run_id),
        lambda found: found.execute("UPDATE run SET runner_pid = 1, arrived_from = 'trust me'"),
    )
    desk.forget()
    desk("db", "import", str(file))
    database = open_existing(str(desk.db))
    with read_only(database) as session:
        run = session.get_one(models.Run, run_id)
    assert (run.runner_pid, run.arrived_from) == (None, file.name)
    database.dispose()
