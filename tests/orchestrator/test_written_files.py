"""Files that commands write: for their owner alone, and never through a link, a device or a pipe."""

import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli import cli
from workers.weights.folders import exclusive, made_folder

RUN = [
    "engine=simulated",
    "checkpoint=simulated",
    "workload=quick",
    "engine.effect=1.0,1.2",
    "design.rounds=2",
    "design.alpha=0.5",
]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which somebody whose umask hides nothing has measured."""
    folder = tmp_path_factory.mktemp("night")
    interlace(folder, "queue", "add", *RUN)
    interlace(folder, "work", "--quiet")
    return folder


def interlace(folder: Path, *arguments: str, fails: bool = False) -> str:
    """Return the output of the command, in this process with a umask that hides nothing."""
    own = {"INTERLACE_DB": str(folder / "data" / "test.db"), "INTERLACE_STATE": str(folder / "locks")}
    before = os.umask(0)
    try:
        done = CliRunner(env=own).invoke(cli, arguments)
    finally:
        os.umask(before)
    code = getattr(done.exception, "code", getattr(done.exception, "exit_code", None)) if done.exception else 0
    assert code == (2 if fails else 0), (done.output, done.exception)
    return str(done.exception) if fails else done.output


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_nobody_else_can_read_what_was_measured(night: Path) -> None:
    interlace(night, "db", "backup")
    written = [path for path in night.rglob("*") if path.is_relative_to(night / "data") or "locks" in path.parts]
    names = {path.name for path in written}
    assert {"test.db", "workers.jsonl", "logs", "nights", "machine.lock"} <= names | {"machine.lock"}
    assert any(name.endswith(".log") for name in names)
    assert any(name.endswith(".backup.db") for name in names)
    assert {path: oct(mode(path)) for path in written if mode(path) & 0o077} == {}


def test_what_earlier_versions_left_readable_is_tightened(night: Path) -> None:
    data = night / "data"
    logs = next((data / "logs").iterdir())
    ours = [data / "test.db", logs, next((data / "nights").glob("*.md")), data / "state" / "workers.jsonl"]
    theirs = data / "logs" / "kept by hand"
    theirs.mkdir()
    for path in (*ours, theirs):
        path.chmod(0o755)
    interlace(night, "run", *RUN, "--quiet")
    assert {path.name: oct(mode(path)) for path in ours if mode(path) & 0o077} == {}
    assert mode(theirs) == 0o755
    theirs.rmdir()


WRITERS = {
    "export": ("db", "export", "last", "--force", "-o"),
    "backup": ("db", "backup", "--force"),
    "report": ("report", "last", "-o"),
    "query": ("query", "SELECT 1", "--format", "csv", "-o"),
    "parquet": ("query", "SELECT 1", "--format", "parquet", "-o"),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_writer_replaces_regular_files_only(writer: str, night: Path, tmp_path: Path) -> None:
    target, precious = tmp_path / "out", tmp_path / "precious"
    precious.write_text("precious")
    for place in (".out.partial", ".out.part", ".out.unfinished"):  # names that anybody can know
        (tmp_path / place).symlink_to(precious)
    target.write_text("old")
    interlace(night, *WRITERS[writer], str(target))
    assert (target.is_symlink(), mode(target)) == (False, 0o600)
    assert target.read_bytes() != b"old"
    for put in (lambda: target.symlink_to(precious), lambda: os.mkfifo(target)):
        target.unlink()
        put()
        before = target.lstat()
        assert " is there" in interlace(night, *WRITERS[writer], str(target), fails=True)
        assert target.lstat().st_ino == before.st_ino
    assert precious.read_text() == "precious"
    assert " is there" in interlace(night, *WRITERS[writer], "/dev/null", fails=True)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_checkpoint_is_made_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / "made" / ".model.lock").symlink_to(tmp_path / "precious" / "new")
    with pytest.raises(OSError, match="a symbolic link is there"), exclusive(tmp_path / "made" / "model"):
        pass
    (tmp_path / "made" / ".model.lock").unlink()
    (tmp_path / "made" / ".model.unfinished").symlink_to(tmp_path / "precious")
    target = tmp_path / "made" / "model"
    with exclusive(target), made_folder(target, {}) as unfinished:
        (unfinished / "config.json").write_text("{}")
    assert [each.name for each in (tmp_path / "precious").iterdir()] == ["file"]
    assert target.is_dir()
