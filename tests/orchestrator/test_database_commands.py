"""`interlace db backup`, `export`, `import` and `merge` as a person meets them."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from db.errors import TransferError
from db.session import open_database
from orchestrator.cli import cli
from tests.db.filling import Filled, fill


def interlace(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), standalone_mode=False)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Filled]:
    path = tmp_path_factory.mktemp("commands") / "interlace.db"
    engine = open_database(str(path))
    found = fill(engine)
    engine.dispose()
    return path, found


def test_a_backup_says_where_it_is_and_that_it_is_sound(filled: tuple[Path, Filled], tmp_path: Path) -> None:
    done = interlace("db", "backup", str(tmp_path / "b.db"), "--db", str(filled[0]))
    assert done.output.startswith(f"{tmp_path / 'b.db'}: 0.")
    assert done.output.endswith("sound\n")
    again = interlace("db", "backup", str(tmp_path / "b.db"), "--db", str(filled[0]))
    assert isinstance(again.exception, TransferError)
    assert again.exception.exit_code == 2
    assert interlace("db", "backup", str(tmp_path / "b.db"), "--db", str(filled[0]), "--force").exception is None


def test_a_run_travels(filled: tuple[Path, Filled], tmp_path: Path) -> None:
    database, found = filled
    file, there = str(tmp_path / "run.zip"), str(tmp_path / "there.db")
    exported = interlace("db", "export", "last", "-o", file, "--db", str(database))
    assert f"run {found.last_run} (draft-or-quantise), {found.trials} trials" in exported.output
    assert "not included: logs" in exported.output
    taken = interlace("db", "import", file, "--db", there)
    assert f"1 run new, 0 already there; {found.trials} trials new, 0 already there" in taken.output
    assert "0 runs new, 1 already there" in interlace("db", "import", file, "--db", there).output


def test_databases_merge_and_the_report_counts(filled: tuple[Path, Filled], tmp_path: Path) -> None:
    database, found = filled
    there = str(tmp_path / "there.db")
    first = interlace("db", "merge", str(database), "--db", there).output
    assert f"run {found.first_run}\n" in first
    assert "2 runs new, 0 already there" in first
    assert "0 runs new, 2 already there; 0 trials new" in interlace("db", "merge", str(database), "--db", there).output
