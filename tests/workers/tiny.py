"""Tiny models with random weights, in mlx-lm's folder layout, for tests: built in milliseconds, run in seconds.

Default random weights make a model that repeats one token for ever. Here the matrices are scaled up, so that greedy
decoding visits many tokens and two models disagree.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map

from workers.weights.dummies import SHAPES, build_model, empty_llama, quantize, write_tokenizer

SHAPE = SHAPES["tiny"]
_SCALE = 3.0
# llama.cpp's names of tensors, and mlx-lm's.
_OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
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


def build(folder: Path, *, seed: int = 0, bits: int | None = None, group_size: int = 64) -> dict[str, Any]:
    """A model of the tiny shape, as a checkpoint's configuration. The same seed gives the same weights."""
    model, config = build_model(SHAPE, bits=None, group_size=group_size, dtype="float32", seed=seed)
    model.update(tree_map(lambda weight: weight * _SCALE if weight.ndim == 2 else weight, model.parameters()))
    if bits is not None:
        model, config = quantize(model, config, bits=bits, group_size=group_size)
    return _save(folder, model, config)


def build_noisy(folder: Path, *, seed: int = 0, noise: float) -> dict[str, Any]:
    """The model of this seed with noise on its weights: as a draft of it, some of its proposals are accepted."""
    model, config = build_model(SHAPE, bits=None, group_size=64, dtype="float32", seed=seed)
    model.update(tree_map(lambda weight: weight * _SCALE if weight.ndim == 2 else weight, model.parameters()))
    mx.random.seed(seed + 1)
    model.update(tree_map(lambda weight: weight * (1 + noise * mx.random.normal(weight.shape)), model.parameters()))
    return _save(folder, model, config)


def build_zero(folder: Path) -> dict[str, Any]:
    """A model that always answers token 0, which no text of the others holds: as a draft, never accepted."""
    config = SHAPE.config(dtype="float32")
    model = empty_llama(config)
    model.update(tree_map(mx.zeros_like, model.parameters()))
    return _save(folder, model, config)


def build_recurrent(folder: Path) -> dict[str, Any]:
    """A state-space model: its cache cannot be trimmed."""
    from mlx_lm.models import mamba2

    config = {
        "model_type": "mamba2",
        "num_heads": 4,
        "head_dim": 32,
        "vocab_size": SHAPE.vocab_size,
        "hidden_size": 64,
        "intermediate_size": 128,
        "state_size": 16,
        "num_hidden_layers": 2,
        "layer_norm_epsilon": 1e-5,
        "conv_kernel": 4,
        "n_groups": 1,
        "use_bias": False,
        "use_conv_bias": True,
        "tie_word_embeddings": True,
        "time_step_limit": [0.0, 100.0],
        "time_step_rank": 4,
        "max_position_embeddings": 2048,
        "eos_token_id": 2,
    }
    mx.random.seed(0)
    return _save(folder, mamba2.Model(mamba2.ModelArgs.from_dict(config)), config)


def set_eos(checkpoint: dict[str, Any], *token_ids: int) -> None:
    """Let the model stop at these tokens, beside its own end of text."""
    (Path(checkpoint["path"]) / "generation_config.json").write_text(json.dumps({"eos_token_id": list(token_ids)}))


def copy(checkpoint: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same checkpoint in another folder, to be broken there."""
    shutil.copytree(checkpoint["path"], folder)
    return checkpoint | {"path": str(folder), "name": folder.name}


def checkpoint_at(folder: Path) -> dict[str, Any]:
    """A local folder as a checkpoint's configuration."""
    return {"name": folder.name, "source": "local", "path": str(folder)}


def _save(folder: Path, model: Any, config: dict[str, Any]) -> dict[str, Any]:
    from mlx_lm.utils import save_config, save_model

    folder.mkdir(parents=True)
    save_model(folder, model)
    save_config(config, folder / "config.json")
    write_tokenizer(folder, vocab_size=SHAPE.vocab_size)
    return checkpoint_at(folder)


def save_gguf(path: Path, *, tied: bool = True, change: dict[str, Any] | None = None) -> Any:
    """The model of seed 0 as llama.cpp would store it, in float32, and the model itself.

    Args:
        change: metadata to set, or with None to leave out.
    """
    config = SHAPE.config(dtype="float32") | {"tie_word_embeddings": tied}
    mx.random.seed(0)
    model = empty_llama(config)
    arrays = {_gguf_name(name): weight for name, weight in tree_flatten(model.parameters())}
    for name, heads in (("attn_q", SHAPE.heads), ("attn_k", SHAPE.kv_heads)):
        for layer in range(SHAPE.layers):
            key = f"blk.{layer}.{name}.weight"
            rows, inputs = arrays[key].shape
            halves = arrays[key].reshape(heads, 2, rows // heads // 2, inputs)
            arrays[key] = mx.contiguous(halves.swapaxes(1, 2).reshape(rows, inputs))
    metadata = _gguf_metadata() | (change or {})
    mx.save_gguf(str(path), arrays, {key: value for key, value in metadata.items() if value is not None})
    return model


def _gguf_name(name: str) -> str:
    renamed = {hf: gguf for gguf, hf in (_OUTER_NAMES | _LAYER_NAMES).items()}
    stem = name.removesuffix(".weight")
    if stem in renamed:
        return f"{renamed[stem]}.weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{renamed[rest]}.weight"


def _gguf_metadata() -> dict[str, Any]:
    """Keys of the GGUF specification. Tokens: two markers, the bytes, and one merge."""
    from tokenizers import pre_tokenizers

    tokens = ["<|start|>", "<|end|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "he"]
    tokens += [f"unused{index}" for index in range(SHAPE.vocab_size - len(tokens))]

    def number(value: int) -> mx.array:
        return mx.array(value, mx.uint32)

    return {
        "general.architecture": "llama",
        "llama.attention.head_count": number(SHAPE.heads),
        "llama.attention.head_count_kv": number(SHAPE.kv_heads),
        "llama.attention.layer_norm_rms_epsilon": mx.array(1e-5, mx.float32),
        "llama.block_count": number(SHAPE.layers),
        "llama.context_length": number(2048),
        "llama.embedding_length": number(SHAPE.hidden_size),
        "llama.feed_forward_length": number(SHAPE.intermediate_size),
        "llama.rope.dimension_count": number(SHAPE.head_dim),
        "llama.rope.freq_base": mx.array(SHAPE.rope_theta, mx.float32),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": mx.array([3, 3] + [1] * (len(tokens) - 2), mx.int32),
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.bos_token_id": number(0),
        "tokenizer.ggml.eos_token_id": number(1),
        "tokenizer.chat_template": "{% for m in messages %}<|start|>{{ m['content'] }}<|end|>{% endfor %}",
    }
