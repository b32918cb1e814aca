"""New checkpoints from those that are there: quantised, or cast, by mlx-lm."""

import contextlib
import io
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workers.errors import EngineError, FaultKind
from workers.supervision import isolation
from workers.weights.checkpoints import CheckpointInfo, inspect, resolve
from workers.weights.dummies import DEFAULT_GROUP_SIZE, quantize
from workers.weights.folders import checkpoints_dir, exclusive, made_folder
from workers.weights.sources import obtain_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """The wanted result of a quantisation."""

    bits: int | None  # None: not quantised, only cast
    group_size: int = DEFAULT_GROUP_SIZE
    dtype: str | None = None  # of activations and scales, as mlx names it; None: the checkpoint's


def make_checkpoint(checkpoint: Mapping[str, Any], name: str, wanted: Quantisation) -> CheckpointInfo:
    """Make `checkpoints_dir()/name` of another checkpoint; it appears complete or not at all.

    Args:
        checkpoint: conf.schema.CheckpointConfig of an unquantised model: quantising twice adds two errors.

    Raises:
        EngineError: the source is missing, quantised or a dummy; bits that MLX does not have; or something of the
            user's is in the place.
    """
    resolved = resolve(checkpoint)
    if resolved["source"] == "dummy":
        raise EngineError(
            FaultKind.unsupported_setting,
            f"checkpoint {checkpoint.get('name')}: a dummy's weights are random, made as it loads",
            remedy="set checkpoint.bits of the dummy instead",
        )
    source, info = obtain_folder(resolved)
    if info.group_size is not None:
        raise EngineError(
            FaultKind.unsupported_setting,
            f"{source}: is quantised to {info.bits} bits already",
            remedy="name the unquantised checkpoint that it was made of",
        )
    folder = checkpoints_dir() / name
    with exclusive(folder), made_folder(folder, {"source": info.digest, "recipe": asdict(wanted)}) as unfinished:
        arguments = {"source": str(source), "folder": str(unfinished), "wanted": asdict(wanted)}
        isolation.run_apart("quantise", arguments, source=source, limits=_limits(info))
    return inspect(folder)


def _limits(info: CheckpointInfo) -> isolation.Limits:
    """The weights a few times over; at a tenth of the speed of a slow machine."""
    return isolation.Limits(time_s=120 + info.weights_bytes / 2e6, memory_bytes=(2 << 30) + 6 * info.weights_bytes)


def convert_here(source: str, folder: str, wanted: Mapping[str, Any]) -> None:
    """Write a folder's model as wanted into another one, in this process: see `workers.supervision.isolation`."""
    _write(Path(source), Path(folder), Quantisation(**wanted))


def _write(source: Path, folder: Path, wanted: Quantisation) -> None:
    import mlx.core as mx
    from mlx_lm import load
    from mlx_lm.utils import save_config, save_model

    with contextlib.redirect_stdout(io.StringIO()):
        loaded: Any = load(str(source), lazy=True, return_config=True)
    model, tokenizer, config = loaded
    if wanted.dtype is not None:
        model.set_dtype(getattr(mx, wanted.dtype))
        config["torch_dtype"] = wanted.dtype
    if wanted.bits is not None:
        model, config = quantize(model, config, bits=wanted.bits, group_size=wanted.group_size)
    save_model(folder, model)
    save_config(config, folder / "config.json")
    tokenizer.save_pretrained(folder)
    for file in (*source.glob("*.py"), *source.glob("generation_config.json")):
        shutil.copy(file, folder)
