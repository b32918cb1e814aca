"""The user's own SQL: what it answers, what it can never do, and what it says when it is wrong."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from db import models
from db.engine import connect_readonly
from db.errors import DatabaseError, LocationError, QueryError, StorageError
from db.query import parse_parameters, run_query
from db.session import transaction
from tests.db.conftest import Database
from tests.db.filling import START, Filled, fill

WRITES = [
    "INSERT INTO experiment (id, name, created_at) VALUES ('a', 'b', 'c')",
    "INSERT INTO experiment SELECT 'a', 'b', 'c' RETURNING id",
    "UPDATE run SET status = 'failed'",
    "DELETE FROM run",
    "DROP TABLE run",
    "DROP VIEW trial_flat",
    "ALTER TABLE run ADD COLUMN x",
    "CREATE TABLE t (x)",
    "CREATE TEMP TABLE t (x)",
    "CREATE VIEW v AS SELECT 1",
    "CREATE VIRTUAL TABLE v USING fts5(x)",
    "REINDEX",
    "ANALYZE",
    "VACUUM",
    "VACUUM INTO '{other}'",
    "ATTACH '{other}' AS other",
    "ATTACH 'file:{other}?mode=rwc' AS other",
    "DETACH main",
    "BEGIN IMMEDIATE",
    "SAVEPOINT s",
    "PRAGMA writable_schema = ON",
    "PRAGMA query_only = OFF",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA user_version = 7",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "SELECT load_extension('{other}')",
    "SELECT * FROM pragma_journal_mode('delete')",
]


@pytest.mark.parametrize("sql", WRITES)
def test_nothing_but_reading_is_possible(sql: str, stored: tuple[Database, Filled], tmp_path: Path) -> None:
    database, _ = stored
    database.engine.dispose()
    other = tmp_path / "other.db"
    before = database.path.read_bytes()
    with pytest.raises(QueryError) as caught:
        run_query(database.url, sql.format(other=other))
    assert database.path.read_bytes() == before
    assert not other.exists()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sql", [sql for sql in WRITES[:12] if "TEMP" not in sql and "fts5" not in sql])
def test_the_connection_cannot_write_even_without_the_authorizer(sql: str, stored: tuple[Database, Filled]) -> None:
    database, _ = stored
    with closing(connect_readonly(database.path)) as connection:
        connection.execute("PRAGMA query_only=OFF")  # as a hole in the authorizer would allow
        with pytest.raises(sqlite3.OperationalError, match="attempt to write a readonly database"):
            connection.execute(sql)


def test_reading_works_while_a_writer_is_at_work(database: Database) -> None:
    fill(database.engine)
    with transaction(database.engine) as session:
        session.add(models.Experiment(name="unfinished", created_at=START))
        session.flush()
        # The writer's lock is held by this very thread: waiting for it would end in an error.
        assert run_query(database.url, "SELECT count(*) FROM experiment").rows == ((1,),)
    assert run_query(database.url, "SELECT count(*) FROM experiment").rows == ((2,),)


def test_names_take_the_values_of_parameters(stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    sql = "SELECT count(*) AS n FROM trial_flat WHERE run_id = :run AND round = :round"
    found = run_query(database.url, sql, parse_parameters([f"run={filled.last_run}", "round=0"]))
    assert (found.columns, found.rows) == (("n",), ((4,),))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-7", -7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("0.32.4", "0.32.4"),
        ("2026-01-01", "2026-01-01"),
        ("a=b", "a=b"),
        ("", ""),
        ("nan", "nan"),
    ],
)
def test_what_reads_as_a_number_is_one(text: str, value: object) -> None:
    found = parse_parameters([f"x={text}", f":y={text}"])
    assert found == {"x": value, "y": value}
    assert type(found["x"]) is type(value)


@pytest.mark.parametrize("pair", ["x", "=1", "1x=2", "a b=1"])
def test_a_parameter_needs_a_name_and_an_equals_sign(pair: str) -> None:
    with pytest.raises(QueryError, match="NAME=VALUE"):
        parse_parameters([pair])


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT decode_tp FROM trial_flat", r"no column 'decode_tp'; did you mean decode_tps or engine_decode_tps\?"),
        ("SELECT t.thermal_befor FROM trial_flat t", "did you mean thermal_before"),
        ("SELECT xyzzy FROM host", "no column 'xyzzy'; the columns of host are chip, cpu_count, detail, id"),
        ("SELECT 1 FROM trials", r"no table or view 'trials'; did you mean trial or trial_flat\?"),
        (
            "SELECT 1 FROM xyzzy",
            "the tables and views are trial_flat, verdict_flat, arm, ",
        ),
        ("SELEC 1", 'near "SELEC": syntax error'),
        ("SELECT 1; SELECT 2", "several statements; give one at a time"),
        ("SELECT :arm", "no value for the parameter :arm; give it with --param arm=VALUE"),
        ("SELECT frobnicate(1)", "no such function: frobnicate"),
        ("", "gives no result; write a SELECT"),
        ("-- nothing", "gives no result; write a SELECT"),
    ],
)
def test_wrong_sql_is_one_clear_line(sql: str, message: str, stored: tuple[Database, Filled]) -> None:
    database, _ = stored
    with pytest.raises(QueryError, match=message) as caught:
        run_query(database.url, sql)
    assert "\n" not in str(caught.value)


def test_a_parameter_too_large_is_one_clear_line(stored: tuple[Database, Filled]) -> None:
    with pytest.raises(QueryError, match="too large a number"):
        run_query(stored[0].url, "SELECT :x", {"x": 2**70})


@pytest.mark.parametrize(
    "sql",
    [
        "PRAGMA table_info(run)",
        "SELECT name FROM pragma_table_info('run')",
        "SELECT name FROM pragma_index_list('run')",
        "SELECT value FROM json_each('[1, 2]')",
        "SELECT fullkey FROM json_tree('[1, 2]')",
        "EXPLAIN QUERY PLAN SELECT * FROM trial_flat",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 5) SELECT x FROM n",
        "SELECT json_extract(stamps_us, '$[#-1]') FROM generation",
        "SELECT arm, avg(decode_tps) OVER (PARTITION BY arm) FROM trial_flat",
        "SELECT sql FROM sqlite_master",
    ],
)
def test_everything_that_reads_is_allowed(sql: str, stored: tuple[Database, Filled]) -> None:
    assert run_query(stored[0].url, sql).rows


def test_columns_of_one_name_are_distinguished(stored: tuple[Database, Filled]) -> None:
    found = run_query(stored[0].url, "SELECT 1 AS id, 2 AS id, 3 AS id_2, 4 AS id")
    assert found.columns == ("id", "id_2", "id_2_2", "id_3")


def test_where_nothing_is_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="no database there yet; `interlace run` creates it"):
        run_query(str(tmp_path / "x.db"), "SELECT 1")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 4096)
    with pytest.raises(StorageError, match=r"x\.db: ") as caught:
        run_query(str(path), "SELECT 1")
    assert isinstance(caught.value, DatabaseError)


_ENDLESS = """
import sys
from db.query import run_query
print("ready", flush=True)
try:
    run_query(sys.argv[1], "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n")
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_ctrl_c_ends_a_long_query(stored: tuple[Database, Filled]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, stored[0].url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background inherits "ignored"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, "")


def test_values_come_as_sqlite_has_them(stored: tuple[Database, Filled]) -> None:
    values: Any = run_query(stored[0].url, "SELECT 1, 1.5, 'x', x'ff', NULL").rows[0]
    assert values == (1, 1.5, "x", b"\xff", None)
