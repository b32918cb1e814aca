"""Stored queries as files: their headers, their parameters, the user's own folder."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.errors import LocationError, QueryError, RunNotFoundError
from db.query import parse_parameters, run_query
from db.stored_queries import (
    GROUPS,
    SHIPPED,
    find_query,
    in_groups,
    is_file,
    is_name,
    parameter_names,
    parse_query,
    read_query,
    replace_parameters,
    stored_queries,
)
from tests.db.conftest import Database
from tests.db.filling import Filled

PATH = Path("hot.sql")
HEADER = "-- Hot? [the machine]\n--\n-- More\n-- of it.\n--\n-- :level = 1 (least)\n-- :arm (its name)\n"


@pytest.fixture(autouse=True)
def _no_folder_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLACE_QUERIES", raising=False)


def test_a_header_says_what_a_query_answers_and_takes() -> None:
    query = parse_query(HEADER + "SELECT :arm, :level, :run -- no :more\n", path=PATH)
    assert (query.name, query.title, query.group) == ("hot", "Hot?", "the machine")
    assert query.description == "More\nof it."
    assert [(each.name, each.default, each.meaning) for each in query.parameters] == [
        ("arm", None, "its name"),
        ("level", "1", "least"),
        ("run", "last", "the run"),
    ]
    assert query.defaults == {"level": "1", "run": "last"}
    assert query.sql.startswith("SELECT")


def test_a_file_without_a_header_is_a_query_all_the_same() -> None:
    query = parse_query("SELECT 1 WHERE 'a:b' = :x\n", path=PATH)
    assert (query.title, query.group, query.description, query.sql) == (
        "hot",
        "others",
        "",
        "SELECT 1 WHERE 'a:b' = :x",
    )
    assert [str(each) for each in query.parameters] == [":x"]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT :a, :b, :a", ("a", "b")),
        ("SELECT ':no', 'it''s :no', \":no\", [:no], `:no`", ()),
        ("SELECT 1 -- :no\n, /* :no\n */ :yes", ("yes",)),
        ("SELECT '%H:%M:%f', x::text", ("text",)),
        ("SELECT :1, : a, :_x9", ("_x9",)),
        ("/* :no", ()),
    ],
)
def test_parameters_are_found_where_sql_has_them(sql: str, names: tuple[str, ...]) -> None:
    assert parameter_names(sql) == names


_TEXTS = st.text(alphabet="ab:'\"-/*\n ", max_size=12)


@given(_TEXTS, _TEXTS)
def test_what_stands_in_quotes_is_no_parameter(before: str, inside: str) -> None:
    quoted = "'" + inside.replace("'", "''") + "'"
    assert parameter_names(f"SELECT {quoted}, :x") == ("x",)
    assert replace_parameters(f"SELECT {quoted}, :x", {"x": "1", "a": "2", "b": "3"}) == f"SELECT {quoted}, 1"
    comment = before.replace("*/", "").rstrip("*")
    assert parameter_names(f"/*{comment}*/:x") == ("x",)


def test_each_of_interlaces_own_is_reported_whole() -> None:
    shipped = list(SHIPPED.glob("*.sql"))
    assert shipped
    for path in shipped:
        query = read_query(path)
        assert query.title.endswith("?"), path
        assert query.group in GROUPS, path
        assert all(each.meaning for each in query.parameters), path
        header = path.read_text(encoding="utf-8").partition("SELECT")[0].partition("WITH")[0]
        assert header.count("-- :") == len(query.parameters), f"{path}: header and SQL name different parameters"


def test_groups_come_in_their_order() -> None:
    queries = [parse_query(f"-- Q [{group}]\nSELECT 1", path=PATH) for group in ("zoo", "the machine", "runs")]
    assert [group for group, _ in in_groups(queries)] == ["runs", "the machine", "zoo"]


def test_ones_own_folder_stands_beside_the_database_and_goes_first(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    assert not any(query.own for query in stored_queries(url))
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "speed.sql").write_text("SELECT 'mine'")
    (tmp_path / "queries" / "not a name.sql").write_text("SELECT 1")
    (tmp_path / "queries" / "notes.txt").write_text("no")
    found = stored_queries(url)
    assert [query.name for query in found if query.own] == ["speed"]
    assert [query.sql for query in found if query.name == "speed"] == ["SELECT 'mine'"]


def test_ones_own_folder_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    (tmp_path / "mine.sql").write_text("\ufeff-- Mine?\nSELECT 1")
    monkeypatch.setenv("INTERLACE_QUERIES", str(tmp_path))
    assert find_query(url, "mine").title == "Mine?"
    monkeypatch.setenv("INTERLACE_QUERIES", str(tmp_path / "nowhere"))
    with pytest.raises(LocationError, match="no such folder; set INTERLACE_QUERIES"):
        stored_queries(url)


def test_an_unknown_name_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(
        QueryError, match=r"query 'sped': no stored query, no \.sql file and no SQL; did you mean speed"
    ):
        find_query(str(tmp_path / "x.db"), "sped")


def test_a_file_that_is_no_text_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "x.sql").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LocationError, match=r"x\.sql: is not UTF-8 text"):
        read_query(tmp_path / "x.sql")
    with pytest.raises(LocationError, match=r"y\.sql: cannot be read"):
        read_query(tmp_path / "y.sql")


@pytest.mark.parametrize("text", ["speed", "slower-now", "mine_2"])
def test_one_word_is_a_name(text: str) -> None:
    assert is_name(text)
    assert not is_file(text)


@pytest.mark.parametrize("text", ["SELECT 1", "VALUES(1)", "x.sql", "a b.sql"])
def test_other_texts_are_no_name(text: str) -> None:
    assert not is_name(text)
    assert is_file(text) == text.endswith(".sql")


# ---- :run ----


def test_run_is_the_newest_run_or_one_named_in_part(stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    sql = "SELECT id FROM run WHERE id = :run"
    assert run_query(database.url, sql).rows == ((filled.last_run,),)
    assert run_query(database.url, sql, {"run": "last"}).rows == ((filled.last_run,),)
    assert run_query(database.url, sql, {"run": filled.first_run[-10:]}).rows == ((filled.first_run,),)
    with pytest.raises(RunNotFoundError, match="no run has this in its id"):
        run_query(database.url, sql, {"run": "xyz"})


def test_a_runs_id_is_never_read_as_a_number() -> None:
    assert parse_parameters(["run=0123", ":run=01e5"]) == {"run": "01e5"}


def test_a_parameter_that_the_sql_does_not_hold_was_misspelt(stored: tuple[Database, Filled]) -> None:
    with pytest.raises(QueryError, match="parameter rnu: the query holds no :rnu; its parameters are :run, :x"):
        run_query(stored[0].url, "SELECT :run, :x", {"rnu": 1, "x": 1})
