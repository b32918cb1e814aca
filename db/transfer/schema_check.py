"""Is a copy of somebody's database what our own revisions make, and undamaged? Asked before any row of it is read.

A schema is code: a view, a trigger, an index on an expression, a CHECK or a generated column runs when a table is read
or checked. So the text of every statement in it is checked against what our revisions make of the same version.
"""

import re
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from db.check import Ddl, migrated_ddl, normalised_ddl
from db.engine import connect_readonly
from db.errors import SchemaError, TransferError, in_one_line, storage_errors
from db.guard import deadline, limit
from db.migrate import State, Version, broken_reference, current, upgrade, view_files

_AUTOMATIC = re.compile(r"sqlite_autoindex_\w+")
# SQLite's own statistics, where somebody ran ANALYZE.
_STATISTICS = {"sqlite_stat1": ("CREATE TABLE sqlite_stat1", "tbl", "idx", "stat")}
_NAMES_SHOWN = 60


def connect_strange(path: Path) -> sqlite3.Connection:
    """A connection to a copy of a file that is not ours; it cannot change the copy."""
    connection = connect_readonly(path)
    limit(connection)
    return connection


def examine(copy: Path, *, shown: Path) -> None:
    """Check a copy and bring it to this version. `shown` is the file that messages are about.

    Raises:
        TransferError: no database of ours.
        SchemaError: newer, damaged, slow beyond reason, or with something in its schema that is not ours.
    """
    version = current(str(copy))
    _refuse_other_than_ours(version, shown)
    try:
        with storage_errors(str(shown)), closing(connect_strange(copy)) as connection:
            with deadline(connection, copy, shown=shown):
                _refuse_strange_schema(connection, version, shown)
                _refuse_damage(connection, shown)
        if version.state is State.OLDER:
            upgrade(str(copy))
    except (sqlite3.Error, DBAPIError, UnicodeDecodeError) as error:
        raise SchemaError(f"{shown}: damaged ({in_one_line(error)}); take it from a backup") from error


def _refuse_other_than_ours(version: Version, shown: Path) -> None:
    if version.state is State.NEWER:
        raise SchemaError(
            f"{shown}: written by a newer interlace (schema {version.revision}, this one knows {version.head});"
            " upgrade interlace here, then try again"
        )
    if version.state in (State.FOREIGN, State.FRESH):
        raise TransferError(f"{shown}: holds no interlace database; name one, see `interlace db path` where it is from")


def _refuse_strange_schema(connection: sqlite3.Connection, version: Version, shown: Path) -> None:
    if connection.execute("PRAGMA encoding").fetchone() != ("UTF-8",):
        raise SchemaError(f"{shown}: its texts are not UTF-8; export the run again")
    wanted = _made_by(str(version.revision))
    replaced = view_files() if version.state is State.OLDER else {}  # by the upgrade, before anything reads them
    found: dict[str, Ddl] = {}
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        if not isinstance(name, str) or not isinstance(sql, str | None):
            raise SchemaError(f"{shown}: its schema is damaged; take it from a backup")
        if sql is None and kind == "index" and _AUTOMATIC.fullmatch(name):
            continue
        if kind == "view" and name in replaced:
            continue
        ddl = normalised_ddl(sql or "")
        if name not in wanted or not re.match(rf"CREATE (UNIQUE )?{kind} ", ddl[0], re.IGNORECASE):
            raise SchemaError(
                f"{shown}: not sound (unknown: {kind} {name[:_NAMES_SHOWN]}, which interlace does not make); it is not"
                " read: remove it in a copy, or export the run again"
            )
        found[name] = ddl
    for name in sorted(wanted):
        if name in found and found[name] != wanted[name]:
            raise SchemaError(f"{shown}: not sound (differs: {name}, from what interlace makes); export the run again")
        if name not in found and wanted[name][0].startswith("CREATE TABLE") and name not in _STATISTICS:
            raise SchemaError(f"{shown}: not sound (missing: {name}, which interlace makes); export the run again")


@cache
def _made_by(revision: str) -> dict[str, Ddl]:
    """All that our revisions make up to this one, the version's own table included."""
    return migrated_ddl(to=revision, whole=True) | _STATISTICS


def _refuse_damage(connection: sqlite3.Connection, shown: Path) -> None:
    found = [in_one_line(row[0]) for row in connection.execute("PRAGMA integrity_check(2)")]
    problems = [line for line in found if line != "ok"]
    problems += [broken_reference(row) for row in connection.execute("PRAGMA foreign_key_check")]
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise SchemaError(f"{shown}: not sound ({problems[0]}{more}); see `interlace db check --db {shown}`")
