"""Unfinished files and folders, and what killed processes left of them.

Whoever writes one holds a lock on it, which the system releases when the process ends: what nobody locks is left over.
It has lain for a minute at least, for a new one is not locked at once.
"""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNFINISHED, NAME_BYTES = ".unfinished", 8
_PREFIX, _PURPOSES = ".interlace-", "backup|export|import|merge|server"
_NAMES = re.compile(rf"\..*\.[0-9a-f]{{{2 * NAME_BYTES}}}{re.escape(UNFINISHED)}|{re.escape(_PREFIX)}({_PURPOSES})-.*")
_SETTLED_S = 60.0
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """A file or a folder that a killed process did not finish."""

    path: Path
    size_bytes: int


@contextlib.contextmanager
def working_folder(place: Path, purpose: str) -> Iterator[Path]:
    """A new folder in `place` for its owner alone, removed at the end; earlier ones that were left there go first.

    Args:
        purpose: backup, export, import, merge or server.

    Raises:
        OSError: it cannot be created.
    """
    remove_abandoned(place)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-", dir=place))
    try:
        with held_folder(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def hold(descriptor: int) -> None:
    """Lock what is open until it is closed, or until this process ends. Some network disks lock nothing."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Lock a folder for the block: see `hold`."""
    descriptor = os.open(folder, _OPEN)
    try:
        hold(descriptor)
        yield
    finally:
        os.close(descriptor)


def find_abandoned(place: Path) -> list[Abandoned]:
    """List by name what killed processes left in a folder. A folder that cannot be read holds none."""
    with contextlib.suppress(OSError):
        found = sorted(each for each in place.iterdir() if _NAMES.fullmatch(each.name) and _is_abandoned(each))
        return [Abandoned(path=each, size_bytes=_size_bytes(each)) for each in found]
    return []


def remove_abandoned(place: Path) -> None:
    """Remove what killed processes left in a folder."""
    for each in find_abandoned(place):
        if each.path.is_dir():
            shutil.rmtree(each.path, ignore_errors=True)  # which follows no link
        else:
            with contextlib.suppress(OSError):
                each.path.unlink()


def _is_abandoned(path: Path) -> bool:
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:  # a link, or it is gone
        return False
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or abs(time.time() - found.st_mtime) < _SETTLED_S:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody writes it, or nothing can be locked there
        return False
    finally:
        os.close(descriptor)
    return True


def _size_bytes(path: Path) -> int:
    files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
    return sum(each.lstat().st_size for each in files)
