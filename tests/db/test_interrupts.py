"""Ctrl-C is heard while SQLite works, on every connection."""

import signal
from collections.abc import Callable
from contextlib import closing
from types import FrameType

import pytest
from sqlalchemy import text

from db.engine import connect_readonly
from db.errors import storage_errors
from db.session import read_only
from tests.db.conftest import Database

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


def by_session(database: Database) -> None:
    with read_only(database.engine) as session:
        session.execute(text(ENDLESS)).all()


def by_plain_connection(database: Database) -> None:
    with storage_errors("x"), closing(connect_readonly(database.path)) as connection:
        connection.execute(ENDLESS).fetchall()


# Datasette, if another test has imported it, makes sqlite3 show what a callback raised.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("ask", [by_session, by_plain_connection])
def test_ctrl_c_ends_a_statement_that_never_would(database: Database, ask: Callable[[Database], None]) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            ask(database)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
