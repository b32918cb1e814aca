"""One run as one file: whole, checked, without logs and secrets, and taken in as a merge."""

import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from db.check import check
from db.errors import LocationError, SchemaError, TransferError
from db.session import open_database, transaction
from db.transfer.run_file import CONTENT, MANIFEST, export_run, import_run, is_portable, unpack
from tests.db.conftest import Database
from tests.db.filling import Filled, fill
from tests.db.states import contents

SECRET = {"engine": {"environment": {"HF_TOKEN": "hf_abcdef", "OMP_NUM_THREADS": "2"}}}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Filled]:
    """(a run's file, the database that it is of, what that holds): an older version stored a secret there."""
    folder = tmp_path_factory.mktemp("exported")
    database = folder / "interlace.db"
    engine = open_database(str(database))
    filled = fill(engine)
    with transaction(engine) as session:
        session.execute(
            text("UPDATE run SET plan = :plan WHERE id = :id"),
            {"plan": json.dumps({"arms": [SECRET]}), "id": filled.last_run},
        )
        session.execute(text("UPDATE arm SET config = :config"), {"config": json.dumps(SECRET)})
    engine.dispose()
    made = export_run(str(database), filled.last_run, folder / "night.zip")
    return made.path, database, filled


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def test_a_file_holds_that_run_and_what_it_refers_to(exported: tuple[Path, Path, Filled], tmp_path: Path) -> None:
    file, database, filled = exported
    manifest = unpack(file, tmp_path / "run.db")
    assert (manifest.run_id, manifest.experiment, manifest.trials) == (
        filled.last_run,
        "draft-or-quantise",
        filled.trials,
    )
    assert check(str(tmp_path / "run.db")).ok
    counts = {table: rows(tmp_path / "run.db", f"SELECT count(*) FROM {table}") for table in ("run", "audit", "host")}
    assert counts == {"run": [(1,)], "audit": [(2,)], "host": [(1,)]}
    assert is_portable(file)
    assert not is_portable(database)


def test_taken_in_it_is_the_run(exported: tuple[Path, Path, Filled], tmp_path: Path) -> None:
    file, database, filled = exported
    there = str(tmp_path / "there.db")
    first = import_run(there, file)
    assert (first.runs, first.runs_new, first.trials_new) == ((filled.last_run,), 1, filled.trials)
    again = import_run(there, file)
    assert (again.runs_new, again.runs_known, again.trials_new, again.notes) == (0, 1, 0, ())
    of_run = f"FROM trial_flat WHERE run_id = '{filled.last_run}' ORDER BY generation_id, trial_id"
    assert rows(tmp_path / "there.db", f"SELECT * {of_run}") == rows(database, f"SELECT * {of_run}")


def test_back_where_it_came_from_it_changes_nothing(exported: tuple[Path, Path, Filled]) -> None:
    file, database, _ = exported
    before = contents(database)
    assert import_run(str(database), file).runs_advanced == 0
    assert contents(database) == before


def test_no_secret_and_no_log_leaves(exported: tuple[Path, Path, Filled], tmp_path: Path) -> None:
    file, database, _ = exported
    manifest = unpack(file, tmp_path / "run.db")
    assert (manifest.redacted, manifest.not_included) == (["HF_TOKEN"], ["logs"])
    assert b"hf_abcdef" not in (tmp_path / "run.db").read_bytes()
    assert b"hf_abcdef" in database.read_bytes()  # the database itself is not changed by an export
    ((plan, log_dir),) = rows(tmp_path / "run.db", "SELECT plan, log_dir FROM run")
    assert json.loads(str(plan))["arms"][0]["engine"]["environment"]["OMP_NUM_THREADS"] == "2"
    assert log_dir is None
    assert rows(tmp_path / "run.db", "SELECT DISTINCT log_path FROM trial") == [(None,)]


def test_a_file_of_an_older_version_is_migrated(tmp_path: Path) -> None:
    old = tmp_path / "run.db"
    with closing(sqlite3.connect(old)) as connection:
        connection.executescript(Path("tests/fixtures/databases/0004.sql").read_text())
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("DELETE FROM run WHERE status = 'running'")
        connection.commit()
    current = tmp_path / "current.db"
    open_database(str(current)).dispose()
    ((run_id,),) = rows(old, "SELECT id FROM run")
    file = repacked(tmp_path, old, run_id=str(run_id), schema="0004")
    assert import_run(str(current), file).runs_new == 1


def test_a_file_of_a_newer_version_is_refused_with_the_remedy(
    exported: tuple[Path, Path, Filled], tmp_path: Path
) -> None:
    file, _, filled = exported
    content = tmp_path / "run.db"
    unpack(file, content)
    with closing(sqlite3.connect(content, isolation_level=None)) as connection:
        connection.execute("UPDATE interlace_version SET version_num = '9999'")
    newer = repacked(tmp_path, content, run_id=filled.last_run, schema="9999")
    with pytest.raises(SchemaError, match=r"newer interlace \(schema 9999.*upgrade interlace here"):
        import_run(str(tmp_path / "ours.db"), newer)
    future = repacked(tmp_path, content, run_id=filled.last_run, version=2)
    with pytest.raises(TransferError, match="format version 2, this interlace reads 1; upgrade interlace here"):
        import_run(str(tmp_path / "ours.db"), future)


def test_a_file_that_holds_another_run_than_it_says_is_refused(
    exported: tuple[Path, Path, Filled], tmp_path: Path
) -> None:
    file, _, _ = exported
    unpack(file, tmp_path / "run.db")
    wrong = repacked(tmp_path, tmp_path / "run.db", run_id="another")
    with pytest.raises(TransferError, match=r"does not hold the run that its manifest\.json names"):
        import_run(str(tmp_path / "ours.db"), wrong)


def repacked(folder: Path, content: Path, **changes: object) -> Path:
    """A file with this content, honestly summed, whose manifest says something else."""
    import hashlib

    manifest = {
        "format": "interlace-run",
        "version": 1,
        "schema": "0005",
        "run_id": "",
        "experiment": "e",
        "trials": 0,
        "interlace_version": "0",
        "exported_at": "",
        "content": CONTENT,
        "sha256": hashlib.sha256(content.read_bytes()).hexdigest(),
        "size_bytes": content.stat().st_size,
        "not_included": [],
        "redacted": [],
    } | changes
    file = folder / "repacked.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(MANIFEST, json.dumps(manifest))
        archive.write(content, CONTENT)
    return file


@pytest.mark.parametrize("keep", [0, 3, 100, -1, -30])
def test_a_truncated_file_is_refused(keep: int, exported: tuple[Path, Path, Filled], tmp_path: Path) -> None:
    cut = tmp_path / "cut.zip"
    cut.write_bytes(exported[0].read_bytes()[:keep])
    with pytest.raises(TransferError, match=r"cut.zip: (not a whole export|its content)"):
        unpack(cut, tmp_path / "run.db")


def test_a_name_inside_a_damaged_archive_is_not_quoted_whole(
    exported: tuple[Path, Path, Filled], tmp_path: Path
) -> None:
    content = bytearray(exported[0].read_bytes())
    place = content.index(b"PK\x03\x04", 4) + 26  # how long the name of the second entry is
    content[place : place + 2] = (5_000).to_bytes(2, "little")
    (tmp_path / "named.zip").write_bytes(content)
    said = refusal(tmp_path / "named.zip", tmp_path / "run.db")
    assert said is not None
    assert "not a whole export (File name in directory" in said
    assert len(said) < len(str(tmp_path)) + 400


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_is_refused_or_harmless(
    data: st.DataObject, exported: tuple[Path, Path, Filled], tmp_path: Path
) -> None:
    """An archive has a few bytes that say nothing; any other flip is an error that names the file."""
    content = bytearray(exported[0].read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    flipped = tmp_path / "flipped.zip"
    flipped.write_bytes(content)
    unpack(exported[0], tmp_path / "whole.db")
    said = refusal(flipped, tmp_path / "run.db")
    if said is None:
        assert (tmp_path / "run.db").read_bytes() == (tmp_path / "whole.db").read_bytes()
    else:
        assert said.startswith(str(flipped))
        assert "\n" not in said


def refusal(file: Path, content: Path) -> str | None:
    """Return why unpacking a file fails, or None."""
    try:
        unpack(file, content)
    except TransferError as error:
        return str(error)
    return None


def test_what_is_no_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="no such file"):
        unpack(tmp_path / "none.zip", tmp_path / "run.db")
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("letter.txt", "hello")
    with pytest.raises(TransferError, match="not a whole export"):
        unpack(other, tmp_path / "run.db")
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr(MANIFEST, '{"format": "letters", "version": 1}')
    with pytest.raises(TransferError, match="not an export of interlace"):
        unpack(other, tmp_path / "run.db")


def test_an_export_is_in_nobodys_way(database: Database, tmp_path: Path) -> None:
    filled = fill(database.engine)
    target = tmp_path / "x.zip"
    target.write_text("kept")
    with pytest.raises(TransferError, match="exists"):
        export_run(database.url, filled.first_run, target)
    assert export_run(database.url, filled.first_run, target, force=True).manifest.trials > 0
    with pytest.raises(TransferError, match="is the database itself"):
        export_run(database.url, filled.first_run, database.path, force=True)
    with pytest.raises(LocationError, match="no database there yet"):
        export_run(str(tmp_path / "none.db"), filled.first_run, tmp_path / "y.zip")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".interlace")]
