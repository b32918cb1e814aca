"""Opening, transactions, and several processes at once."""

import datetime as dt
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from db import engine as engine_module
from db import location, models
from db.errors import DatabaseError, LocationError, NetworkDiskError, SchemaError, StorageError
from db.migrate import current
from db.query import run_query
from db.session import open_database, open_engine, open_existing, read_only, transaction
from tests.db.conftest import Database

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def _experiment(name: str) -> models.Experiment:
    return models.Experiment(name=name, created_at=NOW)


def _names(database: Database) -> list[str]:
    with read_only(database.engine) as session:
        return list(session.scalars(sa.select(models.Experiment.name).order_by(models.Experiment.name)))


# ---- opening ----


def test_a_fresh_database_is_made_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.db"
    open_database(f"sqlite:///{path}").dispose()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM interlace_version").fetchone() == (current(str(path)).head,)


@pytest.mark.parametrize(
    ("pragma", "value"),
    [("journal_mode", "wal"), ("foreign_keys", 1), ("synchronous", 2), ("fullfsync", 1), ("busy_timeout", 30_000)],
)
def test_every_connection_is_set_up(pragma: str, value: object, database: Database) -> None:
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value


def test_an_empty_file_counts_as_fresh(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.touch()
    database = open_database(str(path))
    assert set(sa.inspect(database).get_table_names()) >= {table.name for table in models.Base.metadata.sorted_tables}
    database.dispose()


def test_a_newer_database_is_refused_and_left_as_it_was(database: Database) -> None:
    _set_version(database, "9999")
    before = database.path.read_bytes()
    with pytest.raises(SchemaError, match=r"written by a newer interlace.*upgrade interlace"):
        open_database(database.url)
    assert database.path.read_bytes() == before


def test_a_foreign_database_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE photo (id INTEGER)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(SchemaError, match=r"a database of another program.*INTERLACE_DB"):
        open_database(str(path))
    assert path.read_bytes() == before
    assert [child.name for child in tmp_path.iterdir()] == ["photos.db"]


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be one" * 100])
def test_no_database_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises(LocationError, match="is not a SQLite database"):
        open_database(str(path))


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 4096)
    with pytest.raises(StorageError, match=r"x\.db: .*INTERLACE_DB"):
        open_database(str(path))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="is a folder"):
        open_database(str(tmp_path))


def test_a_network_disk_is_refused_before_the_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "_mounts", lambda: [("/", "nfs")])
    with pytest.raises(NetworkDiskError):
        open_database(str(tmp_path / "x.db"))
    assert not (tmp_path / "x.db").exists()


def test_a_file_without_a_database_is_named_as_what_it_is(tmp_path: Path) -> None:
    empty, bare = tmp_path / "empty.db", tmp_path / "bare.db"
    empty.touch()
    with closing(sqlite3.connect(bare)) as connection:
        connection.executescript("CREATE TABLE t (a); DROP TABLE t")
    for path, words in ((empty, "an empty file"), (bare, "holds no tables")):
        with pytest.raises(LocationError, match=f"{path.name}: {words}; `interlace run` creates a database in it, or"):
            open_existing(str(path))
    with pytest.raises(LocationError, match="an empty file"):
        run_query(str(empty), "SELECT 1")
    for path in (empty, bare):
        open_database(str(path)).dispose()
        assert run_query(str(path), "SELECT count(*) FROM run").rows == ((0,),)


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_within_a_statement_leaves_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: type[BaseException]
) -> None:
    """The end of a run is stored while the exception, whose traceback holds the statement, is being handled."""
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_S", 0.1)
    database = open_database(str(tmp_path / "x.db"))
    left = [end()]

    @sa.event.listens_for(database, "after_cursor_execute")
    def interrupt(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if left and statement.startswith("SELECT"):
            raise left.pop()

    def interrupted() -> None:
        with transaction(database) as session:
            session.add(_experiment("lost"))
            session.flush()
            session.execute(sa.text("SELECT 1 UNION SELECT 2"))

    try:
        interrupted()
    except end:
        with transaction(database) as session:
            session.add(_experiment("kept"))
    assert (_names(database), left) == (["kept"], [])


def test_reading_commands_do_not_create(tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="no database there yet; `interlace run` creates it"):
        open_existing(str(tmp_path / "x.db"))
    assert not (tmp_path / "x.db").exists()


def test_messages_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError) as caught:
        open_existing(str(tmp_path / "x.db"))
    assert "\n" not in str(caught.value)


def _set_version(database: Database, revision: str) -> None:
    database.engine.dispose()
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute("UPDATE interlace_version SET version_num = ?", (revision,))
        connection.commit()


# ---- transactions ----


def test_a_transaction_commits_once_at_its_end(database: Database) -> None:
    statements: list[str] = []
    with closing(sqlite3.connect(database.path)) as other, transaction(database.engine) as session:
        raw = session.connection().connection.dbapi_connection
        assert isinstance(raw, sqlite3.Connection)
        raw.set_trace_callback(statements.append)
        session.add(_experiment("one"))
        session.flush()
        session.add(_experiment("two"))
        session.flush()
        assert other.execute("SELECT count(*) FROM experiment").fetchone() == (0,)
    assert statements.count("COMMIT") == 1
    assert _names(database) == ["one", "two"]


def test_an_exception_undoes_everything(database: Database) -> None:
    def fail_in_the_middle() -> None:
        with transaction(database.engine) as session:
            session.add(_experiment("one"))
            session.flush()
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        fail_in_the_middle()
    assert _names(database) == []


def test_rows_may_be_added_in_any_order(database: Database) -> None:
    with transaction(database.engine) as session:
        session.add(models.Telemetry(trial_id="later", phase="before", field="x", value=1.0))
        session.flush()
        session.rollback()
    with transaction(database.engine) as session:
        round_row = models.Round(id="round", run_id="run", index=0, attempt=0, order=[])
        session.add(round_row)
        session.flush()
        session.add_all([_run("run", "experiment", "host"), _host("host")])
        session.flush()
        session.add(models.Experiment(id="experiment", name="e", created_at=NOW))
    with read_only(database.engine) as session:
        assert session.scalars(sa.select(models.Round.id)).all() == ["round"]


def test_a_reference_to_nothing_is_refused_at_the_commit(database: Database) -> None:
    with pytest.raises(IntegrityError, match="FOREIGN KEY"), transaction(database.engine) as session:
        session.add(models.Telemetry(trial_id="never", phase="before", field="x", value=1.0))
    with read_only(database.engine) as session:
        assert session.scalars(sa.select(models.Telemetry)).all() == []


def test_what_a_reader_changes_is_thrown_away(database: Database) -> None:
    with read_only(database.engine) as session:
        session.add(_experiment("one"))
        session.flush()
    assert _names(database) == []


def _host(key: str) -> models.Host:
    return models.Host(id=key, name="h", machine_sha256="x", detail={})


def _run(key: str, experiment_id: str, host_id: str) -> models.Run:
    return models.Run(
        id=key,
        experiment_id=experiment_id,
        host_id=host_id,
        status="planned",
        created_at=NOW,
        plan="{}",
        plan_sha256="",
        workload_sha256="",
        seed=0,
        rounds=6,
        metric="decode_tps",
        interleave_by="prompt",
        order_distribution="uniform",
        simulated=True,
    )


# ---- several at once ----


def test_a_writer_waits_for_another(database: Database) -> None:
    held = threading.Event()
    order: list[str] = []

    def hold() -> None:
        with transaction(database.engine) as session:
            session.add(_experiment("first"))
            session.flush()
            held.set()
            time.sleep(0.1)  # the other one comes meanwhile
            order.append("first")

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(timeout=10)
    with transaction(database.engine) as session:
        # The lock comes with the first statement, a SELECT too: what is read cannot change before it is written.
        assert session.scalar(sa.select(sa.func.count()).select_from(models.Experiment)) == 1
        order.append("second")
        session.add(_experiment("second"))
    thread.join()
    assert order == ["first", "second"]
    assert _names(database) == ["first", "second"]


def test_a_lock_held_too_long_is_a_clear_error(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_S", 0.05)
    impatient = open_engine(database.url)
    words = r"interlace\.db: database is locked; another process.*interlace status"
    with transaction(database.engine) as session:
        session.add(_experiment("first"))
        session.flush()
        with pytest.raises(StorageError, match=words), transaction(impatient) as other:
            other.add(_experiment("second"))
    impatient.dispose()
    assert _names(database) == ["first"]


def test_a_reader_sees_one_state_while_a_writer_commits(database: Database) -> None:
    with read_only(database.engine) as session:
        count = sa.select(sa.func.count()).select_from(models.Experiment)
        assert session.scalar(count) == 0
        with transaction(database.engine) as writer:
            writer.add(_experiment("one"))
        assert session.scalar(count) == 0
    assert _names(database) == ["one"]


_WRITER = """
import datetime as dt, sys
from db.models import Experiment
from db.query import run_query
from db.session import open_database, transaction
engine = open_database(sys.argv[1])
for number in range(40):
    with transaction(engine) as session:
        session.add(Experiment(name=f"{sys.argv[2]}-{number:03}", created_at=dt.datetime.now(dt.UTC)))
"""
_READER = """
import sys, time
from db.query import run_query
seen = []
deadline = time.monotonic() + 60
while (not seen or seen[-1] < 40) and time.monotonic() < deadline:
    seen.append(run_query(sys.argv[1], "SELECT count(*) FROM experiment").rows[0][0])
assert seen == sorted(seen) and seen[-1] >= 40, seen
"""


def _start(code: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-W", "error", "-c", code, *arguments], stderr=subprocess.PIPE, text=True)


def test_a_reading_and_a_writing_process_do_not_stop_each_other(database: Database) -> None:
    processes = [_start(_READER, database.url), _start(_WRITER, database.url, "a")]
    assert [process.communicate(timeout=90)[1] for process in processes] == ["", ""]
    assert [process.returncode for process in processes] == [0, 0]


def test_two_processes_may_create_the_same_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new' / 'x.db'}"
    processes = [_start(_WRITER, url, name) for name in ("a", "b", "c")]
    assert [process.communicate(timeout=90)[1] for process in processes] == [""] * 3
    engine = open_database(url)
    with read_only(engine) as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(models.Experiment)) == 120
    engine.dispose()


def test_a_killed_writer_leaves_what_it_committed(database: Database) -> None:
    code = _WRITER + "\nimport os, signal\nwith transaction(engine) as session:\n"
    code += "    session.add(Experiment(name='unfinished', created_at=dt.datetime.now(dt.UTC)))\n"
    code += "    session.flush()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    process = _start(code, database.url, "a")
    process.communicate(timeout=60)
    assert process.returncode == -9
    assert len(_names(database)) == 40


def test_the_switch_to_the_write_ahead_log_waits_for_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("CREATE TABLE t (x)")
        other.execute("BEGIN EXCLUSIVE")
        release = threading.Timer(0.3, lambda: other.execute("COMMIT"))
        release.start()
        impatient = sqlite3.connect(path, timeout=0)
        with closing(impatient), pytest.raises(sqlite3.OperationalError, match="locked"):
            impatient.execute("PRAGMA journal_mode=WAL")
        engine = open_engine(str(path))
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        engine.dispose()
        release.join()
