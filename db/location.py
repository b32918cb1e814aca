"""The place of the database, and checks that a database can stand there.

SQLite's write-ahead log needs shared memory and working locks: on a network file system it corrupts, so such a place
is refused before the file is touched.
"""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import unquote

import platformdirs
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from db.errors import LocationError, NetworkDiskError
from workers.files.private import create_private, make_private_folder, tighten

ENVIRONMENT_VARIABLE = "INTERLACE_DB"
_PREFIX = "sqlite:///"
_SQLITE = re.compile(r"sqlite(\+\w+)?:///")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://|sqlite:")
_HEADER = b"SQLite format 3\x00"
_PRIMARY_CODE = 0xFF  # of an extended result code
_NETWORK_TYPES = frozenset(
    "nfs nfs4 cifs smb2 smb3 smbfs afpfs afs ceph lustre ncpfs webdav fuse.sshfs fuse.glusterfs fuse.rclone"
    " fuse.s3fs fuse.davfs fuse.ceph macfuse osxfuse".split()
)


def database_url(explicit: str | None) -> str:
    """The database's URL: the explicit one, else INTERLACE_DB, else a file in the user's data folder.

    A plain path is accepted for a URL; the result is always `sqlite:///` and an absolute path, `%` and `?` escaped.

    Raises:
        LocationError: no SQLite file is named.
    """
    text = explicit or os.environ.get(ENVIRONMENT_VARIABLE)
    path = database_path(text) if text else _default_folder() / "interlace.db"
    return _PREFIX + _escaped(str(path), "%?")


def database_path(url: str) -> Path:
    """The absolute path of the file that a URL or a plain path names.

    A plain path is taken letter by letter, but for `~` at its beginning. In a URL, what follows `sqlite:///` is a path
    with percent escapes, and `?` begins parameters, which are refused.

    Raises:
        LocationError: another kind of database, none in a file, or parameters that would change how it is opened.
    """
    if not _SCHEME.match(url):
        return _absolute(url)
    try:
        parsed = make_url(_escaped(url))
    except ArgumentError as error:
        raise LocationError(f"database URL {url!r}: not a URL; write {_PREFIX}PATH or a path") from error
    shown = parsed.render_as_string(hide_password=True)
    if parsed.get_backend_name() != "sqlite":
        raise LocationError(f"database URL {shown}: only SQLite files are supported; write {_PREFIX}PATH or a path")
    if "?" in url or (parsed.database or "").startswith("file:"):
        remedy = f"write {_PREFIX}PATH or a path; a question mark in a URL's file name is %3F"
        raise LocationError(f"database URL {shown}: takes no parameters; {remedy}")
    if parsed.host or parsed.database in (None, "", ":memory:"):
        raise LocationError(f"database URL {shown}: names no file; write {_PREFIX}PATH (three slashes) or a path")
    return _absolute(unquote(_SQLITE.sub("", url), errors="surrogateescape"))


def _escaped(text: str, letters: str = "") -> str:
    """Escape these letters, and bytes of a file's name that are not UTF-8, as in URLs."""
    pattern = rf"[{letters}\udc80-\udcff]"
    return re.sub(pattern, lambda found: f"%{found[0].encode('utf-8', 'surrogateescape').hex().upper()}", text)


def _absolute(text: str) -> Path:
    if "\0" in text:
        raise LocationError(f"database {text!r}: a file's name holds no NUL; name another file")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:  # ~NAME of nobody is a name like any other
        return Path(text).absolute()


def check_file(path: Path) -> None:
    """Check that an existing path is a SQLite file; a path where nothing is passes.

    SQLite itself looks at it. A file that this process opens and closes by other means loses every lock that the
    process holds on it (POSIX advisory locks): the next reader that leaves then believes to be the last one and removes
    the log, and what is committed afterwards goes into a file that has no name any more.

    Raises:
        LocationError: a folder, a file of another kind, or one that cannot be read.
    """
    if path.is_dir():
        raise LocationError(f"{path}: is a folder; name a file, as {path / 'interlace.db'}")
    if not path.exists():
        return
    if not path.is_file():
        raise LocationError(f"{path}: is not a regular file; name another with INTERLACE_DB")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE == sqlite3.SQLITE_CANTOPEN:
            raise LocationError(f"{path}: cannot be read ({error}); name another with INTERLACE_DB") from error
        return  # locked, or a disk error: opening it later waits, or reports it
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB and not _begins_like_one(path):
            raise LocationError(f"{path}: is not a SQLite database; name another with INTERLACE_DB") from error


def _begins_like_one(path: Path) -> bool:
    """True if a file that SQLite refuses is a damaged database. No process can hold a lock on a file that nobody can
    open."""
    with path.open("rb") as file:
        return file.read(len(_HEADER)) == _HEADER


def no_database(path: Path) -> LocationError:
    """The refusal of a command that needs a database where there is none."""
    if not path.exists():
        return LocationError(f"{path}: no database there yet; `interlace run` creates it")
    remedy = "`interlace run` creates a database in it, or name another file with INTERLACE_DB"
    return LocationError(f"{path}: {'an empty file' if path.stat().st_size == 0 else 'holds no tables'}; {remedy}")


def make_folder(path: Path) -> None:
    """Create the folder that is to hold the file.

    Raises:
        LocationError: it cannot be created.
    """
    try:
        make_private_folder(path.parent)
    except OSError as error:
        reason = error.strerror
        raise LocationError(f"{path.parent}: no folder there ({reason}); name another with INTERLACE_DB") from error


def keep_private(path: Path) -> None:
    """The database and its log for their owner alone: they hold prompts and answers. SQLite gives the log the
    database's own rights."""
    real = Path(os.path.realpath(path))  # SQLite follows a link too, and keeps the log beside the file itself
    with suppress(OSError):  # SQLite reports what is wrong with the place
        create_private(real)
    for each in (real, *(real.with_name(real.name + suffix) for suffix in ("-wal", "-shm"))):
        tighten(each)
    if path.parent == _default_folder():
        tighten(path.parent)


def _default_folder() -> Path:
    return platformdirs.user_data_path("interlace", appauthor=False)


def check_disk(path: Path) -> None:
    """Check that the file lies on a local disk. Where the mounts cannot be read it passes.

    Raises:
        NetworkDiskError: it lies on a network file system.
    """
    kind = file_system_type(path, _mounts())
    if kind in _NETWORK_TYPES:
        raise NetworkDiskError(
            f"{path}: lies on a network file system ({kind}), where SQLite's write-ahead log corrupts; "
            "name a file on a local disk with INTERLACE_DB"
        )


def file_system_type(path: Path, mounts: Iterable[tuple[str, str]]) -> str | None:
    """The type of the innermost mount over a path, among (mount point, type); the last mount of equals wins."""
    real = Path(os.path.realpath(path))  # a loop of links ends there, where `resolve` raises
    found: tuple[int, str] | None = None
    for point, kind in mounts:
        depth = len(Path(point).parts)
        if real.is_relative_to(point) and (found is None or depth >= found[0]):
            found = depth, kind
    return None if found is None else found[1]


def parse_linux_mounts(text: str) -> list[tuple[str, str]]:
    """(mount point, type) of each line of /proc/mounts; spaces in a mount point are octal escapes there."""
    rows = (line.split() for line in text.splitlines())
    return [(re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), row[1]), row[2]) for row in rows if len(row) >= 3]


def parse_macos_mounts(text: str) -> list[tuple[str, str]]:
    """(mount point, type) of each line of macOS's `mount`: `//host/share on /Volumes/share (smbfs, nodev)`."""
    matches = (re.match(r".+? on (/.*) \(([^,)]+)[^()]*\)$", line) for line in text.splitlines())
    return [(match[1], match[2]) for match in matches if match]


def _mounts() -> list[tuple[str, str]]:
    if sys.platform == "darwin":
        try:
            done = subprocess.run(
                ["/sbin/mount"], capture_output=True, encoding="utf-8", errors="replace", timeout=5, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return []
        return parse_macos_mounts(done.stdout)
    try:
        return parse_linux_mounts(Path("/proc/mounts").read_text(errors="surrogateescape"))
    except OSError:
        return []
