"""GGUF files as mlx-lm folders.

The header is checked here; `mx.load` reads the file itself in a process of its own (`workers.supervision.isolation`):
packed Q4_0, Q4_1 and Q8_0, F16 and F32, and some of the other kinds as F16. Here the names, the row order of the
attention's projections and the tokenizer are brought into mlx-lm's form, and mlx-lm quantises the result to the bits
asked for.
Format: the GGUF specification's metadata keys, and llama.cpp's names of tensors.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workers.errors import EngineError, FaultKind
from workers.supervision import isolation
from workers.weights.dummies import DEFAULT_GROUP_SIZE, empty_llama, quantize
from workers.weights.folders import cache_dir, exclusive, made_folder
from workers.weights.gguf_header import Header, read_header

_LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_EOS_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
_GGUF_GROUP_SIZE = 32
_CONTROL_TOKEN, _USER_TOKEN = 3, 4  # tokenizer.ggml.token_type
_IDENTITY_BYTES = 1 << 24
_MOST = 1 << 31  # of any number in a configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The wanted result of a conversion."""

    bits: int | None  # None: unquantised
    group_size: int = DEFAULT_GROUP_SIZE
    dtype: str = "float32"  # of activations and scales, as mlx names it


def default_dtype() -> str:
    """The dtype in which this machine is fast.

    MLX's CPU backend multiplies quantised float32 ten times faster than bfloat16.
    """
    import mlx.core as mx

    return "float32" if mx.default_device().type == mx.DeviceType.cpu else "bfloat16"


def converted_folder(checkpoint: Mapping[str, Any]) -> Path:
    """The folder of a GGUF checkpoint's conversion; it need not exist yet.

    Named by the file's content (size and both ends: metadata, tensor table, last weights) and by what to make of it.
    """
    path = Path(checkpoint["path"])
    digest = hashlib.sha256(str(path.stat().st_size).encode())
    with path.open("rb") as stream:
        digest.update(stream.read(_IDENTITY_BYTES))
        stream.seek(max(0, path.stat().st_size - _IDENTITY_BYTES))
        digest.update(stream.read(_IDENTITY_BYTES))
    wanted = (checkpoint.get("bits"), checkpoint.get("group_size"), checkpoint.get("dtype"))
    digest.update(repr(wanted).encode())
    return cache_dir() / "gguf" / f"{path.stem}-{digest.hexdigest()[:16]}"


def obtain(checkpoint: Mapping[str, Any]) -> Path:
    """The mlx-lm folder of a resolved GGUF checkpoint, converted now unless that was done before.

    Raises:
        EngineError: the file is broken, or of a kind that is not read.
    """
    folder = converted_folder(checkpoint)
    recipe = Recipe(
        bits=checkpoint.get("bits"),
        group_size=checkpoint.get("group_size") or DEFAULT_GROUP_SIZE,
        dtype=checkpoint.get("dtype") or default_dtype(),
    )
    with exclusive(folder):
        if not folder.is_dir():
            convert(Path(checkpoint["path"]), folder, recipe)
    return folder


def convert(source: Path, folder: Path, recipe: Recipe, *, origin: Mapping[str, str] | None = None) -> None:
    """Convert a GGUF file into a folder, which appears complete or not at all; an earlier conversion is replaced.

    The caller holds `exclusive(folder)`: what an interrupted conversion left is removed.

    Args:
        origin: where the file comes from, for the manifest.

    Raises:
        EngineError: checkpoint_corrupt (no GGUF, cut short) or unsupported_setting (architecture, tokenizer, bits; or
            the folder is there and no conversion made it).
    """
    header = read_header(source)
    _require_supported(source, header.metadata)
    _require_layers(source, header)
    made_of = identity(recipe, origin or {"source": source.name})
    arguments = {"source": str(source), "recipe": asdict(recipe)}
    with made_folder(folder, made_of) as unfinished:
        isolation.run_apart(
            "gguf", {**arguments, "folder": str(unfinished)}, source=source, limits=_limits(source, header)
        )


def _require_layers(source: Path, header: Header) -> None:
    """A layer has tensors: a number beyond theirs would build a model of any size."""
    layers = header.metadata.get("llama.block_count")
    if type(layers) is int and layers > len(header.tensors):
        raise EngineError(
            FaultKind.checkpoint_corrupt,
            f"{source}: llama.block_count is {layers}, and the file has {len(header.tensors)} tensors",
            remedy="fetch it again",
        )


def _limits(source: Path, header: Header) -> isolation.Limits:
    """Limits: memory for the weights in float32, a few times over, beside the file; time at a tenth of a slow machine's
    speed."""
    memory_bytes = (2 << 30) + source.stat().st_size + 16 * header.weights
    return isolation.Limits(time_s=120 + header.weights / 1e6, memory_bytes=memory_bytes)


def convert_here(source: str, folder: str, recipe: Mapping[str, Any]) -> None:
    """Write a GGUF file's weights, configuration and tokenizer into a folder, in this process.

    `workers.supervision.isolation` calls it in a process of its own.
    """
    _write(Path(source), Path(folder), Recipe(**recipe))


def identity(recipe: Recipe, origin: Mapping[str, str]) -> dict[str, Any]:
    """The identity of a conversion: an earlier one that equals it is used again."""
    return {**origin, "recipe": asdict(recipe)}


def _write(source: Path, folder: Path, recipe: Recipe) -> None:
    import mlx.core as mx
    from mlx_lm.utils import save_config, save_model

    arrays, metadata = _read(source)
    _require_complete(source, arrays, metadata)
    config = _config(arrays, metadata, dtype=recipe.dtype)
    weights = rename_weights(source, arrays, config, dtype=getattr(mx, recipe.dtype))
    model = empty_llama(config)
    try:
        model.load_weights(list(weights.items()))  # strict: every weight known, none missing
    except ValueError as error:
        raise EngineError(FaultKind.checkpoint_corrupt, f"{source}: {error}", remedy="fetch it again") from error
    if recipe.bits is not None:
        model, config = quantize(model, config, bits=recipe.bits, group_size=recipe.group_size)
    save_model(folder, model)
    save_config(config, folder / "config.json")
    eos_ids = [_scalar(metadata[key]) for key in _EOS_KEYS if key in metadata]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos_ids}))
    _write_tokenizer(folder, metadata)


def _read(source: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    import mlx.core as mx

    try:
        loaded: Any = mx.load(str(source), format="gguf", return_metadata=True)
    except (RuntimeError, ValueError) as error:
        raise EngineError(
            FaultKind.checkpoint_corrupt,
            f"{source}: {str(error).removeprefix('[load_gguf] ')}",
            remedy="fetch it again; of the quantised kinds Q4_0, Q4_1 and Q8_0 are sure to be read",
        ) from error
    arrays, metadata = loaded
    return arrays, metadata


def _scalar(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _require_supported(source: Path, metadata: Mapping[str, Any]) -> None:
    wanted = {
        "general.architecture": ("llama",),
        "tokenizer.ggml.model": ("gpt2",),
        "tokenizer.ggml.pre": ("smollm", "gpt-2"),
        "llama.rope.scaling.type": ("none", None),
    }
    for key, known in wanted.items():
        if metadata.get(key) not in known:
            raise EngineError(
                FaultKind.unsupported_setting,
                f"{source}: {key} is {metadata.get(key)!r}, and only {', '.join(map(repr, known))} can be imported",
                remedy="convert the original model with mlx_lm.convert and use source=local",
            )


_REQUIRED_METADATA = (
    "llama.attention.head_count",
    "llama.attention.layer_norm_rms_epsilon",
    "llama.block_count",
    "llama.context_length",
    "llama.embedding_length",
    "llama.feed_forward_length",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.tokens",
)


def _require_complete(source: Path, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    missing = [key for key in _REQUIRED_METADATA if key not in metadata]
    missing += [name for name in ("token_embd.weight", "output_norm.weight") if name not in arrays]
    if missing:
        raise EngineError(FaultKind.checkpoint_corrupt, f"{source}: no {missing[0]}", remedy="fetch it again")


def _config(arrays: Mapping[str, Any], metadata: Mapping[str, Any], *, dtype: str) -> dict[str, Any]:
    """The metadata as a config.json."""

    def value(key: str) -> Any:
        found = _scalar(metadata[f"llama.{key}"])
        if type(found) not in (int, float) or not 0 < found < _MOST:
            raise ValueError(f"llama.{key} is {found!r}")
        return found

    heads = value("attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": value("embedding_length"),
        "num_hidden_layers": value("block_count"),
        "intermediate_size": value("feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": _scalar(metadata.get("llama.attention.head_count_kv", heads)),
        "head_dim": _scalar(metadata.get("llama.rope.dimension_count", value("embedding_length") // heads)),
        # float32 in the file; rounded, the number that its author wrote
        "rms_norm_eps": round(value("attention.layer_norm_rms_epsilon"), 10),
        "rope_theta": _scalar(metadata.get("llama.rope.freq_base", 10000.0)),
        "rope_traditional": False,
        "max_position_embeddings": value("context_length"),
        "vocab_size": arrays["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in arrays,
        "eos_token_id": _scalar(metadata["tokenizer.ggml.eos_token_id"]),
        "torch_dtype": dtype,
    }


def rename_weights(source: Path, arrays: Mapping[str, Any], config: Mapping[str, Any], *, dtype: Any) -> dict[str, Any]:
    """The arrays under mlx-lm's names, unpacked, in mlx-lm's row order."""
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    weights = {}
    for name in arrays:
        if not name.endswith(".weight"):
            if name.endswith((".scales", ".biases")):
                continue  # of a packed weight; taken with it
            raise _unknown_tensor(source, name)
        stem = name.removesuffix(".weight")
        weight = _unpack(arrays, stem)
        if stem in _OUTER_NAMES:
            weights[f"{_OUTER_NAMES[stem]}.weight"] = weight.astype(dtype)
            continue
        prefix, _, kind = stem.rpartition(".")
        if not prefix.startswith("blk.") or kind not in _LAYER_NAMES:
            raise _unknown_tensor(source, name)
        if kind in heads:
            weight = unpermute(weight, heads[kind])
        weights[f"model.layers.{prefix.removeprefix('blk.')}.{_LAYER_NAMES[kind]}.weight"] = weight.astype(dtype)
    return weights


def _unknown_tensor(source: Path, name: str) -> EngineError:
    return EngineError(
        FaultKind.unsupported_setting,
        f"{source}: unknown tensor {name}",
        remedy="convert the original model with mlx_lm.convert and use source=local",
    )


def _unpack(arrays: Mapping[str, Any], stem: str) -> Any:
    """A weight in float32. A packed one holds `bits` for each of 32 in a group, in words of 32 bits."""
    import mlx.core as mx

    packed = arrays[f"{stem}.weight"]
    if f"{stem}.scales" not in arrays:
        return packed.astype(mx.float32)
    scales, biases = arrays[f"{stem}.scales"].astype(mx.float32), arrays[f"{stem}.biases"].astype(mx.float32)
    bits = packed.shape[-1] // scales.shape[-1]
    return mx.dequantize(packed, scales, biases, group_size=_GGUF_GROUP_SIZE, bits=bits)


def unpermute(weight: Any, heads: int) -> Any:
    """Rows from llama.cpp's order (rotary pairs side by side) to mlx-lm's (first halves, then second halves).

    Args:
        weight: (heads x head_dim, inputs).
    """
    rows, inputs = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, inputs).swapaxes(1, 2).reshape(rows, inputs)


def _write_tokenizer(folder: Path, metadata: Mapping[str, Any]) -> None:
    """tokenizer.json and tokenizer_config.json from the metadata."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, processors

    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"].tolist()
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(metadata["tokenizer.ggml.pre"])
    tokenizer.decoder = decoders.ByteLevel()
    for kind, special in ((_CONTROL_TOKEN, True), (_USER_TOKEN, False)):
        added = [token for token, its_kind in zip(tokens, types, strict=True) if its_kind == kind]
        tokenizer.add_tokens([AddedToken(token, special=special, normalized=False) for token in added])
    names = {
        word: tokens[_scalar(metadata[f"tokenizer.ggml.{key}_token_id"])]
        for word, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if f"tokenizer.ggml.{key}_token_id" in metadata
    }
    if _scalar(metadata.get("tokenizer.ggml.add_bos_token", False)):
        bos = names["bos"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokens.index(bos))]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings: dict[str, Any] = {f"{word}_token": token for word, token in names.items()}
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    if template := metadata.get("tokenizer.chat_template"):
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def _pre_tokenizer(kind: str) -> Any:
    """smollm: digits one by one, then as GPT-2; gpt-2: the byte-level split alone."""
    from tokenizers import pre_tokenizers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind == "gpt-2":
        return byte_level
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
