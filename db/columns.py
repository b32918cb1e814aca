"""Descriptions of the tables and of the views' columns; `columns.toml` is their only source."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from db.errors import QueryError
from db.query import run_query

_FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewMeaning:
    """A view in words."""

    meaning: str
    shown: tuple[str, ...]  # the columns to begin with
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table or a view."""

    name: str
    kind: str  # SQLite's type; empty: an expression
    meaning: str  # empty: its name says it


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A table or a view, with its columns in order."""

    name: str
    meaning: str
    columns: tuple[Column, ...]


@cache
def views() -> Mapping[str, ViewMeaning]:
    """The described views, by name."""
    return {
        name: ViewMeaning(meaning=view["meaning"], shown=tuple(view["shown"]), columns=view["columns"])
        for name, view in _document()["views"].items()
    }


@cache
def tables() -> Mapping[str, str]:
    """The subject of one row of each table, by the table's name."""
    found: dict[str, str] = _document()["tables"]
    return found


def describe(url: str, name: str) -> Description:
    """A table or a view as the database has it, with what its columns mean.

    Raises:
        QueryError: no table or view has that name.
    """
    known = [str(row[0]) for row in run_query(url, "SELECT name FROM pragma_table_list WHERE schema = 'main'").rows]
    if name not in known:
        described = [*views(), *tables()]
        near = difflib.get_close_matches(name, described, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(described)}"
        raise QueryError(f"{name!r}: no table or view of this database; {hint}")
    rows = run_query(url, "SELECT name, type FROM pragma_table_info(:name)", {"name": name}).rows
    view = views().get(name)
    words = {} if view is None else view.columns
    columns = (Column(name=str(column), kind=str(kind), meaning=words.get(str(column), "")) for column, kind in rows)
    meaning = tables().get(name, "") if view is None else view.meaning
    return Description(name=name, meaning=meaning, columns=tuple(columns))


def _document() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
