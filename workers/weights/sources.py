"""The folder of a checkpoint, from whatever source: downloaded or converted where it is not there yet."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.errors import EngineError, FaultKind
from workers.weights.checkpoints import CheckpointInfo, inspect, resolve


def obtain_folder(checkpoint: Mapping[str, Any]) -> tuple[Path, CheckpointInfo]:
    """The folder of a resolved checkpoint that is no dummy, downloaded or converted now if need be, and what it is.

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
    """The checkpoint's folder, downloaded or converted now if need be."""
    if checkpoint["source"] == "hub":
        return _download(checkpoint)
    if checkpoint["source"] == "gguf":
        from workers.weights import gguf

        return gguf.obtain(checkpoint)
    return Path(checkpoint["path"])


def _download(checkpoint: Mapping[str, Any]) -> Path:
    """A hub checkpoint's snapshot: the files that mlx-lm's own loader takes, never a folder that has the same name."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    from mlx_lm.utils import DEFAULT_ALLOW_PATTERNS

    hub_id, revision = checkpoint["hub_id"], checkpoint.get("revision")
    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=DEFAULT_ALLOW_PATTERNS))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise EngineError(
            FaultKind.checkpoint_missing,
            f"hub checkpoint {hub_id} at revision {revision or 'main'}: {reason}",
            remedy="check hub_id, revision and the network, or download it beforehand and use source=local",
        ) from error


def _require_bits(checkpoint: Mapping[str, Any], info: CheckpointInfo) -> None:
    """Refuse a folder that differs from its configuration: it would be measured under a wrong name."""
    wanted = checkpoint.get("bits")
    if wanted is not None and info.bits is not None and wanted != info.bits:
        raise EngineError(
            FaultKind.unsupported_setting,
            f"checkpoint {checkpoint.get('name')}: bits={wanted}, but {info.path} has {info.bits}",
            remedy="correct checkpoint.bits, or convert the checkpoint to other bits",
        )
