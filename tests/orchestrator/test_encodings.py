"""Every command says what it has to say in every locale, and writes the same files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, select

from db import models
from db.session import open_database, read_only, transaction
from orchestrator.cli import cli
from tests.db.filling import START, fill
from tests.db.odd_night import fill_odd_night
from tests.orchestrator.plans import arm, plan
from tests.orchestrator.report.runs import store

ENCODINGS = ("ascii", "latin-1")


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with text of every kind."""
    path = tmp_path_factory.mktemp("encodings") / "n.db"
    engine: Engine = open_database(str(path))
    fill(engine)
    fill_odd_night(engine)
    engine.dispose()
    return str(path)


def invoke(database: str, encoding: str, *arguments: str) -> Result:
    return CliRunner(charset=encoding, env={"INTERLACE_DB": database}).invoke(cli, arguments)


COMMANDS = (
    ("status",),
    ("history",),
    ("query", "--list"),
    ("query", "--describe", "trial_flat"),
    ("query", "SELECT '→ ✓ 漢 😀 ' || text AS \"ünï→\" FROM generation"),
    ("query", "SELECT '→ ✓ 漢 😀' AS x", "--format", "markdown"),
    ("db", "check"),
    ("db", "path"),
    ("checkpoint", "list"),
    ("plan", "engine=simulated", "checkpoint=simulated", "workload=quick", "experiment='é→漢'"),
    ("query", "SELECT '→' FROM nowhere"),
)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_ends_in_an_encoding_error(command: tuple[str, ...], encoding: str, night: str) -> None:
    done = invoke(night, encoding, *command)
    assert not isinstance(done.exception, UnicodeError), done.exception
    assert done.exit_code == 0 or "nowhere" in str(done.exception)
    assert done.stdout_bytes or done.exit_code


@pytest.mark.parametrize("style", ["table", "markdown", "json"])
def test_an_audit_is_printed_in_every_locale(style: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("audited")
    database, _ = store(folder, plan(arm("plain"), arm("schnäll→漢", effect=1.2), rounds=6))
    database.dispose()
    for encoding in ENCODINGS:
        done = invoke(str(folder / "report.db"), encoding, "audit", "last", "--format", style)
        assert done.exit_code == 0, done.exception
        assert b"\\u2192" in done.stdout_bytes


@pytest.mark.parametrize("style", ["csv", "json"])
def test_data_is_the_same_in_every_locale(style: str, night: str) -> None:
    command = ("query", "SELECT '→ ✓ 漢 😀 é' AS x", "--format", style)
    found = {invoke(night, encoding, *command).stdout_bytes for encoding in ("utf-8", *ENCODINGS)}
    assert len(found) == 1
    assert "→ ✓ 漢 😀 é" in found.pop().decode("utf-8")


def test_a_run_in_a_locale_without_its_letters(tmp_path: Path) -> None:
    """Its worker, its log, its summary of the audit and its files, by the command itself."""
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    environment = os.environ | plain | {"INTERLACE_DB": str(tmp_path / "n.db")}

    def interlace(*arguments: str | bytes) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "orchestrator", *arguments]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=False)

    arms = ["engine=simulated", "checkpoint=simulated", "workload=quick", "engine.effect=1.0,1.2"]
    done = interlace("run", *arms, "design.rounds=2", "design.alpha=0.5", "experiment='→é'")
    assert (done.returncode, done.stderr) == (0, b"")
    report = interlace("report", "last", "-o", "r.html", "--markdown", "r.md")
    assert (report.returncode, report.stderr) == (0, b"")
    assert "→é" in (tmp_path / "r.html").read_text("utf-8")
    assert "→é" in (tmp_path / "r.md").read_text("utf-8")
    asked = interlace("query", "SELECT char(8594) AS x", "--format", "json")
    assert json.loads(asked.stdout.decode("utf-8")) == [{"x": "→"}]
    bad = interlace("plan", os.fsencode("experiment=\udcff"))
    assert (bad.returncode, b"argument 2 is not UTF-8 text" in bad.stderr) == (2, True)


def test_half_a_character_is_stored_as_its_escape(tmp_path: Path) -> None:
    engine = open_database(str(tmp_path / "n.db"))
    with transaction(engine) as session:
        session.add(models.Experiment(name="a\ud800b", created_at=START))
    with read_only(engine) as session:
        assert session.scalars(select(models.Experiment.name)).all() == ["a\\ud800b"]
    engine.dispose()
