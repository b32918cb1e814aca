"""A backup is whole and sound, whatever is written meanwhile, and never in the way of anything."""

import datetime as dt
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from db.check import check
from db.errors import LocationError, SchemaError, StorageError, TransferError
from db.transfer.backup import backup, default_name, deliver
from tests.db.conftest import Database
from tests.db.filling import fill

# Commits one experiment after the other until it is ended; each names the one before it.
WRITER = """
import sys, sqlite3
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("PRAGMA journal_mode=WAL")
number = 0
while True:
    connection.execute("BEGIN IMMEDIATE")
    for half in "ab":
        connection.execute("INSERT INTO experiment VALUES (?, ?, '2026-01-01 00:00:00')", (f"{number}{half}",) * 2)
    connection.execute("COMMIT")
    print(number, flush=True)
    number += 1
"""


def test_a_backup_while_another_process_commits_is_one_state(database: Database, tmp_path: Path) -> None:
    fill(database.engine)
    database.engine.dispose()
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(database.path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        try:
            assert writer.stdout is not None
            before = int(writer.stdout.readline())
            found = [backup(database.url, tmp_path / f"{number}.db") for number in range(5)]
            assert writer.poll() is None
        finally:
            writer.kill()
    counts = []
    for made in found:
        assert check(str(made.path)).ok
        with closing(sqlite3.connect(made.path)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
            halves = [row[0] for row in connection.execute("SELECT name FROM experiment WHERE name GLOB '[0-9]*'")]
        assert sorted(name[:-1] for name in halves if name.endswith("a")) == sorted(
            name[:-1] for name in halves if name.endswith("b")
        )
        counts.append(len(halves) // 2)
    assert counts == sorted(counts)
    assert counts[0] > before


def test_its_name_is_beside_the_database_with_the_time(database: Database) -> None:
    now = dt.datetime(2026, 3, 1, 22, 5, 9, tzinfo=dt.UTC)
    made = backup(database.url, None, now=now)
    assert (
        made.path == database.path.with_name("interlace-20260301-220509.backup.db") == default_name(database.path, now)
    )
    assert made.size_bytes == made.path.stat().st_size
    assert not list(database.path.parent.glob(".interlace-backup-*"))


def test_what_is_there_is_replaced_by_force_only(database: Database, tmp_path: Path) -> None:
    target = tmp_path / "kept.db"
    target.write_text("something else")
    with pytest.raises(TransferError, match=r"kept.db: exists; name another file, or replace it with --force"):
        backup(database.url, target)
    assert target.read_text() == "something else"
    backup(database.url, target, force=True)
    assert check(str(target)).ok


def test_a_database_in_use_is_not_replaced_at_all(database: Database, tmp_path: Path) -> None:
    """Its log would be read as the new file's."""
    target = tmp_path / "live.db"
    with closing(sqlite3.connect(target)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t (x)")
        with pytest.raises(TransferError, match="is a database in use"):
            backup(database.url, target, force=True)


def test_the_database_itself_is_no_place_for_it(database: Database) -> None:
    with pytest.raises(TransferError, match="is the database itself"):
        backup(database.url, database.path, force=True)


def test_a_place_that_is_not_there(database: Database, tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="no such folder; create it"):
        backup(database.url, tmp_path / "nowhere" / "x.db")
    with pytest.raises(TransferError, match="is a folder"):
        backup(database.url, tmp_path)
    with pytest.raises(LocationError, match="no database there yet"):
        backup(str(tmp_path / "none.db"), tmp_path / "x.db")


def test_an_old_database_can_be_backed_up_before_its_upgrade(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old)) as connection:
        connection.executescript(
            "CREATE TABLE interlace_version (version_num); INSERT INTO interlace_version VALUES ('0001')"
        )
    assert backup(str(old), tmp_path / "copy.db").revision == "0001"


def test_a_damaged_database_gives_no_backup(database: Database, tmp_path: Path) -> None:
    fill(database.engine)
    database.engine.dispose()
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_arm_name'").fetchone()[0]
    with database.path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x0a" + b"\x00" * 7)
    with pytest.raises(SchemaError, match=r"damaged, and so is its copy, which was removed"):
        backup(database.url, tmp_path / "x.db")
    assert not (tmp_path / "x.db").exists()


def test_a_place_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.write_text("x")
    target = tmp_path / ("n" * 240)
    with pytest.raises(StorageError, match="cannot be written"):
        deliver(made, tmp_path / ("n" * 260))
    deliver(made, target)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["made", target.name])
