"""A model's folder in mlx-lm's layout, as files: config.json, model*.safetensors and a tokenizer.

Only the JSON and the safetensors headers are read, so that a missing or broken file shows itself in milliseconds,
before any model loads.
"""

import fnmatch
import hashlib
import json
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workers.errors import EngineError, FaultKind

# What mlx-lm can make a tokenizer of.
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "*.tiktoken", "vocab.json")
_SAMPLE_BYTES = 65536
_MOST_JSON_BYTES = 64 << 20  # an index of a thousand shards has 10 MB
_MOST_HEADER_BYTES = 32 << 20  # of 200,000 tensors


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's object.

    Raises:
        EngineError: checkpoint_missing or checkpoint_corrupt.
    """
    try:
        content = json.loads(_read_whole(path, most=_MOST_JSON_BYTES))
    except FileNotFoundError as error:
        raise EngineError(
            FaultKind.checkpoint_missing,
            f"no {path.name} in {path.parent}",
            remedy="a checkpoint is a folder in mlx-lm's layout (mlx_lm.convert makes one)",
        ) from error
    except (ValueError, RecursionError) as error:
        raise EngineError(
            FaultKind.checkpoint_corrupt, f"{path}: not JSON ({error})", remedy="fetch the checkpoint again"
        ) from error
    except OSError as error:
        raise EngineError(
            FaultKind.checkpoint_corrupt, f"{path}: cannot be read ({error.strerror})", remedy="check the file"
        ) from error
    if not isinstance(content, dict):
        raise EngineError(FaultKind.checkpoint_corrupt, f"{path}: not an object", remedy="fetch the checkpoint again")
    return content


def _read_whole(path: Path, *, most: int) -> bytes:
    """A regular file's content. Links are followed, as the hub's cache is made of them.

    Raises:
        EngineError: a pipe, a device, or larger than such a file ever is.
        OSError: it cannot be read.
    """
    size = _size_of_regular(path)
    if size > most:
        raise EngineError(
            FaultKind.checkpoint_corrupt,
            f"{path}: has {size / 1e6:.0f} MB, more than such a file ever has",
            remedy="fetch the checkpoint again",
        )
    with path.open("rb") as opened:
        return opened.read(most)


def _size_of_regular(path: Path) -> int:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise EngineError(FaultKind.checkpoint_corrupt, f"{path}: not a regular file", remedy="fetch it again")
    return found.st_size


def _shards(index: Path) -> set[str]:
    """The weight files that an index names."""
    table = read_json(index).get("weight_map", {})
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise EngineError(
            FaultKind.checkpoint_corrupt, f"{index}: weight_map is not a table of names", remedy="fetch it again"
        )
    return set(table.values())


def weight_files(folder: Path) -> list[Path]:
    """The files that mlx-lm loads, every shard that the index names among them.

    Raises:
        EngineError: checkpoint_missing, with the first one that is.
    """
    files = sorted(folder.glob("model*.safetensors"))
    index = folder / "model.safetensors.index.json"
    named = _shards(index) if index.exists() else set()
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
        _size_of_regular(file)
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
        if length > _MOST_HEADER_BYTES:
            raise OSError(f"a header of {length} bytes")
        with safe_open(file, framework="numpy"):
            pass
        with file.open("rb") as stream:
            return stream.read(8 + length)[8:]
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
    """The bytes of every tensor, and its dtype as safetensors names it."""
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
        digest.update(_sha256(file) if file.is_file() else hashlib.sha256().digest())
    return digest.hexdigest()


def _sha256(file: Path) -> bytes:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _both_ends(file: Path, start: int) -> Iterable[bytes]:
    with file.open("rb") as stream:
        for position in (start, max(start, file.stat().st_size - _SAMPLE_BYTES)):
            stream.seek(position)
            yield stream.read(_SAMPLE_BYTES)
