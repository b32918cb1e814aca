"""The user's own SQL, read-only by construction.

Three walls, each enough for the usual cases: the file is opened in SQLite's read-only mode, the connection is
`query_only`, and an authorizer lets through nothing but reading (no ATTACH, no VACUUM INTO, no pragma that changes
anything, no loading of extensions). A writer at work is neither stopped nor waited for.
"""

import difflib
import itertools
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing

from db.engine import connect_readonly
from db.errors import QueryError, in_one_line, storage_error
from db.location import check_disk, check_file, database_path, no_database
from db.render import QueryResult, write_result
from db.runs import LAST, RUNS_SQL, choose_run
from db.stored_queries import RUN, parameter_names

__all__ = ["Parameter", "QueryResult", "number_or_text", "parse_parameters", "run_query", "write_result"]

Parameter = int | float | str

_READING = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE))
_PRAGMAS = frozenset(
    ("table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list")
)
_NEAR = 0.6


def run_query(url: str, sql: str, params: Mapping[str, Parameter] | None = None) -> QueryResult:
    """Run one statement that only reads. `:name` in it takes the value of that name in `params`.

    `:run` is a run: the newest one, unless `params` name another by its id, a unique part of it, or `last`.

    Raises:
        QueryError: SQL that does not run, that would write, or whose parameters are missing or unknown.
        RunNotFoundError: `:run` names no run, or several.
        LocationError: no database there.
        NetworkDiskError, StorageError: it cannot be read there.
        KeyboardInterrupt: the user stopped it.
    """
    path = database_path(url)
    check_file(path)
    if not path.exists() or path.stat().st_size == 0:
        raise no_database(path)
    check_disk(path)
    try:
        with closing(connect_readonly(path)) as connection:
            known = _known_columns(connection)
            _prepare_table_functions(connection)
            connection.set_authorizer(_authorize)
            return _fetch(connection, sql, _values(connection, sql, params or {}), known)
    except sqlite3.Error as error:
        raise storage_error(error, str(path)) or QueryError(f"{path}: {in_one_line(error)}") from error


def parse_parameters(pairs: Sequence[str]) -> dict[str, Parameter]:
    """`NAME=VALUE` texts as parameters; what reads as a number is one, but for a run's id.

    Raises:
        QueryError: a text without a name or an equals sign.
    """
    found: dict[str, Parameter] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not re.fullmatch(r":?[A-Za-z_]\w*", name):
            raise QueryError(f"parameter {pair!r}: write NAME=VALUE, for :NAME in the SQL")
        name = name.removeprefix(":")
        found[name] = text if name == RUN else number_or_text(text)
    return found


def number_or_text(text: str) -> Parameter:
    """A typed value as SQL should see it."""
    if re.fullmatch(r"[+-]?\d{1,1000}", text):  # SQLite has 19 digits, and Python reads 4300
        return int(text)
    if re.fullmatch(r"[+-]?(\d+\.\d*|\.?\d+)([eE][+-]?\d+)?", text):
        return float(text)
    return text


def _values(connection: sqlite3.Connection, sql: str, params: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """The parameters with the run's whole id; one that the SQL does not hold was misspelt."""
    names = parameter_names(sql)
    if unknown := [name for name in params if name not in names]:
        listed = ", ".join(f":{name}" for name in names) or "none"
        raise QueryError(f"parameter {unknown[0]}: the query holds no :{unknown[0]}; its parameters are {listed}")
    if RUN not in names:
        return dict(params)
    return {**params, RUN: choose_run(connection.execute(RUNS_SQL), str(params.get(RUN, LAST)))}


def _fetch(
    connection: sqlite3.Connection, sql: str, params: Mapping[str, Parameter], known: dict[str, list[str]]
) -> QueryResult:
    try:
        cursor = connection.execute(sql, dict(params))
        rows = tuple(cursor.fetchall())
    except (sqlite3.Error, sqlite3.Warning) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from error
        if isinstance(error, sqlite3.Error) and storage_error(error, ""):
            raise
        raise QueryError(_explain(error, sql, known)) from error
    except OverflowError as error:
        raise QueryError(f"SQL: a parameter is too large a number ({error})") from error
    if cursor.description is None:
        raise QueryError("SQL: the statement gives no result; write a SELECT")
    return QueryResult(columns=_unique([column[0] for column in cursor.description]), rows=rows)


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _inner: str | None) -> int:
    if action in _READING:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and second != "load_extension":
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and first is not None and first.lower() in _PRAGMAS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _prepare_table_functions(connection: sqlite3.Connection) -> None:
    """Use each table-valued function once: its first use declares a table, which the authorizer would refuse."""
    for function in ("json_each('[]')", "json_tree('[]')", *(f"pragma_{name}('')" for name in sorted(_PRAGMAS))):
        connection.execute(f"SELECT 1 FROM {function}").fetchall()


def _known_columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of each table and view."""
    rows = connection.execute(
        "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c"
        " WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite_%' ORDER BY m.type DESC, m.name, c.cid"
    )
    known: dict[str, list[str]] = {}
    for table, column in rows:
        known.setdefault(table, []).append(column)
    return known


def _explain(error: Exception, sql: str, known: dict[str, list[str]]) -> str:
    """State in one line what is wrong and what may have been meant."""
    text = str(error)
    if re.search("not authorized|authorization denied|prohibited|readonly", text):
        return "SQL: only reading is allowed here, and this statement would change something or open another file"
    if "one statement at a time" in text:
        return "SQL: several statements; give one at a time"
    if match := re.search(r"no such table: (\S+)", text):
        return f"SQL: no table or view {match[1]!r}; {_suggest(match[1], list(known), what='tables and views')}"
    if match := re.search(r"no such column: (\S+)", text):
        return f"SQL: no column {match[1]!r}; {_suggest_column(match[1], sql, known)}"
    if match := re.search(r"binding.* (:\w+|\d+)", text):
        name = match[1].removeprefix(":")
        return f"SQL: no value for the parameter :{name}; give it with --param {name}=VALUE"
    return f"SQL: {text}"


def _suggest_column(name: str, sql: str, known: dict[str, list[str]]) -> str:
    bare = name.rpartition(".")[2]
    used = [table for table in known if re.search(rf"\b{re.escape(table)}\b", sql, flags=re.IGNORECASE)]
    columns = sorted({column for table in used for column in known[table]})
    return _suggest(bare, columns, what=f"columns of {' and '.join(used)}")


def _suggest(name: str, choices: list[str], *, what: str) -> str:
    near = difflib.get_close_matches(name, choices, n=3, cutoff=_NEAR)
    return f"did you mean {' or '.join(near)}?" if near else f"the {what} are {', '.join(choices) or 'none'}"


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """The names, with _2, _3, ... at those that came before: a join gives `id` twice, and a JSON object holds one."""
    taken: list[str] = []
    for name in names:
        numbered = (name if number == 1 else f"{name}_{number}" for number in itertools.count(1))
        taken.append(next(candidate for candidate in numbered if candidate not in taken))
    return tuple(taken)
