"""The schema's versions: reading a database's version, and upgrading it to the newest.

An upgrade is one transaction with foreign keys off: it happens whole or not at all, and recreating a parent table
(SQLite cannot alter a constraint) does not delete its children. References are checked before the commit.

Views hold no data, so no revision mentions them: an upgrade drops them first and creates those of `migrations/views`
last.

Alembic runs the revisions, and is imported only for that: which revisions there are is read from their files, because
every command asks for a database's version first, and importing Alembic takes as long as importing SQLAlchemy.
"""

import re
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from pathlib import Path

from sqlalchemy import Connection

from db.engine import BEGIN_OPTION, connect_readonly, open_migration_engine
from db.errors import SchemaError, storage_errors
from db.location import check_disk, check_file, database_path, no_database

VERSION_TABLE = "interlace_version"
SCRIPTS = str(files("migrations"))
_ASSIGNMENT = re.compile(r"""^(revision|down_revision)(?:: [^=]+)? = (?:["']([^"']+)["']|None)""", re.MULTILINE)


class State(Enum):
    """The state of a database's schema relative to this version of the code."""

    FRESH = "fresh"  # no file, or nothing in it
    CURRENT = "current"
    OLDER = "older"
    NEWER = "newer"  # a revision that this version does not know
    FOREIGN = "foreign"  # tables, but none of our versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The schema's version of one database."""

    path: Path
    state: State
    revision: str | None  # the database's; None: fresh or foreign
    head: str  # the newest revision that this code knows

    def __str__(self) -> str:
        return f"{self.path}: schema {self.revision or 'none'}, {self.state.value}"


def current(url: str, *, scripts: str = SCRIPTS) -> Version:
    """The version of a database, read without changing it. `scripts` is the folder of the revisions.

    Raises:
        LocationError: the place cannot hold a database, or the file is not one.
        NetworkDiskError: it lies on a network file system.
        StorageError: it cannot be read.
    """
    path = database_path(url)
    check_file(path)
    check_disk(path)
    parents, head = _parents(scripts), newest_revision(scripts)
    names, revision = _stored_version(path)
    if revision is None:
        state = State.FRESH if names <= {VERSION_TABLE} else State.FOREIGN
    elif revision == head:
        state = State.CURRENT
    else:
        state = State.OLDER if revision in parents else State.NEWER
    return Version(path=path, state=state, revision=revision, head=head)


def upgrade(url: str, *, scripts: str = SCRIPTS) -> Version:
    """Bring a fresh or older database to the newest version, in one transaction: all of it or nothing.

    Raises:
        SchemaError: newer or foreign; or rows whose references are broken afterwards.
        DatabaseError: see `current`.
    """
    found = current(url, scripts=scripts)
    refuse_unknown(found)
    if found.state is State.CURRENT:
        return found
    engine = open_migration_engine(url)
    try:
        with storage_errors(str(found.path)), engine.connect() as plain:
            connection = plain.execution_options(**{BEGIN_OPTION: "IMMEDIATE"})
            with connection.begin():
                run_revisions(connection, scripts)
                _refuse_broken_references(connection, found.path)
    finally:
        engine.dispose()
    return current(url, scripts=scripts)


def refuse_unknown(version: Version) -> None:
    """Refuse a database that this version of the code must not touch.

    Raises:
        SchemaError: newer or foreign.
    """
    if version.state is State.NEWER:
        raise SchemaError(
            f"{version.path}: written by a newer interlace (schema {version.revision}, this one knows {version.head}); "
            "upgrade interlace, or name another file with INTERLACE_DB"
        )
    if version.state is State.FOREIGN:
        raise SchemaError(
            f"{version.path}: a database of another program (it has tables, but no {VERSION_TABLE}); "
            "name another file with INTERLACE_DB"
        )


def refuse_all_but_current(version: Version) -> None:
    """Refuse a database that the code cannot work with as it is.

    Raises:
        LocationError: nothing there yet.
        SchemaError: newer, foreign or older; the last with the command that helps.
    """
    refuse_unknown(version)
    if version.state is State.FRESH:
        raise no_database(version.path)
    if version.state is State.OLDER:
        raise SchemaError(
            f"{version.path}: schema {version.revision}, this interlace needs {version.head}; "
            "run `interlace db upgrade` (it keeps all results)"
        )


def run_revisions(connection: Connection, scripts: str = SCRIPTS, *, to: str = "head") -> None:
    """Run the revisions that a database lacks, on a connection that is inside a transaction.

    A database that is brought to an earlier revision than the newest has no views.
    """
    from alembic import command
    from alembic.config import Config

    views = view_files(scripts)
    for name in views:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
    config = Config()
    config.set_main_option("script_location", scripts.replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["version_table"] = VERSION_TABLE
    command.upgrade(config, to)
    if to in ("head", newest_revision(scripts)):
        for file in views.values():
            connection.exec_driver_sql(file.read_text(encoding="utf-8"))


def view_files(scripts: str = SCRIPTS) -> dict[str, Path]:
    """Each view's name with the file that creates it."""
    return {file.stem: file for file in sorted(Path(scripts, "views").glob("*.sql"))}


def newest_revision(scripts: str = SCRIPTS) -> str:
    """The revision that no other one follows."""
    parents = _parents(scripts)
    (head,) = parents.keys() - parents.values()
    return head


def broken_reference(row: tuple[str, int, str, int]) -> str:
    """A row of `PRAGMA foreign_key_check` in words."""
    table, row_id, parent, _ = row
    return f"broken reference: {table} row {row_id} points to a missing row of {parent}"


def _refuse_broken_references(connection: Connection, path: Path) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
    if broken:
        first = broken_reference(tuple(broken[0]))
        raise SchemaError(f"{path}: {len(broken)} broken references after the upgrade, which is undone ({first})")


def _stored_version(path: Path) -> tuple[set[str], str | None]:
    """The names of a database's tables and views, and its revision: None where a view replaces the version table."""
    if not path.exists() or path.stat().st_size == 0:
        return set(), None
    with storage_errors(str(path)), closing(connect_readonly(path)) as connection:
        kinds = dict(connection.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"))
        names = set(kinds)
        if kinds.get(VERSION_TABLE) != "table":  # a view of that name would run what it says
            return names, None
        row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    return names, None if row is None else str(row[0])


def _parents(scripts: str) -> dict[str, str | None]:
    """Each revision's parent, read from the files' assignments; None: the first one has no parent."""
    files = sorted(Path(scripts, "versions").glob("*.py"))
    found = [dict(_ASSIGNMENT.findall(file.read_text(encoding="utf-8"))) for file in files]
    return {each["revision"]: each["down_revision"] or None for each in found if "revision" in each}
