"""The limits of one query, without a server."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from orchestrator.explore.limits import RESULT_BYTES, TIME_LIMIT_MS, LimitedConnection, Watch, limit
from orchestrator.explore.nonces import VARIABLE, Nonces

MANY = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 1000) "


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", factory=LimitedConnection)) as made:
        before = made.execute("PRAGMA hard_heap_limit").fetchone()[0]
        limit(made)
        yield made
        made.execute(f"PRAGMA hard_heap_limit={before}")  # it holds for the process


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT length(hex(zeroblob(300000000)))",
        "SELECT length(randomblob(300000000))",
        "SELECT replace(hex(zeroblob(2000000)), '0', '0000')",
        f"{MANY} SELECT group_concat(hex(zeroblob(100000))) FROM c",
        f"SELECT {'(' * 1000}1{')' * 1000}",
        f"SELECT '{'a' * 200_000}'",
        "ATTACH ':memory:' AS other",
        "SELECT 'a' LIKE hex(zeroblob(200))",
    ],
)
def test_a_cell_and_a_statement_have_an_end(connection: sqlite3.Connection, sql: str) -> None:
    with pytest.raises((sqlite3.DatabaseError, sqlite3.DataError)):
        connection.cursor().execute(sql).fetchall()


@pytest.mark.parametrize("fetch", ["fetchall", "fetchmany"])
def test_a_result_has_an_end(connection: sqlite3.Connection, fetch: str) -> None:
    cursor = connection.cursor().execute(f"{MANY} SELECT zeroblob(100000) FROM c")
    with pytest.raises(sqlite3.OperationalError, match="the result has more than 5 MB"):
        cursor.fetchall() if fetch == "fetchall" else cursor.fetchmany(1000)


def test_what_is_within_the_limits_comes_whole(connection: sqlite3.Connection) -> None:
    cursor = connection.cursor().execute(f"{MANY} SELECT x, zeroblob({RESULT_BYTES // 2000}) FROM c")
    assert len(cursor.fetchmany(400)) == 400
    assert len(cursor.fetchall()) == 600


def test_a_statement_that_nothing_stops_and_a_full_process_are_problems() -> None:
    watch = Watch()
    assert watch.problem(now_s=0.0, process_bytes=None) is None
    with watch.bounded():
        (began_s,) = watch.running.values()
        assert watch.problem(now_s=began_s + TIME_LIMIT_MS / 1000 + 1, process_bytes=200_000_000) is None
        assert watch.problem(now_s=began_s + 60, process_bytes=None) == "a query could not be stopped"
    assert watch.problem(now_s=began_s + 60, process_bytes=None) is None
    assert "more than 1 GB" in str(watch.problem(now_s=0.0, process_bytes=2_000_000_000))


def test_memory_that_runs_out_is_a_mistake_of_the_statement() -> None:
    with pytest.raises(sqlite3.OperationalError, match="more memory than the explorer grants"), Watch().bounded():
        raise MemoryError


def test_templates_get_the_nonce_before_any_data() -> None:
    from jinja2 import Environment

    source = (
        '<style>a</style><script src="x"></script><script>{{ data }}</script>'
        '<p style="height: {{ "a b"|length }}em" id="p"><h1 style="color: #{{ colour }}">t</h1>'
    )
    environment = Environment(extensions=[Nonces], autoescape=False)
    page = environment.from_string(source).render({VARIABLE: "n0", "data": "<script>evil</script>", "colour": "fff"})
    assert page.count('nonce="n0"') == 3
    assert "<script>evil" in page
    assert "style=" not in page
