"""A copy of another database, checked and brought to this version: its rows can then be read with today's tables.

The other file is only ever read. Where somebody has it open, SQLite itself copies one state of it; else the file is
copied as it is, which works on a disk where SQLite could not lock.
"""

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from db.engine import connect_readonly
from db.errors import DatabaseError, NetworkDiskError, SchemaError, StorageError, TransferError, storage_errors
from db.guard import watch
from db.location import check_disk, check_file
from db.transfer.row_check import refuse_bad_rows
from db.transfer.schema_check import examine
from workers.files.leftovers import working_folder

COPY = "other.db"


@contextlib.contextmanager
def workspace(database: Path, purpose: str) -> Iterator[Path]:
    """A folder for work beside the database: see `workers.files.leftovers.working_folder`.

    Raises:
        StorageError: it cannot be created.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(working_folder(database.parent, purpose))
        except OSError as error:
            raise StorageError(
                f"{database.parent}: cannot be written ({error.strerror}); free the disk or make the folder writable"
            ) from error
        yield folder


def staged(other: Path, folder: Path) -> Path:
    """A copy of a database in a folder of ours, sound and current.

    Raises:
        TransferError: nothing there, not a database of ours, or open on a network disk.
        SchemaError: written by a newer version, damaged, or changed by hand.
        StorageError: it cannot be read or copied.
    """
    if other.exists() and not other.is_file():
        raise TransferError(f"{other}: is not a regular file; name another interlace database")
    check_file(other)
    if not other.exists():
        raise TransferError(f"{other}: no such file; name another interlace database")
    copy = folder / COPY
    with storage_errors(str(other)):
        _copy(other, copy)
    return make_current(copy, shown=other)


def make_current(copy: Path, *, shown: Path) -> Path:
    """Check a copy, its schema before its rows, and migrate it. `shown` is the file that messages are about.

    Raises:
        TransferError: see `staged`; or a row that must not be taken.
        SchemaError: see `staged`.
    """
    try:
        examine(copy, shown=shown)
        refuse_bad_rows(copy, shown=shown)
    except TransferError:
        raise
    except DatabaseError as error:
        raise SchemaError(str(error).replace(str(copy), str(shown))) from error
    return copy


def _copy(other: Path, copy: Path) -> None:
    """Copy by SQLite if there is a log of changes not yet in the file, else byte by byte."""
    log = other.with_name(other.name + "-wal")
    if not _is_filled(log):
        shutil.copyfile(other, copy)
        if not _is_filled(log):
            return
    try:
        check_disk(other)
    except NetworkDiskError as error:
        raise TransferError(
            f"{other}: is open on a network disk; make a copy where it is in use: `interlace db backup FILE`"
        ) from error
    copy.unlink(missing_ok=True)
    copy_online(other, copy)


def copy_online(source: Path, target: Path) -> None:
    """One state of a database that others may be writing, as a file of its own without a log.

    All pages go in one step: the reader sees one snapshot, and no writer waits for it.

    Raises:
        sqlite3.Error: unreadable, or no room.
    """
    with closing(connect_readonly(source)) as reader, closing(sqlite3.connect(target, isolation_level=None)) as writer:
        reader.backup(writer)
        watch(writer)
        writer.execute("PRAGMA journal_mode=DELETE")


def _is_filled(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
