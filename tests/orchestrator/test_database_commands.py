"""`interlace db backup`, `export`, `import` and `merge` as a person meets them."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from db.errors import TransferError
from db.session import open_database
from orchestrator.cli import cli
from orchestrator.planning.weights import find_weights
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.recorder import create_run
from workers.machine.host import read_host

from .plans import arm, plan


def interlace(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), standalone_mode=False)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A database with two finished runs, and their ids."""
    path = tmp_path_factory.mktemp("commands") / "interlace.db"
    database, runs = open_database(str(path)), []
    for effect in (1.1, 1.2):
        planned = plan(arm("slow"), arm("fast", effect=effect), rounds=2)
        recorder = create_run(
            database, planned, host=read_host(), weights=find_weights(planned), log_root=path.parent / "logs"
        )
        run_recorded(recorder, observer=Observer())
        recorder.finish("done")
        runs.append(recorder.run_id)
    database.dispose()
    return path, runs


def test_a_backup_says_where_it_is_and_that_it_is_sound(filled: tuple[Path, list[str]], tmp_path: Path) -> None:
    done = interlace("db", "backup", str(tmp_path / "b.db"), "--db", str(filled[0]))
    assert done.output.startswith(f"{tmp_path / 'b.db'}: 0.")
    assert done.output.endswith("sound\n")
    again = interlace("db", "backup", str(tmp_path / "b.db"), "--db", str(filled[0]))
    assert isinstance(again.exception, TransferError)
    assert again.exception.exit_code == 2
    assert interlace("db", "backup", str(tmp_path / "b.db"), "--db", str(filled[0]), "--force").exception is None


def test_a_run_travels(filled: tuple[Path, list[str]], tmp_path: Path) -> None:
    database, runs = filled
    file, there = str(tmp_path / "run.zip"), str(tmp_path / "there.db")
    exported = interlace("db", "export", "last", "-o", file, "--db", str(database))
    told = re.search(rf"run {runs[-1]} \([^)]*\), (\d+) trials", exported.output)
    assert told is not None
    assert "not included: logs" in exported.output
    taken = interlace("db", "import", file, "--db", there)
    assert f"1 run new, 0 already there; {told[1]} trials new, 0 already there" in taken.output
    assert "0 runs new, 1 already there" in interlace("db", "import", file, "--db", there).output


def test_databases_merge_and_the_report_counts(filled: tuple[Path, list[str]], tmp_path: Path) -> None:
    database, runs = filled
    there = str(tmp_path / "there.db")
    first = interlace("db", "merge", str(database), "--db", there).output
    assert all(f"run {run_id}\n" in first for run_id in runs)
    assert "2 runs new, 0 already there" in first
    assert "0 runs new, 2 already there; 0 trials new" in interlace("db", "merge", str(database), "--db", there).output
