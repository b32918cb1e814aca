"""Limits on SQLite when it reads a file of unknown origin, after its own "Defense Against The Dark Arts".

Every connection of this project goes through `watch`: the file's schema may call no function with a side effect, cells
are checked against their sizes, nothing is mapped into memory, and Ctrl-C works while SQLite does. A file that is not
ours gets limits besides, and a deadline.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from db.errors import SchemaError

STEPS_BETWEEN_LOOKS = 10_000  # of SQLite's virtual machine: some milliseconds
LONGEST_VALUE_BYTES = 32_000_000
_LONGEST_SQL_BYTES = 1_000_000
_HEAP_BYTES = 256_000_000  # of SQLite in this process; it can only be lowered afterwards
_LEAST_S, _BYTES_PER_S = 5.0, 2e6  # of CPU, for reading a file once from end to end
_PRAGMAS = ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0")
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: LONGEST_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: _LONGEST_SQL_BYTES,
    sqlite3.SQLITE_LIMIT_ATTACHED: 1,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


def watch(connection: sqlite3.Connection) -> None:
    """Set up a connection to any database, ours too."""
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    _listen(connection)


def limit(connection: sqlite3.Connection) -> None:
    """Set up a connection to a database that is not ours, after `watch`."""
    for category, most in _LIMITS.items():
        connection.setlimit(category, most)
    connection.execute(f"PRAGMA hard_heap_limit={_HEAP_BYTES}")


@contextmanager
def deadline(connection: sqlite3.Connection, file: Path, *, shown: Path) -> Iterator[None]:
    """Interrupt work that takes longer than reading a file of this size can take.

    CPU time counts, so that a busy machine does not look like an attack.

    Raises:
        SchemaError: the time is over.
    """
    allowed_s = _LEAST_S + file.stat().st_size / _BYTES_PER_S
    ends_at = time.process_time() + allowed_s
    connection.set_progress_handler(lambda: time.process_time() > ends_at, STEPS_BETWEEN_LOOKS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT and time.process_time() > ends_at:
            raise SchemaError(
                f"{shown}: reading it takes longer than {allowed_s:.0f} s, which no database of its size needs; take"
                " the file again from where it was made"
            ) from error
        raise
    finally:
        _listen(connection)


def _listen(connection: sqlite3.Connection) -> None:
    """The handler is where Python can look for Ctrl-C while SQLite works: see `db.errors.storage_errors`."""
    connection.set_progress_handler(lambda: 0, STEPS_BETWEEN_LOOKS)
