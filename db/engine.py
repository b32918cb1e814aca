"""Connections to SQLite, set up the one way that this project needs.

Writers begin with BEGIN IMMEDIATE: they wait for the lock at their first statement, never half-way, so that a busy
database costs time and not a failed transaction. Readers begin deferred, and under the write-ahead log neither waits
for the other. The driver's own BEGIN is switched off (`isolation_level=None`) because it leaves out SELECT and DDL.
"""

import json
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event

from db.escaping import storable
from db.guard import watch
from db.location import check_disk, check_file, database_path, keep_private, make_folder
from db.redaction import masked

Database = Engine  # an opened database; elsewhere in this project an engine generates tokens
BUSY_TIMEOUT_S = 30.0
_RETRY_S = 0.02
# A commit has reached the disk when it returns: with synchronous=NORMAL, a power cut would take the last commits out of
# the write-ahead log. On macOS only F_FULLFSYNC empties the drive's own cache; elsewhere these two change nothing.
_DURABLE = ("synchronous=FULL", "fullfsync=ON", "checkpoint_fullfsync=ON")
BEGIN_OPTION = "interlace_begin"  # an execution option: DEFERRED (default) or IMMEDIATE


def compact_json(value: Any) -> str:
    """JSON without spaces. NaN and infinity are refused: no other reader of the column would take them.

    Raises:
        ValueError: NaN or infinity.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def open_engine(url: str) -> Engine:
    """An engine on a SQLite file that may not exist yet; its folder is created.

    Raises:
        LocationError: the place cannot hold a database, or the file is not one.
        NetworkDiskError: it lies on a network file system.
    """
    engine = _engine(url)
    _set_up(engine, "foreign_keys=ON")
    return engine


def open_migration_engine(url: str) -> Engine:
    """Like `open_engine`, for changing the tables themselves: see `set_up_for_migration`."""
    engine = _engine(url)
    set_up_for_migration(engine)
    return engine


def set_up_for_migration(engine: Engine) -> None:
    """Foreign keys off, and renames that leave views alone.

    With foreign keys on, recreating a parent table deletes its children and reports success.
    """
    _set_up(engine, "foreign_keys=OFF", "legacy_alter_table=ON")


def connect_readonly(
    path: Path, *, any_thread: bool = False, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """A plain connection that cannot change the file.

    Args:
        any_thread: the caller sees to it that one at a time uses it.
        factory: the connection's class.

    Raises:
        sqlite3.OperationalError: nothing to open there.
    """
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=not any_thread,
        factory=factory,
    )
    watch(connection)
    connection.execute("PRAGMA query_only=ON")
    return connection


def _engine(url: str) -> Engine:
    path = database_path(url)
    check_file(path)
    check_disk(path)
    make_folder(path)
    keep_private(path)
    return create_engine(
        URL.create("sqlite", database=str(path)),
        json_serializer=compact_json,
        connect_args={"timeout": BUSY_TIMEOUT_S},
    )


def _set_up(engine: Engine, *pragmas: str) -> None:
    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None
        watch(connection)
        for pragma in (*pragmas, *_DURABLE):
            connection.execute(f"PRAGMA {pragma}")
        _write_ahead(connection)

    @event.listens_for(engine, "close")
    def roll_back(connection: sqlite3.Connection, _record: object) -> None:
        # After Ctrl-C the pool closes the connection in its transaction. SQLite keeps it, and the lock, until its last
        # statement ends; the exception's traceback still refers to that.
        with suppress(sqlite3.Error):
            connection.rollback()

    @event.listens_for(engine, "before_cursor_execute", retval=True)
    def mask(
        _connection: object, _cursor: object, statement: str, parameters: Any, _context: object, _many: bool
    ) -> tuple[str, Any]:
        return statement, storable(masked(parameters))

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        mode = connection.get_execution_options().get(BEGIN_OPTION, "DEFERRED")
        connection.exec_driver_sql(f"BEGIN {mode}")
        if mode == "IMMEDIATE":
            # References are checked at the commit, so that rows may be written in any order.
            connection.exec_driver_sql("PRAGMA defer_foreign_keys=ON")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log. The switch does not wait for a lock as statements do, so it is tried again."""
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while connection.execute("PRAGMA journal_mode").fetchone()[0] not in ("wal", "memory"):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
            time.sleep(_RETRY_S)
