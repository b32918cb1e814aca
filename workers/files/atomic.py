"""Files that take their name when they are finished: a reader finds the whole file, or the one that was there before.

The content is written under an unpredictable name in the same folder, created exclusively, so that no link prepared by
somebody else is followed; it is written through to the disk, renamed, and the folder is written through as well.
"""

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from workers.files.leftovers import NAME_BYTES, UNFINISHED, held_folder, hold, remove_abandoned
from workers.files.private import FILE_MODE, FOLDER_MODE, refuse_unsafe

_STEM_LENGTH = 50  # a name may have 255 bytes, and a letter may take four
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content becomes the file, with mode 0600, when the block ends without an error.

    Raises:
        UnsafeTargetError: a link, a folder, a device, a pipe or a socket bears the name.
        OSError: it cannot be written; what was there is still there, and nothing else is left.
    """
    refuse_unsafe(path)
    with _unfinished_file(path) as (unfinished, stream):
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
        refuse_unsafe(path)  # rename would take the place of a device
        unfinished.replace(path)
    sync_folder(path.parent)


@contextlib.contextmanager
def _unfinished_file(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file beside `path`, removed at the end unless the block has renamed it; others that were left go first."""
    remove_abandoned(path.parent)
    unfinished = path.with_name(_unfinished_name(path))
    try:
        descriptor = os.open(unfinished, _CREATE, FILE_MODE)
    except OSError as error:
        error.filename = str(path)  # the name that the user knows
        raise
    try:
        with os.fdopen(descriptor, "wb") as stream:
            hold(descriptor)
            os.fchmod(descriptor, FILE_MODE)  # a default ACL of the folder may have widened it
            yield unfinished, stream
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def write_file(path: Path, content: bytes) -> None:
    """Write a whole file: see `replacing`.

    Raises:
        OSError: see `replacing`.
    """
    with replacing(path) as stream:
        stream.write(content)


def create_file(path: Path, content: bytes) -> None:
    """Write a whole file if there is none yet; of two processes that try, one succeeds.

    Raises:
        FileExistsError: something bears the name.
        OSError: it cannot be written; nothing is left.
    """
    with _unfinished_file(path) as (unfinished, stream):
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
        try:
            path.hardlink_to(unfinished)
        except FileExistsError:
            raise
        except OSError:  # a disk without hard links: the name is taken first
            os.close(os.open(path, _CREATE, FILE_MODE))
            unfinished.replace(path)
    sync_folder(path.parent)


def copy_into(source: Path, path: Path) -> None:
    """Copy a file's content to another place, whatever disk that is on: see `replacing`.

    Raises:
        OSError: see `replacing`.
    """
    with source.open("rb") as opened, replacing(path) as stream:
        shutil.copyfileobj(opened, stream, 1 << 20)


@contextlib.contextmanager
def unfinished_folder(folder: Path) -> Iterator[Path]:
    """A new empty folder beside `folder`, for its owner alone, under an unpredictable name; removed at the end unless
    the block has moved it away.

    The caller sees to it that nobody else makes the same folder: what a killed process left of one is removed.

    Raises:
        OSError: it cannot be created.
    """
    name = re.compile(rf"\.{re.escape(folder.name[:_STEM_LENGTH])}(\.[0-9a-f]{{{2 * NAME_BYTES}}})?{UNFINISHED}")
    for left in [each for each in folder.parent.iterdir() if name.fullmatch(each.name)]:
        shutil.rmtree(left, ignore_errors=True)  # which follows no link
    made = folder.with_name(_unfinished_name(folder))
    made.mkdir(mode=FOLDER_MODE)
    try:
        with held_folder(made):
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Write a folder's entries through to the disk: a rename survives a power cut only then."""
    with contextlib.suppress(OSError):  # some file systems sync no folder
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unfinished_name(path: Path) -> str:
    return f".{path.name[:_STEM_LENGTH]}.{secrets.token_hex(NAME_BYTES)}{UNFINISHED}"
