"""Limits of one query: its cells, rows, memory and time are bounded for every client.

SQLite stops a statement between two steps of its program only. A single step that is bounded in its size may still take
minutes (a pattern full of wildcards against a long text), so a watch restarts the explorer if one does not end.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil

TIME_LIMIT_MS = 2_000
RESULT_BYTES = 5_000_000
_HEAP_BYTES = 200_000_000
_GRACE_S = 5.0  # after the time limit, until a statement counts as stuck
_LOOK_S = 0.5
_PROCESS_BYTES = 1_000_000_000
_ROW_BYTES = 50  # per row, in addition to its values
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 5_000_000,  # of a cell, and of a row: plans and texts have less
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 100_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 500,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


@dataclass(frozen=True, slots=True)
class Watch:
    """The running statements, and the start time of each."""

    running: dict[int, float] = field(default_factory=dict)  # by thread, in seconds of the monotonic clock
    ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """Wrap one statement. Running out of memory is reported as an error of the statement."""
        self.running[threading.get_ident()] = time.monotonic()
        try:
            yield
        except MemoryError as error:
            raise sqlite3.OperationalError("needs more memory than the explorer grants") from error
        finally:
            self.running.pop(threading.get_ident(), None)

    def problem(self, *, now_s: float, process_bytes: int | None) -> str | None:
        """Return why this process cannot go on, or None if it can."""
        if any(now_s - began_s > TIME_LIMIT_MS / 1000 + _GRACE_S for began_s in list(self.running.values())):
            return "a query could not be stopped"
        if process_bytes is not None and process_bytes > _PROCESS_BYTES:
            return f"the explorer holds more than {_PROCESS_BYTES / 1e9:.0f} GB"
        return None

    def keep(self, restart: Callable[[str], None]) -> None:
        """Check repeatedly in a separate thread; `restart` is called with the reason and does not return."""

        def look() -> None:
            while not self.ended.wait(_LOOK_S):
                why = self.problem(now_s=time.monotonic(), process_bytes=_held_bytes())
                if why is not None:
                    restart(why)

        threading.Thread(target=look, name="watch", daemon=True).start()


def _held_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


WATCH = Watch()


class LimitedCursor(sqlite3.Cursor):
    """Takes a result of bounded size, whatever is asked for."""

    def execute(self, sql: str, parameters: Any = (), /) -> "LimitedCursor":
        with WATCH.bounded():
            super().execute(sql, parameters)
        return self

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        return self._take(self.arraysize if size is None else size)

    def fetchall(self) -> list[Any]:
        return self._take(None)

    def _take(self, most: int | None) -> list[Any]:
        rows: list[Any] = []
        taken_bytes = 0
        with WATCH.bounded():
            while (most is None or len(rows) < most) and (row := self.fetchone()) is not None:
                taken_bytes += _ROW_BYTES + sum(len(value) for value in row if isinstance(value, str | bytes))
                if taken_bytes > RESULT_BYTES:
                    raise sqlite3.OperationalError(
                        f"the result has more than {RESULT_BYTES / 1e6:.0f} MB: ask for fewer rows or columns,"
                        " or use `interlace query`"
                    )
                rows.append(row)
        return rows


class LimitedConnection(sqlite3.Connection):
    """A connection whose cursors are limited."""

    def cursor(self, factory: Any = LimitedCursor) -> Any:
        return super().cursor(factory)


def limit(connection: sqlite3.Connection) -> None:
    """Set SQLite's own limits, and the heap's, which holds for the whole process."""
    for name, value in _LIMITS.items():
        connection.setlimit(name, value)
    connection.execute(f"PRAGMA hard_heap_limit={_HEAP_BYTES}").fetchone()
