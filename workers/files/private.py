"""Files and folders that only their owner can read, whatever the umask is.

The database, logs, summaries, exports and backups hold prompts and answers. A fixed name in a folder that others can
write to may be a link, a device or a pipe that somebody put there: none of them is opened.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o600, 0o700
# The name is wrong, and not the disk or its permissions. EINVAL: something other than a regular file is there.
MISNAMED = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL))
_OF_OTHERS = 0o077
# O_NONBLOCK: opening a pipe that nobody reads would wait for ever. It changes nothing for a regular file.
_SAFE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UnsafeTargetError(OSError):
    """A place where something other than a regular file is. `strerror` says what, and what to do."""


def make_private_folder(folder: Path) -> Path:
    """Create a folder and those above it, each for its owner alone. A folder that exists is left as it is.

    Raises:
        OSError: it cannot be created.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=FOLDER_MODE, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(folder))
    return folder


def open_private(path: Path, flags: int) -> int:
    """`os.open` for a regular file under a fixed name, created with mode 0600; an existing one is tightened.

    Raises:
        UnsafeTargetError: a link, a folder, a device, a pipe or a socket is there.
        OSError: it cannot be opened.
    """
    refuse_unsafe(path)
    descriptor = os.open(path, flags | _SAFE_FLAGS, FILE_MODE)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _unsafe(path, os.fstat(descriptor).st_mode)
        _tighten_opened(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_private(path: Path) -> bytes:
    """The content of a regular file under a fixed name.

    Raises:
        OSError: see `open_private`.
    """
    with os.fdopen(open_private(path, os.O_RDONLY), "rb") as opened:
        return opened.read()


def create_private(path: Path) -> None:
    """Create an empty file with mode 0600 where nothing is; where something is, nothing happens.

    Raises:
        OSError: it cannot be created.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS, FILE_MODE))


def tighten(path: Path) -> None:
    """Take the rights of others from a regular file or a folder that is ours. Anything else is left as it is."""
    try:
        found = path.lstat()
    except OSError:
        return
    kind = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    if kind and found.st_uid == os.geteuid() and found.st_mode & _OF_OTHERS:
        with contextlib.suppress(OSError):  # a file system without modes
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OF_OTHERS)


def refuse_unsafe(path: Path) -> None:
    """Refuse a path at which something other than a regular file is. Where nothing is, it passes.

    Raises:
        UnsafeTargetError: with what is there and what to do.
        OSError: it cannot be looked at.
    """
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(mode):
        raise _unsafe(path, mode)


def _tighten_opened(descriptor: int) -> None:
    found = os.fstat(descriptor)
    if found.st_uid == os.geteuid() and found.st_mode & _OF_OTHERS:
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & ~_OF_OTHERS)


_KINDS = (
    (stat.S_ISLNK, "a symbolic link is there"),
    (stat.S_ISDIR, "a folder is there"),
    (stat.S_ISCHR, "a device is there"),
    (stat.S_ISBLK, "a device is there"),
    (stat.S_ISFIFO, "a pipe is there"),
    (stat.S_ISSOCK, "a socket is there"),
)


def _unsafe(path: Path, mode: int) -> UnsafeTargetError:
    what = next((words for test, words in _KINDS if test(mode)), "not a regular file")
    return UnsafeTargetError(errno.EINVAL, what, str(path))
