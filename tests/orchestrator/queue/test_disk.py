"""A database that is locked, or a disk that is full, at the moment of a commit."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event, select

from db import models, queue
from db.errors import StorageError
from db.live import life
from db.session import read_only, transaction
from orchestrator.queue.agenda import waiting_here
from tests.orchestrator.queue.nights import TWO, Teller, database_of, night_of, queued, small
from workers.machine.host import read_host


@contextmanager
def locked(path: Path, *, for_s: float) -> Iterator[None]:
    """Another process's write lock, let go of after a while."""
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")

    def let_go() -> None:
        time.sleep(for_s)
        holder.execute("COMMIT")

    waiting = threading.Thread(target=let_go)
    waiting.start()
    yield
    waiting.join()
    holder.close()


def impatient(engine: Engine) -> None:
    """A time-out of the driver that is over at once."""

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA busy_timeout=20")

    engine.dispose()


def test_a_lock_is_waited_for_beyond_the_drivers_time_out(tmp_path: Path) -> None:
    database = database_of(tmp_path)
    run_id = queued(database, small(*TWO), tmp_path)
    impatient(database)
    with locked(tmp_path / "night.db", for_s=0.3):
        with pytest.raises(StorageError, match="locked"), transaction(database) as session:
            session.get_one(models.Run, run_id).note = "too soon"
        with transaction(database, patience_s=60) as session:
            session.get_one(models.Run, run_id).note = "in time"
    assert life(database, run_id).note == "in time"


def test_a_lock_that_stays_is_an_error_in_the_end(tmp_path: Path) -> None:
    database = database_of(tmp_path)
    run_id = queued(database, small(*TWO), tmp_path)
    impatient(database)
    with (
        locked(tmp_path / "night.db", for_s=0.5),
        pytest.raises(StorageError, match="locked"),
        transaction(database, patience_s=0.1) as session,
    ):
        session.get_one(models.Run, run_id)


def test_a_transaction_that_waited_commits_once_and_undoes_what_fails(tmp_path: Path) -> None:
    database = database_of(tmp_path)
    run_id = queued(database, small(*TWO), tmp_path)

    def change_and_fail() -> None:
        with transaction(database, patience_s=5) as session:
            session.get_one(models.Run, run_id).note = "gone"
            session.flush()
            raise LookupError

    with pytest.raises(LookupError):
        change_and_fail()
    assert life(database, run_id).note is None


@pytest.fixture
def room() -> list[int]:
    """Pages that the database may have; 0: as many as it likes."""
    return [0]


def fill(engine: Engine, room: list[int]) -> None:
    @event.listens_for(engine, "begin")
    def limit(connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count={room[0] or 2**30}")


def trials(engine: Engine) -> list[int]:
    with read_only(engine) as session:
        return list(session.scalars(select(models.Trial.sequence).where(models.Trial.kind == "measured")))


def test_a_full_disk_ends_the_night_clearly_loses_nothing_and_goes_on_with_room(
    tmp_path: Path, room: list[int]
) -> None:
    database, teller = database_of(tmp_path), Teller()
    first = queued(database, small(*TWO, rounds=30), tmp_path)
    queued(database, small(*TWO), tmp_path)
    with database.connect() as connection:
        room[0] = int(connection.exec_driver_sql("PRAGMA page_count").scalar_one()) + 30
    fill(database, room)
    night = night_of(database, teller)
    with pytest.raises(StorageError, match=r"full; make room on the disk; `interlace resume` continues an int"):
        night.drain()
    assert [ended.state for ended in night.ended] == ["waiting"]
    there = trials(database)
    assert 0 < len(there) < 60
    assert teller.begun == [first]
    room[0] = 0
    assert waiting_here(database, read_host())[0].entry.run_id == first
    tomorrow = night_of(database, Teller())
    tomorrow.drain()
    assert [ended.state for ended in tomorrow.ended] == ["done", "done"]
    entry = queue.entry_of(database, first)
    assert entry is not None
    assert entry.state == "done"
    with read_only(database) as session:
        done = list(
            session.scalars(
                select(models.Trial.sequence).where(models.Trial.run_id == first, models.Trial.status == "done")
            )
        )
    assert len(done) == len(set(done)) == 60
