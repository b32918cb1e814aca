"""Repositories of the hub: what they hold, and what of it is in the hub's cache on this machine."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from workers.weights.hub_errors import HubError, cache_folder, lasting, patiently, plain_errors, within

# The files that mlx-lm's own loader takes (`mlx_lm.utils.DEFAULT_ALLOW_PATTERNS`; a test compares them).
PATTERNS = (
    "*.json",
    "model*.safetensors",
    "*.py",
    "tokenizer.model",
    "*.tiktoken",
    "tiktoken.model",
    "*.txt",
    "*.jsonl",
    "*.jinja",
)
WAITS_S = (1.0, 2.0, 4.0, 8.0, 15.0)  # before each further attempt that follows one without progress
TIMEOUT_S = 10.0  # for an answer about a file or a repository
LIMIT_S = 60.0  # for an answer about a repository, further attempts included
RESERVE_BYTES = 500_000_000  # left free on the cache's volume
MOST_FILES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file of a repository."""

    name: str  # relative to the repository, with slashes
    size_bytes: int
    sha256: str | None  # None: a small file, which the hub keeps in git


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The files of a repository that a checkpoint needs, at one commit."""

    hub_id: str
    revision: str | None  # as asked for; None: the default branch
    commit: str
    files: tuple[RemoteFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def missing(self) -> list[RemoteFile]:
        """The files that are not in the cache yet."""
        return [file for file in self.files if not is_cached(self, file)]

    @property
    def missing_bytes(self) -> int:
        """The bytes that are still to come; those of unfinished downloads are here already."""
        return sum(file.size_bytes - partial_bytes(self, file) for file in self.missing())


# ---- what is here, without network ----


def complete_folder(hub_id: str, revision: str | None) -> Path | None:
    """The snapshot of a revision in the hub's cache if all of its files are there, as far as that is known.

    A snapshot that another program brought may have no list of its files: it counts as complete, and reading its
    headers decides.
    """
    from huggingface_hub import get_cached_repo_tree, try_to_load_from_cache
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    config = try_to_load_from_cache(hub_id, "config.json", revision=revision)
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    try:
        listed = [file.path for file in get_cached_repo_tree(hub_id, revision=folder.name)]
    except (CachedRepoTreeNotFoundError, OSError, ValueError):
        return folder
    return folder if all((folder / name).exists() for name in listed if _is_wanted(name)) else None


def commit_here(checkpoint: Mapping[str, Any]) -> str | None:
    """The commit of a hub checkpoint that is completely in the cache; None if it is not."""
    folder = complete_folder(checkpoint["hub_id"], checkpoint.get("revision"))
    return None if folder is None else folder.name


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModel:
    """A model in the hub's cache, at one commit."""

    hub_id: str
    commit: str
    size_bytes: int  # on the disk
    why_not: str  # why it is not a complete checkpoint; empty: it is

    @property
    def complete(self) -> bool:
        return not self.why_not


def cached_models() -> list[CachedModel]:
    """The models in the hub's cache on this machine, whichever program brought them, by their ids."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = scan_cache_dir(cache_folder()).repos
    except (CacheNotFound, OSError, ValueError):
        return []
    found = [
        CachedModel(
            hub_id=repo.repo_id,
            commit=revision.commit_hash,
            size_bytes=revision.size_on_disk,
            why_not=_why_not(repo.repo_id, revision),
        )
        for repo in repos
        if repo.repo_type == "model"
        for revision in repo.revisions
    ]
    return sorted(found, key=lambda model: (model.hub_id.lower(), model.commit))


def _why_not(hub_id: str, revision: Any) -> str:
    names = {file.file_name for file in revision.files}
    if "config.json" not in names or not any(name.endswith(".safetensors") for name in names):
        return "not for mlx-lm"
    return "" if complete_folder(hub_id, revision.commit_hash) else "incomplete: fetch it again"


# ---- what the hub holds ----


def survey(
    hub_id: str, revision: str | None = None, *, waits_s: Sequence[float] = WAITS_S, limit_s: float = LIMIT_S
) -> Snapshot:
    """Ask the hub for a repository's newest commit under this revision, and for its files with their sizes.

    Args:
        waits_s: before each further attempt, where the hub is busy or the connection breaks.
        limit_s: for each of the two questions, all attempts included.

    Raises:
        HubError: missing, private, gated, no such revision, not a checkpoint; or the hub cannot be asked now.
    """
    from huggingface_hub import HfApi

    api = HfApi()

    def commit() -> str:
        found = str(api.repo_info(hub_id, revision=revision, timeout=TIMEOUT_S).sha)
        if not _is_commit(found):
            raise ValueError("it states no commit")
        return found

    def tree() -> list[Any]:
        return list(islice(api.list_repo_tree(hub_id, recursive=True, revision=at), MOST_FILES + 1))

    with plain_errors(hub_id, revision):
        at = within(limit_s, lambda: patiently(commit, waits_s, time.sleep))
        entries = within(limit_s, lambda: patiently(tree, waits_s, time.sleep))
        listed = {str(entry.path): entry for entry in entries if hasattr(entry, "size")}  # folders have none
        if len(entries) > MOST_FILES:
            raise lasting(hub_id, f"lists more than {MOST_FILES} files", "choose a repository that holds one model")
        wanted = sorted(name for name in listed if _is_wanted(name))
        files = tuple(_remote_file(hub_id, name, listed[name]) for name in wanted)
    _require_model(hub_id, listed, files)
    return Snapshot(hub_id=hub_id, revision=revision, commit=at, files=files)


def _remote_file(hub_id: str, name: str, entry: Any) -> RemoteFile:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not name.isprintable():
        raise lasting(hub_id, f"names a file {name!r}, which leads out of its folder", "choose another repository")
    size = entry.lfs.size if entry.lfs is not None else entry.size
    if type(size) is not int or size < 0:
        raise lasting(hub_id, f"states {size!r} as the size of {name}", "choose another repository")
    return RemoteFile(name=name, size_bytes=size, sha256=None if entry.lfs is None else str(entry.lfs.sha256))


def _require_model(hub_id: str, listed: Mapping[str, Any], files: Sequence[RemoteFile]) -> None:
    """Refuse, before anything is fetched, a repository that mlx-lm cannot load."""
    names = {file.name for file in files}
    missing = [] if "config.json" in names else ["config.json"]
    missing += [] if any(name.endswith(".safetensors") for name in names) else ["model*.safetensors"]
    if not missing:
        return
    kinds = [kind for kind in ("gguf", "bin", "pth", "onnx") if any(name.endswith(f".{kind}") for name in listed)]
    holds = f" (it holds .{kinds[0]} files)" if kinds else ""
    gguf = ": fetch the .gguf file and use checkpoint=FILE.gguf" if "gguf" in kinds else ""
    raise lasting(
        hub_id,
        f"is not a checkpoint in mlx-lm's layout: no {' and no '.join(missing)}{holds}",
        f"choose a conversion for MLX, such as one of mlx-community{gguf}",
    )


def _is_commit(text: str) -> bool:
    return len(text) == 40 and all(letter in "0123456789abcdef" for letter in text)


# ---- room ----


def require_room(snapshots: Sequence[Snapshot]) -> None:
    """Refuse a fetch for which the cache's volume has no room.

    Raises:
        HubError: with the numbers and the volume.
    """
    needed = sum(snapshot.missing_bytes for snapshot in snapshots)
    if not needed:
        return
    cache = cache_folder().absolute()
    place = next((each for each in (cache, *cache.parents) if each.exists()), Path("/"))
    free = shutil.disk_usage(place.resolve()).free
    if needed + RESERVE_BYTES > free:
        raise HubError(
            f"{', '.join(each.hub_id for each in snapshots)}: {_gb(needed)} are to be fetched, and the volume of the"
            f" hub's cache {cache} has {_gb(free)} free, of which {_gb(RESERVE_BYTES)} are kept",
            remedy="free some space (`hf cache rm`), or set HF_HOME to a folder on another volume",
            lasting=False,
        )


def _gb(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:,.1f} GB"


# ---- files of the cache ----


def repo_folder(hub_id: str) -> Path:
    from huggingface_hub.file_download import repo_folder_name

    return cache_folder() / repo_folder_name(repo_id=hub_id, repo_type="model")


def blob_of(snapshot: Snapshot, sha256: str) -> Path:
    return repo_folder(snapshot.hub_id) / "blobs" / sha256


def partial_of(snapshot: Snapshot, sha256: str) -> Path:
    return repo_folder(snapshot.hub_id) / "blobs" / f"{sha256}.incomplete"


def is_cached(snapshot: Snapshot, file: RemoteFile) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(snapshot.hub_id, file.name, revision=snapshot.commit), str)


def partial_bytes(snapshot: Snapshot, file: RemoteFile) -> int:
    if file.sha256 is None:
        return 0
    here = size_of(blob_of(snapshot, file.sha256)) or size_of(partial_of(snapshot, file.sha256))
    return min(file.size_bytes, here)


def size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _is_wanted(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in PATTERNS)
