"""Notes and tags: typed, shown wherever runs are, found by SQL, and changing nothing else."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from db.remarks import MOST_CHARACTERS, MOST_TAGS
from tests.orchestrator.shells import SIMULATED, Shell, one_line

RUN = ["run", *SIMULATED, "engine.effect=1.0,1.2", "design.rounds=6", "--quiet"]
NOTE = "fan at full speed, lid open"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """One run that no test changes."""
    made = Shell(tmp_path_factory.mktemp("stored"))
    made(*RUN, "experiment=kept")
    return made


@pytest.fixture
def shell(stored: Shell, tmp_path: Path) -> Shell:
    """A copy of it."""
    made = Shell(tmp_path)
    stored("db", "backup", str(made.db))
    return made


def frozen(shell: Shell) -> list[dict[str, object]]:
    return shell.ask("SELECT plan_sha256, status, origin, arrived_at, note, finished_at FROM run")


def test_what_was_said_stands_wherever_runs_are_shown(shell: Shell) -> None:
    before = frozen(shell)
    assert "no note and no tag" in shell("db", "note", "last").stdout
    shell("db", "note", "last", NOTE)
    assert f"#base #m4 {NOTE}" in shell("db", "tag", "last", "m4", "#base", "m4").stdout
    listed = shell("status").stdout
    assert "kept #base #m4" in listed
    assert NOTE in listed
    assert f"#base #m4 {NOTE}" in shell("audit", "last").stdout
    shell("report", "last", "-o", "r.html")
    assert f"#base #m4 {NOTE}" in (shell.folder / "r.html").read_text()
    assert f"#base #m4 {NOTE}" in shell("history", "--simulated").stdout
    assert NOTE in shell("query", "runs", "--format", "csv").stdout
    assert shell.count("SELECT 1 FROM run, json_each(run.tags) AS tag WHERE tag.value = 'base'") == 1
    assert "m4" not in shell("db", "tag", "last", "--remove", "m4", "--remove", "never").stdout.split("#base")[1][:5]
    shell("db", "note", "last", "")
    assert shell.ask("SELECT remark, tags FROM run") == [{"remark": None, "tags": '["base"]'}]
    shell("db", "tag", "last", "--remove", "base")
    assert shell.ask("SELECT remark, tags FROM run") == [{"remark": None, "tags": None}]
    assert frozen(shell) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["note", "last", "two\nlines"], "without line breaks"),
        (["note", "last", "\x1b[2J"], "letters that can be printed"),
        (["note", "last", "x" * (MOST_CHARACTERS + 1)], "is too long"),
        (["tag", "last", "two words"], "is not a valid tag"),
        (["tag", "last", ""], "is not a valid tag"),
        (["tag", "last", *map(str, range(MOST_TAGS + 1))], "at most 20 tags"),
        (["note", "nobody", "x"], "no run has this in its id"),
    ],
)
def test_what_cannot_be_stored_is_one_line(stored: Shell, arguments: list[str], words: str) -> None:
    assert words in one_line(stored("db", *arguments, code=2))
    assert stored.ask("SELECT remark, tags FROM run") == [{"remark": None, "tags": None}]


def test_an_imported_run_takes_them_along_and_keeps_what_was_said_here(shell: Shell, tmp_path: Path) -> None:
    shell("db", "note", "last", "theirs")
    shell("db", "tag", "last", "there")
    shell("db", "export", "last", "-o", "a.interlace")
    (tmp_path / "other").mkdir()
    other = Shell(tmp_path / "other")
    other("db", "import", str(tmp_path / "a.interlace"))
    assert "#there theirs" in other("db", "note", "last").stdout
    other("db", "note", "last", "mine")
    assert other.count("SELECT 1 FROM run WHERE arrived_at IS NOT NULL") == 1  # it is still one that is never executed
    other("db", "import", str(tmp_path / "a.interlace"))
    assert "#there mine" in other("db", "note", "last").stdout


def test_a_hostile_file_says_nothing_that_is_not_text(shell: Shell, tmp_path: Path) -> None:
    shell("db", "backup", "b.db")
    with closing(sqlite3.connect(tmp_path / "b.db")) as connection, connection:
        connection.execute("UPDATE run SET tags = '{\"a\": 1}'")
    (tmp_path / "other").mkdir()
    said = one_line(Shell(tmp_path / "other")("db", "merge", str(tmp_path / "b.db"), code=2))
    assert "column tags" in said
