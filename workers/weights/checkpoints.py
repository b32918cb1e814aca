"""Finding checkpoints and describing them, without loading a weight and without mlx."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workers.errors import EngineError, FaultKind
from workers.settings import DTYPE_BYTES
from workers.weights.dummies import DEFAULT_GROUP_SIZE, SHAPES
from workers.weights.folders import checkpoints_dir
from workers.weights.model_files import digest_of, read_header, read_json, require_tokenizer, tensor_table, weight_files

_DTYPE_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_MOST = 1 << 31  # of any count in a configuration
_MOST_KV_BYTES = 1 << 40  # a token
# The number of experts, as the model families call it.
_EXPERT_COUNT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """A checkpoint's description, from its configuration and headers. None: they do not state it."""

    path: str | None  # None: a dummy has no folder
    architecture: str
    layers: int | None
    hidden_size: int | None
    kv_heads: int | None
    head_dim: int | None
    vocab_size: int | None
    dtype: str | None  # of activations, scales and the cache
    bits: int | None  # of the quantised weights; unquantised: of the dtype
    group_size: int | None  # None: not quantised
    weights_bytes: int
    bytes_read_per_token: int | None  # weights that one decoded token reads
    kv_bytes_per_token: int | None  # growth of an unquantised cache per token, all layers
    digest: str


def resolve(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The checkpoint's configuration (conf.schema.CheckpointConfig) with an absolute `path`; no network.

    A hub checkpoint keeps hub_id and revision, a dummy its shape: they have no path.

    Raises:
        EngineError: nothing is there, or the configuration lacks what its source needs.
    """
    name, source = checkpoint.get("name"), _source_of(checkpoint)
    if source == "hub":
        _require(checkpoint, "hub_id")
        if "/" not in checkpoint["hub_id"]:
            raise EngineError(
                FaultKind.checkpoint_missing,
                f"checkpoint {name}: hub_id {checkpoint['hub_id']!r} has no owner",
                remedy="write it as owner/model, or use source=local with a path",
            )
        return dict(checkpoint)
    if source == "unknown":
        return dict(checkpoint)  # whatever a server holds
    if source == "dummy":
        _require(checkpoint, "shape")
        if checkpoint["shape"] not in SHAPES:
            raise EngineError(
                FaultKind.unsupported_setting,
                f"checkpoint {name}: no shape {checkpoint['shape']!r}",
                remedy=f"the shapes are {', '.join(SHAPES)}",
            )
        return dict(checkpoint)
    return dict(checkpoint) | {"path": str(_existing_path(checkpoint, source))}


def find_folder(checkpoint: Mapping[str, Any]) -> Path | None:
    """The folder of a resolved checkpoint; None for a dummy, or while it is not downloaded or converted."""
    source = _source_of(checkpoint)
    if source in ("local", "imported"):
        return Path(checkpoint["path"])
    if source == "gguf":
        from workers.weights.gguf import converted_folder

        folder = converted_folder(checkpoint)
        return folder if folder.is_dir() else None
    return _downloaded_folder(checkpoint) if source == "hub" else None


def describe(checkpoint: Mapping[str, Any]) -> CheckpointInfo | None:
    """Describe a resolved checkpoint of any source; None if its folder does not exist yet.

    Raises:
        EngineError: its folder is broken.
    """
    if _source_of(checkpoint) == "dummy":
        return _describe_dummy(checkpoint)
    folder = find_folder(checkpoint)
    if folder is None:
        return None
    try:
        info = inspect(folder)
    except EngineError as error:
        if _source_of(checkpoint) == "hub" and error.kind is FaultKind.checkpoint_missing:
            return None  # its download was interrupted; loading completes it
        raise
    return _cast(info, checkpoint.get("dtype"))


def _cast(info: CheckpointInfo, dtype: str | None) -> CheckpointInfo:
    """The description after loading in another dtype.

    Sizes of quantised weights are left unchanged: only their scales and norms would change.
    """
    if dtype is None or info.dtype is None or dtype == info.dtype or dtype not in DTYPE_BYTES:
        return info
    before, after = DTYPE_BYTES[info.dtype], DTYPE_BYTES[dtype]

    def scaled(size: int | None) -> int | None:
        return None if size is None else size * after // before

    info = replace(info, dtype=dtype, kv_bytes_per_token=scaled(info.kv_bytes_per_token))
    if info.group_size is not None:
        return info
    return replace(
        info,
        bits=8 * after,
        weights_bytes=info.weights_bytes * after // before,
        bytes_read_per_token=scaled(info.bytes_read_per_token),
    )


def inspect(path: Path | str) -> CheckpointInfo:
    """Read a folder's configuration and headers, and check that all that a load needs is there.

    Raises:
        EngineError: checkpoint_missing (no folder, no config.json, no weights, a shard or the tokenizer missing) or
            checkpoint_corrupt (JSON that is none, or says what no model has; a safetensors header that does not fit
            its file) or unsupported_setting (a model that comes with Python code of its own).
    """
    try:
        return _inspect(Path(path).absolute())
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError, ArithmeticError) as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise EngineError(
            FaultKind.checkpoint_corrupt,
            f"{path}: its config.json or its headers are not valid ({words})",
            remedy="fetch the checkpoint again",
        ) from error


def _inspect(folder: Path) -> CheckpointInfo:
    if not folder.is_dir():
        raise EngineError(FaultKind.checkpoint_missing, f"no folder {folder}", remedy="check the checkpoint's path")
    config = read_json(folder / "config.json")
    _refuse_own_code(folder, config)
    headers = {file: read_header(file) for file in weight_files(folder)}
    if "dflash_config" not in config:  # such a draft reads and writes token ids only
        require_tokenizer(folder)
    sizes, dtypes = tensor_table(headers)
    merged = _language_part(config)
    quantization = _mapping(config.get("quantization") or config.get("quantization_config"))
    dtype = _activation_dtype(dtypes)
    kv_heads, head_dim = _heads(merged)
    return CheckpointInfo(
        path=str(folder),
        architecture=_name(config.get("model_type")) or "unknown",
        layers=_whole(merged.get("num_hidden_layers")),
        hidden_size=_whole(merged.get("hidden_size")),
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=_whole(merged.get("vocab_size")),
        dtype=dtype,
        bits=_whole(quantization.get("bits")) or (8 * DTYPE_BYTES[dtype] if dtype else None),
        group_size=_whole(quantization.get("group_size")),
        weights_bytes=sum(sizes.values()),
        bytes_read_per_token=bytes_read_per_token(sizes, config),
        kv_bytes_per_token=_kv_bytes_per_token(merged, kv_heads, head_dim, dtype),
        digest=digest_of(folder, headers),
    )


def _source_of(checkpoint: Mapping[str, Any]) -> str:
    source = checkpoint.get("source")
    return str(getattr(source, "name", source))


def _require(checkpoint: Mapping[str, Any], key: str) -> None:
    if not checkpoint.get(key):
        raise EngineError(
            FaultKind.unsupported_setting,
            f"checkpoint {checkpoint.get('name')}: source={_source_of(checkpoint)} without {key}",
            remedy=f"set checkpoint.{key}",
        )


def import_name(name: str) -> str:
    """Return the name to import for a checkpoint: both quantised ones come together, the unquantised one separately."""
    return name if name.endswith("-f32") else name.split("-")[0]


def _existing_path(checkpoint: Mapping[str, Any], source: str) -> Path:
    """The absolute path of a checkpoint that must be on this disk."""
    name = checkpoint.get("name")
    if source == "imported":
        path = Path(checkpoint.get("path") or checkpoints_dir() / str(name))
        remedy = f"run: interlace checkpoint import {import_name(str(name))}"
    elif source in ("local", "gguf"):
        _require(checkpoint, "path")
        path, remedy = Path(checkpoint["path"]).expanduser().absolute(), "check checkpoint.path"
    else:
        raise EngineError(
            FaultKind.unsupported_setting,
            f"checkpoint {name}: no source {source!r}",
            remedy="the sources are hub, local, gguf, imported, dummy",
        )
    found = path.is_file() if source == "gguf" else path.is_dir()
    if not found:
        what = "file" if source == "gguf" else "folder"
        raise EngineError(FaultKind.checkpoint_missing, f"checkpoint {name}: no {what} {path}", remedy=remedy)
    return path


def _downloaded_folder(checkpoint: Mapping[str, Any]) -> Path | None:
    """A hub checkpoint's snapshot in the hub's own cache, if it is complete; without network."""
    if checkpoint.get("path"):
        return Path(checkpoint["path"])  # it was found before
    from workers.weights.hub import complete_folder

    return complete_folder(checkpoint["hub_id"], checkpoint.get("revision"))


def _activation_dtype(dtypes: Mapping[str, str]) -> str | None:
    """The dtype of the norms: what the activations, and so the cache, come out in."""
    norms = (dtype for name, dtype in sorted(dtypes.items()) if name.endswith("norm.weight"))
    floats = (dtype for dtype in dtypes.values() if dtype in _DTYPE_NAMES)
    return _DTYPE_NAMES.get(next(norms, next(floats, "")))


def _whole(value: Any) -> int | None:
    """Return a number if the family has one; some families have a list, with one number per layer.

    Raises:
        ValueError: a number that no model has.
    """
    if type(value) is int and not 0 <= value < _MOST:
        raise ValueError(f"{value:.3g} is not a valid count" if abs(value) < 10**300 else "a count is out of range")
    return value if type(value) is int else None


def _name(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"model_type is a {type(value).__name__}")
    (value or "").encode()  # half a character cannot be stored
    return value


def _refuse_own_code(folder: Path, config: Mapping[str, Any]) -> None:
    """Earlier versions of mlx-lm run the Python file that `model_file` names without asking."""
    if config.get("model_file") is not None:
        raise EngineError(
            FaultKind.unsupported_setting,
            f"{folder}: config.json names Python code of its own (model_file), which is never run",
            remedy="use a checkpoint of an architecture that mlx-lm has",
        )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _divide(whole: int | None, part: int | None) -> int | None:
    return whole // part if whole and part else None


def _language_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with the language part of a model that has more than text."""
    return dict(config) | _mapping(config.get("text_config"))


def _heads(config: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The number of heads that have keys and values, and the size of one."""
    heads = _whole(config.get("num_attention_heads"))
    head_dim = _whole(config.get("head_dim")) or _divide(_whole(config.get("hidden_size")), heads)
    return _whole(config.get("num_key_value_heads", heads)), head_dim


def cache_of_config(config: Mapping[str, Any], dtype: str) -> int | None:
    """Bytes by which an unquantised cache of this dtype grows per token; None: of another kind, or not stated.

    Raises:
        ValueError, TypeError: a configuration that no model has.
    """
    merged = _language_part(config)
    return _kv_bytes_per_token(merged, *_heads(merged), dtype)


def is_mixture(config: Mapping[str, Any]) -> bool:
    """Return whether a token reads only some of the weights: a mixture of experts."""
    merged = _language_part(config)
    return any(merged.get(key) for key in _EXPERT_COUNT_KEYS)


def bytes_read_per_token(sizes: Mapping[str, int], config: Mapping[str, Any]) -> int | None:
    """Dense: all weights, an input embedding left out unless it is the output head too (one row of it is read).

    Mixture of experts: of the experts' weights, the share that one token is routed to.
    """
    config = _language_part(config)
    tied = config.get("tie_word_embeddings", True) or not any("lm_head." in name for name in sizes)
    unread = "lm_head." if tied else "embed_tokens."
    total = sum(size for name, size in sizes.items() if unread not in name)
    experts = next((config[key] for key in _EXPERT_COUNT_KEYS if config.get(key)), None)
    if experts is None:
        return total
    routed = config.get("num_experts_per_tok")
    if routed is None:
        return None
    expert_bytes = sum(size for name, size in sizes.items() if ".switch_mlp." in name or ".experts." in name)
    return total - expert_bytes + expert_bytes * int(routed) // int(experts)


def _kv_bytes_per_token(
    config: Mapping[str, Any], kv_heads: int | None, head_dim: int | None, dtype: str | None
) -> int | None:
    """Keys and values of every attention layer; None for caches of another kind (latent attention)."""
    if config.get("kv_lora_rank") or not (kv_heads and head_dim and dtype and config.get("num_hidden_layers")):
        return None
    layers = _whole(int(config["num_hidden_layers"])) or 0
    if kinds := config.get("layer_types"):
        layers = sum("attention" in kind and "linear" not in kind for kind in kinds)
    elif interval := config.get("full_attention_interval"):
        layers //= int(interval)
    found = 2 * layers * kv_heads * head_dim * DTYPE_BYTES[dtype]
    if found >= _MOST_KV_BYTES:
        raise ValueError(f"{found} bytes of cache per token")
    return found


def _describe_dummy(checkpoint: Mapping[str, Any]) -> CheckpointInfo:
    shape = SHAPES[checkpoint["shape"]]
    dtype = checkpoint.get("dtype") or "float32"
    bits, group_size = checkpoint.get("bits"), checkpoint.get("group_size") or DEFAULT_GROUP_SIZE
    dtype_bytes = DTYPE_BYTES[dtype]
    # A group of quantised weights has a scale and a bias in the dtype.
    matrix_bits = bits + 2 * 8 * dtype_bytes / group_size if bits else 8 * dtype_bytes
    weights_bytes = int(shape.matrix_parameters * matrix_bits / 8) + shape.norm_parameters * dtype_bytes
    unread_bytes = 0 if shape.tied else int(shape.embedding_parameters * matrix_bits / 8)
    identity = f"dummy {checkpoint['shape']} {bits} {group_size if bits else None} {dtype}"
    return CheckpointInfo(
        path=None,
        architecture="llama",
        layers=shape.layers,
        hidden_size=shape.hidden_size,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab_size,
        dtype=dtype,
        bits=bits or 8 * dtype_bytes,
        group_size=group_size if bits else None,
        weights_bytes=weights_bytes,
        bytes_read_per_token=weights_bytes - unread_bytes,
        kv_bytes_per_token=2 * shape.layers * shape.kv_heads * shape.head_dim * dtype_bytes,
        digest=hashlib.sha256(identity.encode()).hexdigest(),
    )
