"""Checks that a database is sound, and that the models and the revisions define the same schema.

Alembic's own comparison sees neither CHECKs nor views, so the DDL texts themselves are compared.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import StaticPool

from db.engine import connect_readonly, set_up_for_migration
from db.errors import DatabaseError, SchemaError, in_one_line, storage_errors
from db.guard import deadline, limit
from db.migrate import (
    SCRIPTS,
    VERSION_TABLE,
    State,
    Version,
    broken_reference,
    current,
    refuse_all_but_current,
    run_revisions,
)
from db.models import Base

_DDL_SQL = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"

Ddl = tuple[str, ...]  # a CREATE statement in parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of `check`."""

    version: Version
    problems: tuple[str, ...]  # one line each; empty: sound

    @property
    def ok(self) -> bool:
        return self.version.state is State.CURRENT and not self.problems

    def __str__(self) -> str:
        return "\n".join((f"{self.version}, {'sound' if self.ok else 'not sound'}", *self.problems))


def check(url: str) -> Check:
    """Look for damage and broken references, and compare the schema with what the revisions make. Changes nothing.

    Raises:
        DatabaseError: see `db.migrate.current`.
    """
    version = current(url)
    try:
        refuse_all_but_current(version)
    except DatabaseError as error:
        return Check(version=version, problems=(str(error), *_damage(version)))
    return Check(version=version, problems=(*_damage(version), *_changes(version)))


@cache
def _shipped_ddl() -> dict[str, Ddl]:
    """The schema that this version's revisions create; it stays the same while the process lives."""
    return migrated_ddl()


def _damage(version: Version) -> list[str]:
    """Within limits and a time: an index on an expression or a CHECK that somebody added runs when it is checked."""
    if version.state is State.FRESH:
        return []
    path = version.path
    with storage_errors(str(path)), closing(connect_readonly(path)) as connection:
        limit(connection)
        try:
            with deadline(connection, path, shown=path):
                rows = [in_one_line(row[0]) for row in connection.execute("PRAGMA integrity_check")]
                damage = [f"damaged: {row}" for row in rows if row != "ok"]
                return damage + [broken_reference(row) for row in connection.execute("PRAGMA foreign_key_check")]
        except (SchemaError, sqlite3.DataError) as error:
            return [f"not checked to the end: {in_one_line(error)}"]


def _changes(version: Version) -> list[str]:
    with storage_errors(str(version.path)), closing(connect_readonly(version.path)) as connection:
        found = _by_name(connection.execute(_DDL_SQL))
    return compare_ddl(found, _shipped_ddl(), expected="the migrations")


def model_drift() -> list[str]:
    """Differences between the tables of `db.models` and those that the revisions make; empty: none."""
    tables = {name: ddl for name, ddl in migrated_ddl().items() if not ddl[0].startswith("CREATE VIEW")}
    return compare_ddl(model_ddl(), tables, expected="the migrations")


def model_ddl() -> dict[str, Ddl]:
    """The DDL that the models alone create, by name."""
    with _scratch() as connection:
        Base.metadata.create_all(connection)
        return _read(connection)


def migrated_ddl(scripts: str = SCRIPTS, *, to: str = "head", whole: bool = False) -> dict[str, Ddl]:
    """The DDL that the revisions up to one create, by name; `whole` includes the version table."""
    with _scratch() as connection:
        run_revisions(connection, scripts, to=to)
        rows = connection.exec_driver_sql(_DDL_SQL).fetchall()
        return {row[0]: normalised_ddl(row[1]) for row in rows} if whole else _by_name(rows)


def normalised_ddl(sql: str) -> Ddl:
    """A CREATE statement in parts, without quotes and needless spaces.

    A table's constraints are sorted: their order means nothing, and recreating a table changes it.
    """
    text = re.sub(r"\s+", " ", sql.replace('"', "")).strip()
    match = re.fullmatch(r"(CREATE TABLE \S+) \((.*)\)", text)
    if match is None:
        return (text,)
    parts = [part.strip() for part in re.split(r",(?![^()]*\))", match[2])]
    columns = [part for part in parts if not part.startswith("CONSTRAINT")]
    return (match[1], *columns, *sorted(part for part in parts if part.startswith("CONSTRAINT")))


def compare_ddl(found: dict[str, Ddl], wanted: dict[str, Ddl], *, expected: str) -> list[str]:
    """One line for each table, index or view that differs; `expected` names where `wanted` comes from."""
    missing = [f"missing: {name}, which {expected} make" for name in sorted(wanted.keys() - found.keys())]
    extra = [f"unknown: {name}, which {expected} do not make" for name in sorted(found.keys() - wanted.keys())]
    changed = [
        f"differs: {name}: {_difference(found[name], wanted[name], expected)}"
        for name in sorted(found.keys() & wanted.keys())
        if found[name] != wanted[name]
    ]
    return missing + extra + changed


def _difference(found: Ddl, wanted: Ddl, expected: str) -> str:
    ours = "; ".join(part for part in found if part not in wanted) or "nothing more"
    theirs = "; ".join(part for part in wanted if part not in found) or "nothing more"
    return f"has {ours}; {expected} make {theirs}"


@contextmanager
def _scratch() -> Iterator[Connection]:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    set_up_for_migration(engine)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def _read(connection: Connection) -> dict[str, Ddl]:
    return _by_name(connection.exec_driver_sql(_DDL_SQL))


def _by_name(rows: Iterable[Sequence[Any]]) -> dict[str, Ddl]:
    return {row[0]: normalised_ddl(row[1]) for row in rows if row[0] != VERSION_TABLE}
