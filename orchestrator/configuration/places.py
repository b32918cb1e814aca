"""A checkpoint named by its place instead of an option: a hub id, a folder, or a GGUF file.

    mlx-community/Qwen3-8B-4bit    a repository of the hub; with @REVISION a branch, tag or commit
    ~/models/x   ./x   /data/x     a folder in mlx-lm's layout
    model.gguf                     a GGUF file

A relative folder that exists is a folder, also where a hub id would look the same. An option of the same name goes
before both.
"""

import re
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_HUB_PAGE = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([^/]+/[^/?#]+)(?:/tree/([^/?#]+))?/?")


def is_place(text: str) -> bool:
    """Return whether a text can only be a place, never an option's name or a mistyped one."""
    return text.startswith(("/", "~", "./", "../")) or "/" in text or text.endswith(".gguf") or text in (".", "..")


def exists(text: str) -> bool:
    """Return whether a text is the path of something that exists."""
    try:
        return Path(text).expanduser().exists()
    except (RuntimeError, ValueError, OSError):  # ~nobody; a NUL; a name that is too long
        return False


def place_of(text: str, *, where: str) -> dict[str, Any] | None:
    """The configuration of a checkpoint that is named by its place; None: the text names none.

    Args:
        where: the override, for messages.

    Raises:
        InputError: a path that does not exist, or that holds no checkpoint.
    """
    if page := _HUB_PAGE.fullmatch(text):
        return _at_hub(page.group(1), page.group(2))
    path = _path(text, where)
    if exists(str(path)) and (is_place(text) or (path / "config.json").is_file()):
        return _on_disk(path, where)
    hub_id, _, revision = text.partition("@")
    if _HUB_ID.fullmatch(hub_id):
        return _at_hub(hub_id, revision or None)
    if is_place(text):
        raise InputError(
            f"{where}: no such file or folder: {path}; a checkpoint is an option's name, owner/model of the hub, a"
            " folder in mlx-lm's layout, or a .gguf file"
        )
    return None


def _path(text: str, where: str) -> Path:
    try:
        path = Path(text).expanduser().absolute()
        return path.resolve() if ".." in path.parts else path
    except (RuntimeError, ValueError) as error:  # ~nobody; a NUL
        raise InputError(f"{where}: {text!r} is not a path ({error})") from error


def _at_hub(hub_id: str, revision: str | None) -> dict[str, Any]:
    return {"name": hub_id.partition("/")[2], "source": "hub", "hub_id": hub_id, "revision": revision}


def _on_disk(path: Path, where: str) -> dict[str, Any]:
    if path.is_file():
        if path.suffix != ".gguf":
            folder = f"; name its folder: checkpoint={path.parent}" if path.name in _PARTS else ""
            raise InputError(f"{where}: {path} is not a checkpoint: of files, only .gguf are{folder}")
        return {"name": path.stem, "source": "gguf", "path": str(path)}
    if not (path / "config.json").is_file():
        raise InputError(f"{where}: {path} is not a checkpoint: no config.json in it{_instead(path)}")
    return {"name": path.name, "source": "local", "path": str(path)}


_PARTS = ("config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json")


def _instead(folder: Path) -> str:
    """Name what the user may have meant by a folder that is not a checkpoint."""
    if folder.name.startswith("models--"):
        return f"; this is the hub's cache: write checkpoint={'/'.join(folder.name.split('--')[1:])}"
    files = sorted(file.name for file in folder.glob("*.gguf"))
    if files:
        return f"; name a file of it: checkpoint={folder / files[0]}"
    inner = sorted(file.parent.name for file in folder.glob("*/config.json"))
    return f"; it holds {', '.join(inner[:5])}: name one of them" if inner else ""
