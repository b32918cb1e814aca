"""Environments in the cache: each in a folder under its lock's hash, whole or not there at all.

An environment is built in a folder of an unpredictable name and moved into place when its packages were counted. A lock
file keeps two processes from building the same one; the second finds it made. Nothing outside the cache is changed.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from orchestrator.environments.requirements import check_python
from orchestrator.environments.resolve import Request, content_sha256
from orchestrator.environments.tools import Tool, python_version
from orchestrator.errors import InputError, RefusedError
from orchestrator.plan import Lock, LockedPackage, canonical_json
from orchestrator.typed import build as build_value
from workers.files.atomic import unfinished_folder, write_file
from workers.files.private import make_private_folder
from workers.weights.folders import cache_dir, exclusive

KEY_CHARACTERS = 16
MANIFEST = "interlace.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An environment in the cache."""

    key: str
    folder: Path
    lock: Lock

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The disk space of an environment."""

    total_bytes: int
    own_bytes: int  # of files that nothing else shares by a hard link: what removing it frees at least


def folder() -> Path:
    """The folder of all environments."""
    return cache_dir() / "environments"


def key_of(lock: Lock) -> str:
    """The name of an environment's folder."""
    return lock.sha256[:KEY_CHARACTERS]


def find(lock: Lock) -> Built | None:
    """The environment of a lock; None: it is not built, or its interpreter is gone."""
    found = _read(folder() / key_of(lock))
    return found if found is not None and found.lock.sha256 == lock.sha256 and found.python.exists() else None


def build(lock: Lock, tool: Tool) -> Built:
    """Build the environment of a lock, unless it is there: another process may have built it meanwhile.

    Raises:
        InputError: there is no such Python.
        RefusedError: a package is gone or differs from the lock, the index does not answer, or the disk is full.
    """
    place = folder() / key_of(lock)
    try:
        make_private_folder(folder())
        with exclusive(place):
            return find(lock) or _build(lock, place, tool)
    except OSError as error:
        raise RefusedError(f"environment {lock.environment}: {place}: {error.strerror or error}") from error


def _build(lock: Lock, place: Path, tool: Tool) -> Built:
    check_python(lock.interpreter)
    for package in lock.packages:
        _refuse_changed(lock, package)
    python = tool.find_python(lock.interpreter)
    if (found := python_version(python)) != lock.python:
        raise RefusedError(
            f"environment {lock.environment} was locked for Python {lock.python}, and {python} is {found}: "
            "install that version, or plan the run anew"
        )
    with unfinished_folder(place) as made:
        try:
            tool.create(made, python)
            tool.install(made, lock.packages)
        except (InputError, RefusedError) as error:
            raise type(error)(f"environment {lock.environment}: {error}") from error
        _require_locked(lock, made)
        _rename_within(made, place)
        write_file(made / MANIFEST, canonical_json(asdict(lock)).encode())
        shutil.rmtree(place, ignore_errors=True)  # one whose interpreter is gone
        made.rename(place)
    return Built(key=key_of(lock), folder=place, lock=lock)


def _refuse_changed(lock: Lock, package: LockedPackage) -> None:
    """A source that lies on this machine must be what was locked."""
    if package.source is None or not package.source.startswith("/"):
        return
    if not Path(package.source).exists() or content_sha256(Path(package.source)) != package.sha256:
        raise RefusedError(
            f"environment {lock.environment}: {package.source} is gone or has changed since {package.name} was locked;"
            " restore it, or plan the run anew"
        )


def _require_locked(lock: Lock, made: Path) -> None:
    """Count what was installed: exactly the lock's packages at the lock's versions."""
    sites = [str(site) for site in made.glob("lib*/python3*/site-packages")]
    found = {str(canonicalize_name(each.name)): each.version for each in distributions(path=sites)}
    for package in lock.packages:
        version = found.pop(package.name, None)
        if version is None or (package.version is not None and version != package.version):
            raise RefusedError(
                f"environment {lock.environment}: {package.name} {package.version or ''} was locked and"
                f" {version or 'nothing'} was installed"
            )
    if found:
        raise RefusedError(f"environment {lock.environment}: {', '.join(sorted(found))} came along unlocked")


def _rename_within(made: Path, place: Path) -> None:
    """Programs and settings of an environment name its folder: write the name that it will have."""
    for file in [*(made / "bin").iterdir(), made / "pyvenv.cfg"]:
        if file.is_symlink() or not file.is_file():
            continue
        content = file.read_bytes()
        if (renamed := content.replace(os.fsencode(made), os.fsencode(place))) != content:
            mode = file.stat().st_mode
            file.unlink()  # a hard link to the cache's file must not be written through
            file.write_bytes(renamed)
            file.chmod(mode)


# ---- what is there ----


def built() -> list[Built]:
    """All environments in the cache, by name."""
    places = folder().iterdir() if folder().is_dir() else iter(())
    found = [each for place in places if (each := _read(place)) is not None]
    return sorted(found, key=lambda each: (each.lock.environment, each.key))


def named(text: str) -> list[Built]:
    """The environments whose name this is, or whose key begins with it."""
    return [each for each in built() if each.lock.environment == text or (text and each.key.startswith(text))]


def remove(environment: Built) -> None:
    """Delete an environment; a run that needs it builds it again from its lock.

    Raises:
        RefusedError: it cannot be deleted.
    """
    try:
        with exclusive(environment.folder), unfinished_folder(environment.folder) as gone:
            environment.folder.rename(gone / "removed")  # in one step: nobody finds half of it
    except OSError as error:
        raise RefusedError(f"{environment.folder}: {error.strerror or error}") from error


def size_of(environment: Built) -> Size:
    """Count its bytes. A file system that clones files shares more than this can see."""
    total = own = 0
    for file in environment.folder.rglob("*"):
        if file.is_symlink() or not file.is_file():
            continue
        found = file.stat()
        total += found.st_size
        own += found.st_size if found.st_nlink == 1 else 0
    return Size(total_bytes=total, own_bytes=own)


def _read(place: Path) -> Built | None:
    if place.name.startswith("."):
        return None
    lock = _read_lock(place / MANIFEST)
    return None if lock is None else Built(key=place.name, folder=place, lock=lock)


def _read_lock(file: Path) -> Lock | None:
    try:
        return build_value(Lock, json.loads(file.read_bytes()), where=str(file))
    except (OSError, ValueError):
        return None


# ---- locks of requests that were resolved before ----


def known_lock(request: Request) -> Lock | None:
    """The lock that this very request had when it was last resolved; None: never."""
    return _read_lock(_lock_file(request))


def keep_lock(request: Request, lock: Lock) -> None:
    """Remember a request's lock: `plan` shows it, and an exact request needs no network again."""
    file = _lock_file(request)
    with _told(file):
        make_private_folder(file.parent)
        write_file(file, canonical_json(asdict(lock)).encode())


def _lock_file(request: Request) -> Path:
    return folder() / "locks" / f"{request.sha256[:KEY_CHARACTERS]}.json"


@contextlib.contextmanager
def _told(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RefusedError(f"{file}: {error.strerror or error}") from error
