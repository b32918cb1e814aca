"""Folders of checkpoints: where they are, and those that this program makes.

A folder that is made is complete or not there at all, and its manifest states what it was made of.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workers.errors import EngineError, FaultKind
from workers.files.atomic import sync_folder, unfinished_folder
from workers.files.private import make_private_folder, open_private

MANIFEST = "interlace.json"  # in every made folder: its source, and its files' digests


def checkpoints_dir() -> Path:
    """The folder for imported checkpoints: INTERLACE_CHECKPOINTS, otherwise in the user's data folder."""
    if chosen := os.environ.get("INTERLACE_CHECKPOINTS"):
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("interlace", appauthor=False)) / "checkpoints"


def cache_dir() -> Path:
    """The folder for files that can be made again: INTERLACE_CACHE, otherwise the user's cache folder."""
    if chosen := os.environ.get("INTERLACE_CACHE"):
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("interlace", appauthor=False))


@contextlib.contextmanager
def exclusive(target: Path) -> Iterator[None]:
    """Hold the lock on making `target`; another process waits, and may then find it made."""
    make_private_folder(target.parent)
    lock = open_private(target.parent / f".{target.name}.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when closed, also by the process's death
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def made_folder(folder: Path, made_of: Mapping[str, Any]) -> Iterator[Path]:
    """An empty folder to write into. It takes its place when the block ends without an error, replacing an earlier one.

    The caller holds `exclusive(folder)`: what an interrupted making left is removed.

    Args:
        made_of: identifies this content, kept in the manifest.

    Raises:
        EngineError: the folder exists and was not made by interlace.
    """
    _require_ours(folder)
    make_private_folder(folder.parent)
    with unfinished_folder(folder) as unfinished:
        yield unfinished
        _write_manifest(unfinished, made_of)
        if folder.exists():
            shutil.rmtree(folder)
        unfinished.rename(folder)
        sync_folder(folder.parent)


def is_intact(folder: Path, made_of: Mapping[str, Any]) -> bool:
    """Return whether a folder was made from this source and every file is unchanged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        same = manifest.items() >= made_of.items()
        return same and all(sha256_of_file(folder / name) == digest for name, digest in manifest["files"].items())
    except (OSError, ValueError, KeyError, AttributeError, RecursionError):
        return False  # not there, cut short, or not made here: it is made again


def sha256_of_file(file: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _require_ours(folder: Path) -> None:
    """Refuse to replace what a user put there."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise EngineError(
            FaultKind.unsupported_setting,
            f"{folder} is not a folder",
            remedy="move it away, or set INTERLACE_CHECKPOINTS to another folder",
        )
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise EngineError(
            FaultKind.unsupported_setting,
            f"{folder} exists and was not made by an import",
            remedy="move it away, or set INTERLACE_CHECKPOINTS to another folder",
        )


def _write_manifest(folder: Path, made_of: Mapping[str, Any]) -> None:
    versions = {name: version(name) for name in ("interlace", "mlx", "mlx-lm")}
    files = {file.name: sha256_of_file(file) for file in sorted(folder.iterdir())}
    manifest = {**made_of, "files": files, "made_by": versions}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
