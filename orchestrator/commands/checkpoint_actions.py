"""The `checkpoint` commands' work: list, import, make and inspect model weights."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from orchestrator.configuration.groups import Parts
from orchestrator.errors import InputError
from orchestrator.views.terminal import console, table
from workers.errors import EngineError
from workers.weights.checkpoints import CheckpointInfo, describe, resolve
from workers.weights.folders import checkpoints_dir

if TYPE_CHECKING:
    from workers.weights.quantisation import Quantisation


def import_checkpoint(source: str, *, name: str | None, bits: int | None) -> None:
    """Import the small model, or a GGUF file.

    Raises:
        InputError: no such file, or one that cannot be imported or written.
    """
    try:
        if source in ("smollm2", "smollm2-f32"):
            _import_smollm2(source)
        else:
            _import_gguf(Path(source), name=name, bits=bits)
    except EngineError as error:
        raise InputError(str(error)) from error
    except OSError as error:
        raise _unwritable(error) from error


def _unwritable(error: OSError) -> InputError:
    return InputError(
        f"{error.filename or checkpoints_dir()}: {error.strerror or error}; set INTERLACE_CHECKPOINTS and"
        " INTERLACE_CACHE to folders of yours"
    )


def _require_name(name: str) -> str:
    """Return the name if it is a plain folder name, which leads to no other place."""
    if name != Path(name).name or name.startswith("."):
        raise InputError(f"--name {name}: is not a valid folder name; give one without slashes, such as my-model")
    return name


def _import_smollm2(source: str) -> None:
    from workers.weights.smollm2 import NAMES, import_smollm2

    names = tuple(NAMES) if source == "smollm2" else (source,)
    for found in import_smollm2(lambda text: console().print(Text(text)), names=names):
        state = "imported" if found.made else "already there, verified"
        console().print(Text(f"{found.name}: {state} ({found.weights_bytes / 1e6:.0f} MB, {found.dtype})"))


def _import_gguf(source: Path, *, name: str | None, bits: int | None) -> None:
    from workers.weights.folders import exclusive
    from workers.weights.gguf import Recipe, convert, default_dtype

    if not source.is_file():
        raise InputError(f"{source}: no such file; give a .gguf file, or `smollm2` for the small model")
    folder = checkpoints_dir() / _require_name(name or source.stem)
    with exclusive(folder):
        convert(source, folder, Recipe(bits=bits, dtype=default_dtype()))
    console().print(Text(f"{folder.name}: imported into {folder}"))
    console().print(Text(_how_to_name(folder.name, bits)))


def make_checkpoint(
    source: str, *, name: str | None, bits: int | None, group_size: int, dtype: str | None, config_dir: Path | None
) -> None:
    """Make a checkpoint of an unquantised one.

    Raises:
        InputError: nothing to make, no such source, or one that cannot be made or written.
    """
    from workers.weights.quantisation import Quantisation
    from workers.weights.quantisation import make_checkpoint as make

    if bits is None and dtype is None:
        raise InputError(f"{source}: nothing to make; give --bits, --dtype, or both")
    parts = Parts(config_dir)
    wanted = Quantisation(bits=bits, group_size=group_size, dtype=dtype)
    made_name = _require_name(name or _made_name(source, wanted))
    try:
        info = make(_source_config(parts, source), made_name, wanted)
    except EngineError as error:
        raise InputError(str(error)) from error
    except OSError as error:
        raise _unwritable(error) from error
    kind = f"{info.bits} bits" if bits is not None else str(info.dtype)
    console().print(Text(f"{made_name}: {kind}, {info.weights_bytes / 1e9:.2f} GB in {info.path}"))
    if made_name not in parts.options("checkpoint"):
        console().print(Text(_how_to_name(made_name, bits)))


def _source_config(parts: Parts, source: str) -> dict[str, Any]:
    """The configuration of a checkpoint, given by its name or as a folder."""
    if source not in parts.options("checkpoint") and parts.add_place(source, where=source) is None:
        raise InputError(f"{source}: no checkpoint or folder of this name; see `interlace checkpoint list`")
    parts.load([("checkpoint", source)])
    return parts.values(("checkpoint", source))


def _made_name(source: str, wanted: "Quantisation") -> str:
    stem = Path(source).name.removesuffix("-f32").removesuffix("-bf16")
    return f"{stem}-{wanted.dtype}" if wanted.bits is None else f"{stem}-{wanted.bits}bit-g{wanted.group_size}"


def _how_to_name(name: str, bits: int | None) -> str:
    """Describe how to name a new folder so that a plan finds it."""
    lines = ["defaults:", "  - /schema/checkpoint@_here_", "  - _self_", "source: imported"]
    lines += [] if bits is None else [f"bits: {bits}"]
    return "\n".join([f"name it in DIR/checkpoint/{name}.yaml, then add --config-dir DIR:", *lines])


def inspect_checkpoint(name: str, *, config_dir: Path | None) -> None:
    """Print a checkpoint's shape, bytes and digest.

    Raises:
        InputError: no such checkpoint, or one that cannot be read.
    """
    try:
        info = describe(resolve(_source_config(Parts(config_dir), name)))
    except EngineError as error:
        raise InputError(str(error)) from error
    if info is None:
        sys.stdout.write(f"{name}: not on this machine yet; fetch it with: interlace checkpoint fetch {name}\n")
        return
    made = table("", "")
    for head, value in _lines(info):
        made.add_row(head, Text(value))
    console().print(made)


def _lines(info: CheckpointInfo) -> list[tuple[str, str]]:
    values = {
        "path": info.path,
        "architecture": info.architecture,
        "layers": info.layers,
        "hidden size": info.hidden_size,
        "KV heads x head dim": f"{info.kv_heads} x {info.head_dim}",
        "vocabulary": info.vocab_size,
        "bits (group)": f"{info.bits} ({info.group_size})",
        "dtype": info.dtype,
        "weights": f"{info.weights_bytes} bytes",
        "read per token": None if info.bytes_read_per_token is None else f"{info.bytes_read_per_token} bytes",
        "KV cache per token": None if info.kv_bytes_per_token is None else f"{info.kv_bytes_per_token} bytes",
        "digest": info.digest,
    }
    return [(head, "unknown" if value is None else str(value)) for head, value in values.items()]
