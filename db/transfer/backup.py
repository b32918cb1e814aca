"""A copy of the whole database while a run may be writing it.

The copy is made and checked beside the database, then moved to its place under its name: what bears the name is whole.
The place may be a network disk, for there it is a file like any other.
"""

import datetime as dt
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from db.engine import connect_readonly
from db.errors import SchemaError, StorageError, TransferError, storage_errors
from db.migrate import State, current, refuse_all_but_current, refuse_unknown
from db.transfer.staging import copy_online, workspace
from workers.files.atomic import copy_into
from workers.files.private import refuse_unsafe


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A finished backup."""

    path: Path
    size_bytes: int
    revision: str  # of its schema


def backup(url: str, target: Path | None, *, force: bool = False, now: dt.datetime | None = None) -> Backup:
    """Copy one state of the database to a file, and check the copy.

    Args:
        target: None: beside the database, with the time in its name.
        force: whether a file that is there may be replaced.

    Raises:
        TransferError: a file is there already, or the folder is not.
        LocationError: no database there yet.
        SchemaError: a database of another program; or the copy is damaged, as then the database is.
        StorageError: unreadable, or no room.
    """
    version = current(url)
    if version.state is State.FRESH:
        refuse_all_but_current(version)
    if version.state is State.FOREIGN:
        refuse_unknown(version)
    place = (target or default_name(version.path, now or dt.datetime.now().astimezone())).expanduser().absolute()
    refuse_in_the_way(place, force=force, not_over=version.path)
    with workspace(version.path, "backup") as folder:
        copy = folder / "backup.db"
        with storage_errors(str(version.path)):
            copy_online(version.path, copy)
            _refuse_damaged(copy, version.path)
        deliver(copy, place)
    return Backup(path=place, size_bytes=place.stat().st_size, revision=str(version.revision))


def default_name(database: Path, now: dt.datetime) -> Path:
    """Beside the database: its name and the local time."""
    return database.with_name(f"{database.stem}-{now:%Y%m%d-%H%M%S}.backup.db")


def refuse_in_the_way(place: Path, *, force: bool, not_over: Path) -> None:
    """Refuse a place where nothing can or may be written.

    Raises:
        TransferError: with the remedy.
    """
    if not place.parent.is_dir():
        raise TransferError(f"{place.parent}: no such folder; create it, or name another file")
    if place.is_dir() and not place.is_symlink():
        raise TransferError(f"{place}: is a folder; name a file in it")
    if place.exists() and place.samefile(not_over):
        raise TransferError(f"{place}: is the database itself; name another file")
    _refuse_unsafe(place)
    if place.exists() and not force:
        raise TransferError(f"{place}: exists; name another file, or replace it with --force")
    if place.with_name(place.name + "-wal").exists():
        # Left beside a new file, the old file's log would be read as the new one's.
        raise TransferError(f"{place}: is a database in use ({place.name}-wal is there); name another file")


def deliver(made: Path, place: Path) -> None:
    """Move a finished file to its place, whatever disk that is on: under its name it is whole or not there.

    Raises:
        StorageError: it cannot be written there.
    """
    try:
        copy_into(made, place)
    except OSError as error:
        raise StorageError(f"{place}: cannot be written ({error.strerror}); name another file") from error


def _refuse_unsafe(place: Path) -> None:
    try:
        refuse_unsafe(place)
    except OSError as error:
        raise TransferError(f"{place}: {error.strerror}; name another file") from error


def _refuse_damaged(copy: Path, database: Path) -> None:
    with closing(connect_readonly(copy)) as connection:
        try:
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)")]
        except sqlite3.DatabaseError as error:
            found = [str(error)]
    if found != ["ok"]:
        raise SchemaError(
            f"{database}: damaged, and so is its copy, which was removed ({found[0]});"
            " see `interlace db check`; restore an earlier backup"
        )
