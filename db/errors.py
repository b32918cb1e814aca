"""Errors of the database.

    DatabaseError
    ├── RequestError            what the user gave is wrong
    │   ├── LocationError       a URL or path that cannot hold a database, or a file that is not one
    │   ├── QueryError          SQL that does not run, or that would write
    │   ├── TransferError       a backup, an export or another database that cannot be written or taken in
    │   └── RunNotFoundError    a run's name that fits none, or several
    └── UnusableError           the database, or its disk, as it is now
        ├── SchemaError         older, newer, foreign or damaged
        ├── NetworkDiskError    SQLite's write-ahead log is not safe there
        └── StorageError        locked for too long, disk full, not writable, damaged while in use

A message says what, where and the remedy, in one line. `exit_code` is what a command ends with.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError


class DatabaseError(Exception):
    """Root of the errors of this package."""


class RequestError(DatabaseError):
    """The user's input is wrong; nothing was changed."""

    exit_code = 2


class LocationError(RequestError):
    """A URL or path that cannot hold a database, or a file that is not one."""


class QueryError(RequestError):
    """SQL that does not run, or that would write."""


class TransferError(RequestError):
    """A backup, an export or another database that cannot be written or taken in."""


class RunNotFoundError(RequestError):
    """A run's name that fits none, or several."""


class UnusableError(DatabaseError):
    """The database, or its disk, cannot be used as it is now."""

    exit_code = 4


class SchemaError(UnusableError):
    """Older or newer than this version, not ours, or damaged."""


class NetworkDiskError(UnusableError):
    """The database would lie on a network file system."""


class StorageError(UnusableError):
    """Locked for too long, disk full, not writable, or damaged."""


_CORRUPT = "see `interlace db check`; restore a backup"
_LONGEST_SHOWN = 200
_STORAGE_REMEDIES = {
    sqlite3.SQLITE_BUSY: "another process held it too long; see `interlace status`, then try again",
    sqlite3.SQLITE_LOCKED: "another process held it too long; see `interlace status`, then try again",
    sqlite3.SQLITE_FULL: "make room on the disk; `interlace resume` continues an interrupted run",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable, or name another with INTERLACE_DB",
    sqlite3.SQLITE_CANTOPEN: "check that the folder exists and may be written",
    sqlite3.SQLITE_IOERR: "the disk answered with an error; check it",
    sqlite3.SQLITE_CORRUPT: _CORRUPT,
    sqlite3.SQLITE_NOTADB: "name another file with INTERLACE_DB",
}


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Turn the storage failures of SQLite inside the block into `StorageError`; let every other error through.

    Raises:
        StorageError: see `storage_error`.
        KeyboardInterrupt: Ctrl-C, which SQLite reports as an error of its own.
    """
    try:
        yield
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            _pass_on_interrupt(error.orig)
        if isinstance(error.orig, sqlite3.Error) and (found := storage_error(error.orig, where)):
            raise found from error
        raise
    except sqlite3.Error as error:
        _pass_on_interrupt(error)
        if found := storage_error(error, where):
            raise found from error
        raise
    except UnicodeDecodeError as error:  # of a name in the schema, or of SQLite's own message about one
        raise StorageError(f"{where}: damaged (a name in it is not UTF-8); {_CORRUPT}") from error


def _pass_on_interrupt(error: sqlite3.Error) -> None:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
        raise KeyboardInterrupt from error


def storage_error(error: sqlite3.Error, where: str) -> StorageError | None:
    """The clear form of a failure of the storage; None for any other error of SQLite."""
    code = getattr(error, "sqlite_errorcode", None)  # absent where the module itself raised
    remedy = None if code is None else _STORAGE_REMEDIES.get(code & 0xFF)
    return None if remedy is None else StorageError(f"{where}: {in_one_line(error)}; {remedy}")


def in_one_line(error: object) -> str:
    """SQLite's words: of a damaged schema they quote it, with its line ends."""
    return " ".join(str(error).split())[:_LONGEST_SHOWN]
