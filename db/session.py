"""Opening the database, and one transaction on it.

    engine = open_database(database_url(None))
    with transaction(engine) as session:
        session.add(trial)

A transaction is short: it begins with its first statement and its one commit ends it.

The ORM loads with the first session. It takes as long as the rest of SQLAlchemy, and what is asked for often, such as
`interlace status`, reads its few rows by `plain_read`.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from db.engine import BEGIN_OPTION, open_engine
from db.errors import storage_errors
from db.location import database_path, database_url
from db.migrate import State, current, refuse_all_but_current, upgrade

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

__all__ = [
    "database_path",
    "database_url",
    "open_database",
    "open_engine",
    "open_existing",
    "plain_read",
    "plain_transaction",
    "read_only",
    "transaction",
]


def open_database(url: str) -> Engine:
    """The database, created where nothing is. An older one is refused: upgrading is the user's decision.

    Raises:
        DatabaseError: see `db.errors`; an older database with the command that upgrades it.
    """
    version = current(url)
    if version.state is State.FRESH:
        version = upgrade(url)
    refuse_all_but_current(version)
    return open_engine(url)


def open_existing(url: str) -> Engine:
    """The database, which must be there: for commands that only read.

    Raises:
        LocationError: nothing there yet.
        DatabaseError: see `open_database`.
    """
    refuse_all_but_current(current(url))
    return open_engine(url)


@contextmanager
def transaction(engine: Engine, *, patience_s: float = 0.0) -> "Iterator[Session]":
    """A session that holds the write lock from its first statement; one commit at the end, none after an exception.

    Args:
        patience_s: how long to go on waiting for the lock once the usual time-out is over.

    Raises:
        StorageError: the database stayed locked, the disk is full, or the like.
    """
    from sqlalchemy.orm import Session

    bind = engine.execution_options(**{BEGIN_OPTION: "IMMEDIATE"})
    with storage_errors(str(engine.url.database)), Session(bind, expire_on_commit=False) as session:
        if patience_s:
            _wait_for_lock(session, patience_s)
        with session.get_transaction() or session.begin():
            yield session


def _wait_for_lock(session: "Session", patience_s: float) -> None:
    """Begin, again and again while another process holds the lock. Nothing was done before, so nothing is lost."""
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            session.connection()
        except OperationalError as error:
            busy = isinstance(error.orig, sqlite3.Error) and error.orig.sqlite_errorcode == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline_s:
                raise
            session.rollback()
        else:
            return


@contextmanager
def read_only(engine: Engine) -> "Iterator[Session]":
    """A session that sees one state of the database and waits for no writer; what it changes is thrown away.

    Raises:
        StorageError: the database cannot be read.
    """
    from sqlalchemy.orm import Session

    with storage_errors(str(engine.url.database)), Session(engine, expire_on_commit=False) as session:
        yield session


@contextmanager
def plain_transaction(engine: Engine) -> Iterator[Connection]:
    """Like `transaction`, without the ORM's unit of work: for one small statement that is made often.

    Raises:
        StorageError: see `transaction`.
    """
    bind = engine.execution_options(**{BEGIN_OPTION: "IMMEDIATE"})
    with storage_errors(str(engine.url.database)), bind.begin() as connection:
        yield connection


@contextmanager
def plain_read(engine: Engine) -> Iterator[Connection]:
    """Like `read_only`, without the ORM: a connection for textual SQL.

    Raises:
        StorageError: the database cannot be read.
    """
    with storage_errors(str(engine.url.database)), engine.connect() as connection:
        yield connection
