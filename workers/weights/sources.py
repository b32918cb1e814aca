"""The folder of a checkpoint, from whatever source: converted if it is not there yet, never downloaded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.errors import EngineError, FaultKind
from workers.weights.checkpoints import CheckpointInfo, find_folder, inspect, resolve


def obtain_folder(checkpoint: Mapping[str, Any]) -> tuple[Path, CheckpointInfo]:
    """The folder of a resolved checkpoint that is no dummy, converted now if need be, and its description.

    Raises:
        EngineError: missing, corrupt, or not what the configuration says.
    """
    folder = _obtain(checkpoint)
    info = inspect(folder)
    _require_bits(checkpoint, info)
    return folder, info


def draft_folder(checkpoint: Mapping[str, Any]) -> Path:
    """The folder of a draft that is no model of its own: it comes without a tokenizer.

    Raises:
        EngineError: missing, or a dummy.
    """
    resolved = resolve(checkpoint)
    if resolved["source"] not in ("hub", "local", "imported"):
        raise EngineError(
            FaultKind.unsupported_setting,
            f"checkpoint {checkpoint.get('name')}: a {resolved['source']} cannot be such a draft",
            remedy="choose a draft that was trained for this target",
        )
    return _obtain(resolved)


def _obtain(checkpoint: Mapping[str, Any]) -> Path:
    """The checkpoint's folder, converted now if need be."""
    if checkpoint["source"] == "hub":
        return _snapshot(checkpoint)
    if checkpoint["source"] == "gguf":
        from workers.weights import gguf

        return gguf.obtain(checkpoint)
    return Path(checkpoint["path"])


def _snapshot(checkpoint: Mapping[str, Any]) -> Path:
    """A hub checkpoint's folder in the hub's cache. Fetching is another phase: no deadline of a load limits it."""
    folder = find_folder(checkpoint)
    if folder is None:
        hub_id, revision = checkpoint["hub_id"], checkpoint.get("revision")
        raise EngineError(
            FaultKind.checkpoint_missing,
            f"hub checkpoint {hub_id} at revision {revision or 'main'}: not complete on this machine",
            remedy=f"run: interlace checkpoint fetch {hub_id}{f'@{revision}' if revision else ''}",
        )
    return folder


def _require_bits(checkpoint: Mapping[str, Any], info: CheckpointInfo) -> None:
    """Refuse a folder that differs from its configuration: it would be measured under a wrong name."""
    wanted = checkpoint.get("bits")
    if wanted is not None and info.bits is not None and wanted != info.bits:
        raise EngineError(
            FaultKind.unsupported_setting,
            f"checkpoint {checkpoint.get('name')}: bits={wanted}, but {info.path} has {info.bits}",
            remedy="correct checkpoint.bits, or convert the checkpoint to other bits",
        )
