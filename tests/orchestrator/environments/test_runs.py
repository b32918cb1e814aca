"""Whole runs whose arms declare environments, through the command line: built, recorded, exported, agreed to."""

import sqlite3
from pathlib import Path

import pytest

from orchestrator.environments import store

from .command_line import interlace
from .local_index import add_installed, add_wheel, use_index

pytestmark = pytest.mark.slow  # each builds environments

RUN = ("run", "engine=simulated", "gate=none", "workload=quick", "workload.max_tokens=16", "design.rounds=6", "--quiet")
SWEEP = "environment=app==1.0,app==1.1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that holds two releases of `app`, and what a simulated worker needs."""
    index = use_index(tmp_path, monkeypatch)
    monkeypatch.setattr("orchestrator.environments.resolve.roots", lambda needed: ("psutil",))
    for name in ("state", "x.db"):
        monkeypatch.setenv("INTERLACE_STATE" if name == "state" else "INTERLACE_DB", str(tmp_path / name))
    add_installed(index, "psutil")
    for version in ("1.0", "1.1", "2.0"):
        add_wheel(index, "app", version, requires=["helper==1.0" if version < "2" else "helper==2.0"])
    for version in ("1.0", "2.0"):
        add_wheel(index, "helper", version)
    return tmp_path


def rows(folder: Path, sql: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(folder / "x.db") as connection:
        return connection.execute(sql).fetchall()


def test_two_releases_are_compared_and_do_not_confound(folder: Path) -> None:
    planned = interlace("plan", *RUN[1:-1], SWEEP)
    assert planned.exit_code == 0, planned.output
    assert "not resolved yet" in planned.output
    assert not store.built()

    done = interlace(*RUN, SWEEP)
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    assert rows(folder, "SELECT name, environment FROM arm ORDER BY name") == [
        ("app 1.0", "app 1.0"),
        ("app 1.1", "app 1.1"),
    ]
    assert rows(folder, "SELECT DISTINCT arm, environment FROM trial_flat ORDER BY arm") == [
        ("app 1.0", "app 1.0"),
        ("app 1.1", "app 1.1"),
    ]
    assert rows(folder, "SELECT environment, name, version, is_named FROM locked_package WHERE name <> 'psutil'") == [
        ("app 1.0", "app", "1.0", 1),
        ("app 1.0", "helper", "1.0", 0),
        ("app 1.1", "app", "1.1", 1),
        ("app 1.1", "helper", "1.0", 0),
    ]
    ran = "SELECT DISTINCT arm.name, json_extract(environment.packages, '$.app') FROM trial JOIN arm ON arm.id = arm_id"
    assert rows(folder, f"{ran} JOIN environment ON environment.id = environment_id ORDER BY 1") == [
        ("app 1.0", "1.0"),
        ("app 1.1", "1.1"),
    ]
    assert rows(folder, "SELECT verdict FROM verdict_flat WHERE verdict = 'confounded'") == []
    assert "app 1.1" in done.output

    again = interlace("plan", *RUN[1:-1], SWEEP)
    assert again.output.count("3 packages") == 2
    assert "not built" not in again.output

    listed = interlace("environment", "list")
    assert "app 1.0" in listed.output
    shown = interlace("environment", "show", "app 1.1")
    assert "helper-1.0-py3-none-any.whl" in shown.output
    assert interlace("environment", "show", "app 7").exit_code == 2
    assert interlace("environment", "remove", "app 1.0").exit_code == 0
    assert [each.lock.environment for each in store.built()] == ["app 1.1"]
    assert interlace("environment", "remove").exit_code == 2


def test_a_release_that_moves_another_names_it_beside_the_verdict(folder: Path) -> None:
    done = interlace(*RUN, "environment=app==1.0,app==2.0")
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    reasons = str(rows(folder, "SELECT reasons FROM comparison WHERE prompt_class IS NULL"))
    assert "packages_moved" in reasons
    assert "helper 2.0" in reasons
    assert rows(folder, "SELECT verdict FROM verdict_flat WHERE verdict = 'confounded'") == []


def test_a_plan_from_elsewhere_installs_nothing_before_it_is_agreed_to(folder: Path) -> None:
    assert interlace(*RUN, SWEEP).exit_code == 0
    ((run_id,),) = rows(folder, "SELECT id FROM run")
    exported = folder / "theirs.interlace"
    assert interlace("db", "export", str(run_id), "-o", str(exported)).exit_code == 0
    (folder / "x.db").unlink()
    for each in store.built():
        store.remove(each)
    taken = interlace("db", "import", str(exported))
    assert taken.exit_code == 0, taken.output
    assert len(rows(folder, "SELECT 1 FROM locked_package")) == 6

    refused = interlace("run", "--from", str(run_id))
    assert refused.exit_code == 2
    assert "packages installed" in refused.output
    assert "app 1.0" in refused.output
    assert not store.built()

    agreed = interlace("run", "--from", str(run_id), "--yes", "--quiet")
    assert agreed.exit_code == 0, f"{agreed.output} {agreed.exception!r}"
    assert [each.lock.environment for each in store.built()] == ["app 1.0", "app 1.1"]


def test_a_release_that_does_not_exist_stores_nothing(folder: Path) -> None:
    done = interlace(*RUN, "environment=app==1.0,app==7")
    assert done.exit_code == 2
    assert "app==7" in str(done.exception)
    assert not (folder / "x.db").exists()
