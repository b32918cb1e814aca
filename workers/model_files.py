"""A model's folder in mlx-lm's layout, as files: config.json, model*.safetensors and a tokenizer.

Only the JSON and the safetensors headers are read, so that a missing or broken file shows itself in milliseconds,
before any model loads.
"""

import fnmatch
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workers.errors import EngineError, FaultKind

# What mlx-lm can make a tokenizer of.
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "*.tiktoken", "vocab.json")
_SAMPLE_BYTES = 65536


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's object.

    Raises:
        EngineError: checkpoint_missing or checkpoint_corrupt.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise EngineError(
            FaultKind.checkpoint_missing,
            f"no {path.name} in {path.parent}",
            remedy="a checkpoint is a folder in mlx-lm's layout (mlx_lm.convert makes one)",
        ) from error
    except ValueError as error:
        raise EngineError(
            FaultKind.checkpoint_corrupt, f"{path}: not JSON ({error})", remedy="fetch the checkpoint again"
        ) from error
    if not isinstance(content, dict):
        raise EngineError(FaultKind.checkpoint_corrupt, f"{path}: not an object", remedy="fetch the checkpoint again")
    return content


def weight_files(folder: Path) -> list[Path]:
    """The files that mlx-lm loads, every shard that the index names among them.

    Raises:
        EngineError: checkpoint_missing, with the first one that is.
    """
    files = sorted(folder.glob("model*.safetensors"))
    index = folder / "model.safetensors.index.json"
    named = set(read_json(index).get("weight_map", {}).values()) if index.is_file() else set()
    missing = sorted(named - {file.name for file in files})
    if missing or not files:
        what = missing[0] if missing else "model*.safetensors"
        raise EngineError(
            FaultKind.checkpoint_missing, f"no {what} in {folder}", remedy="its download or conversion is incomplete"
        )
    return files


def read_header(file: Path) -> bytes:
    """A safetensors file's header, after checking it against the file's size.

    Raises:
        EngineError: checkpoint_corrupt.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy"):
            pass
        with file.open("rb") as stream:
            return stream.read(int.from_bytes(stream.read(8), "little"))
    except (SafetensorError, OSError) as error:
        raise EngineError(
            FaultKind.checkpoint_corrupt,
            f"{file}: {str(error).removeprefix('Error while deserializing header: ')}",
            remedy="the file is cut short or damaged: fetch or convert it again",
        ) from error


def require_tokenizer(folder: Path) -> None:
    """Refuse a folder without a tokenizer.

    Raises:
        EngineError: checkpoint_missing.
    """
    names = [file.name for file in folder.iterdir()]
    if not any(fnmatch.filter(names, pattern) for pattern in _TOKENIZER_FILES):
        raise EngineError(
            FaultKind.checkpoint_missing,
            f"no tokenizer in {folder}",
            remedy="copy tokenizer.json and tokenizer_config.json of the original model into it",
        )


def tensor_table(headers: Mapping[Path, bytes]) -> tuple[dict[str, int], dict[str, str]]:
    """Of every tensor, its bytes and its dtype as safetensors names it."""
    sizes, dtypes = {}, {}
    for header in headers.values():
        for name, entry in json.loads(header).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                sizes[name], dtypes[name] = end - begin, entry["dtype"]
    return sizes, dtypes


def digest_of(folder: Path, headers: Mapping[Path, bytes]) -> str:
    """Identity: sizes and headers of the weight files, both ends of their data, config.json and the tokenizer.

    Headers alone would take two fine-tunes of one model for the same; reading all weights would cost minutes.
    """
    digest = hashlib.sha256()
    for file, header in headers.items():
        for part in (file.name.encode(), str(file.stat().st_size).encode(), header, *_both_ends(file, len(header) + 8)):
            digest.update(hashlib.sha256(part).digest())
    for name in ("config.json", "tokenizer.json"):
        file = folder / name
        digest.update(hashlib.sha256(file.read_bytes() if file.is_file() else b"").digest())
    return digest.hexdigest()


def _both_ends(file: Path, start: int) -> Iterable[bytes]:
    with file.open("rb") as stream:
        for position in (start, max(start, file.stat().st_size - _SAMPLE_BYTES)):
            stream.seek(position)
            yield stream.read(_SAMPLE_BYTES)
