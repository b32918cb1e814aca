"""A checkpoint's configuration becomes mlx-lm's model and tokenizer, whatever its source.

Nothing of mlx is imported before a function runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.errors import EngineError, FaultKind
from workers.weights.checkpoints import CheckpointInfo, describe, resolve
from workers.weights.dummies import DEFAULT_GROUP_SIZE, SHAPES, build_model, load_tokenizer
from workers.weights.sources import obtain_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to run. mlx-lm's classes, which its packages do not type."""

    model: Any
    tokenizer: Any
    info: CheckpointInfo
    notes: tuple[str, ...]


def load_model(checkpoint: Mapping[str, Any]) -> LoadedModel:
    """Model and tokenizer of a checkpoint's configuration, after checking all that can be checked without loading.

    Raises:
        EngineError: missing, corrupt, or not what the configuration says.
    """
    checkpoint = resolve(checkpoint)
    if checkpoint["source"] == "dummy":
        return _load_dummy(checkpoint)
    folder, info = obtain_folder(checkpoint)
    return _load_folder(folder, checkpoint, info)


def _load_folder(folder: Path, checkpoint: Mapping[str, Any], info: CheckpointInfo) -> LoadedModel:
    import mlx.core as mx
    from mlx_lm import load

    try:
        loaded: Any = load(str(folder))
    except ValueError as error:  # an unknown architecture, weights that do not fit it, a broken tokenizer.json
        raise EngineError(
            FaultKind.load_failed,
            f"{folder}: {str(error).splitlines()[0]}",
            remedy="this mlx-lm may be too old for it, or the checkpoint is incomplete",
        ) from error
    model, tokenizer = loaded
    notes = []
    dtype = checkpoint.get("dtype") or info.dtype
    if dtype != info.dtype:
        model.set_dtype(getattr(mx, str(dtype)))
        mx.eval(model.parameters())
        notes.append(f"activations cast from {info.dtype} to {dtype}")
    if dtype in ("bfloat16", "float16") and mx.default_device().type == mx.DeviceType.cpu:
        notes.append(f"{dtype} on a CPU is about 10 times slower than float32; checkpoint.dtype=float32 casts")
    return LoadedModel(model=model, tokenizer=tokenizer, info=info, notes=tuple(notes))


def _load_dummy(checkpoint: Mapping[str, Any]) -> LoadedModel:
    import mlx.core as mx

    shape = SHAPES[checkpoint["shape"]]
    model, _ = build_model(
        shape,
        bits=checkpoint.get("bits"),
        group_size=checkpoint.get("group_size") or DEFAULT_GROUP_SIZE,
        dtype=checkpoint.get("dtype") or "float32",
        seed=0,
    )
    mx.eval(model.parameters())
    info = describe(checkpoint)
    if info is None:
        raise EngineError(FaultKind.load_failed, f"dummy {checkpoint['shape']} cannot be described")
    note = f"dummy: random weights in the shape of {checkpoint['shape']}; its text and acceptance mean nothing"
    return LoadedModel(model=model, tokenizer=load_tokenizer(shape), info=info, notes=(note,))
