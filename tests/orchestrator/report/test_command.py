"""`interlace report` as typed."""

import errno
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import cli
from orchestrator.errors import InputError
from tests.orchestrator.plans import arm, plan

from .runs import store


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("command")
    database, _ = store(folder, plan(arm("plain"), arm("fast", effect=1.2), rounds=6))
    database.dispose()
    return f"sqlite:///{folder / 'report.db'}"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["report", *arguments])


def test_it_writes_the_page_and_says_where(url: str, tmp_path: Path) -> None:
    target, markdown = tmp_path / "new folder" / "report.html", tmp_path / "notes" / "report.md"
    done = invoke("last", "--db", url, "-o", str(target), "--markdown", str(markdown))
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [f"report   {target}", f"markdown {markdown}"]
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "fast is " in markdown.read_text(encoding="utf-8")
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_an_existing_page_is_replaced(url: str, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old", encoding="utf-8")
    assert invoke("last", "--db", url, "-o", str(target)).exit_code == 0
    assert "old" != target.read_text(encoding="utf-8")


def test_a_folder_is_refused_before_any_work(url: str, tmp_path: Path) -> None:
    done = invoke("last", "--db", url, "-o", str(tmp_path))
    assert isinstance(done.exception, InputError)
    assert "a folder is there" in str(done.exception)


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EACCES, 4), (errno.EROFS, 4), (errno.ENOSPC, 4), (errno.ENOENT, 2)]
)
def test_a_full_or_read_only_disk_is_the_machines_fault_and_not_the_users(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "fsync", refuse)
    done = invoke("last", "--db", url, "-o", str(tmp_path / "report.html"))
    assert getattr(done.exception, "exit_code", None) == code
    assert "cannot be written" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_reported_in_one_line(url: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = invoke("last", "--db", url, "-o", str(tmp_path / "file" / "report.html"))
    assert isinstance(done.exception, InputError)
    assert "cannot be written" in str(done.exception)
