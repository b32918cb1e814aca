"""Targets and DFlash drafts with random weights, in the layout of published drafts: built in milliseconds.

A target that `echoes` has layers that add nothing: it repeats the prompt's last token for ever. A draft that is
`constant` has too: it proposes its mask token in every slot, whatever it is asked. Together they make acceptance known.
"""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from tests.workers.tiny import checkpoint_at
from workers.weights.dummies import write_tokenizer

VOCAB, HIDDEN, LAYERS, INTERMEDIATE = 320, 64, 4, 128
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 16
BLOCK = 8  # that the drafts were "trained" with
TAPPED = [0, 1, 2]  # target layers whose output the draft sees
EOS_ID = 2
_ADDS = ("o_proj.weight", "out_proj.weight", "down_proj.weight")  # what a layer adds to the residual stream
_V2_ADDS = ("codebook", "hidden_projection.weight", "kernel_projection.weight")


def shape(model_type: str = "qwen3") -> dict[str, Any]:
    """The common part of target and draft."""
    return {
        "model_type": model_type,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCAB,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    }


def build_target(folder: Path, *, seed: int = 0, echoes: bool = False) -> dict[str, Any]:
    """A Qwen3 of a few layers, with a tokenizer."""
    mx.random.seed(seed)
    weights = {"model.embed_tokens.weight": _matrix(VOCAB, HIDDEN) * 3, "model.norm.weight": mx.ones(HIDDEN)}
    for layer in range(LAYERS):
        weights |= _block(f"model.layers.{layer}.")
    if echoes:
        weights = _silenced(weights, _ADDS)
    config = shape() | {
        "architectures": ["Qwen3ForCausalLM"],
        "num_hidden_layers": LAYERS,
        "eos_token_id": EOS_ID,
    }
    _save(folder, weights, config)
    write_tokenizer(folder, vocab_size=VOCAB)
    return checkpoint_at(folder)


def build_hybrid(folder: Path, *, seed: int = 0, heads: bool = False, echoes: bool = False) -> dict[str, Any]:
    """A Qwen3.5 of four layers, three of them recurrent.

    Args:
        heads: with a layer for multi-token prediction, in a file of its own.
        echoes: it repeats the prompt's last token, and so do its heads.
    """
    from mlx_lm.models import qwen3_5

    text = shape("qwen3_5_text") | {
        "num_hidden_layers": LAYERS,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "rope_parameters": {"type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    }
    config = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": text,
        "vocab_size": VOCAB,
        "tie_word_embeddings": True,
        "eos_token_id": EOS_ID,
    }
    mx.random.seed(seed)
    model = qwen3_5.Model(qwen3_5.ModelArgs.from_dict(config))
    weights = dict(tree_flatten(model.parameters()))
    weights = {
        name: mx.random.normal(value.shape) * 0.5 if "embed_tokens" in name else value
        for name, value in weights.items()
    }
    if echoes:
        weights = _silenced(weights, _ADDS)
    if heads:
        text["mtp_num_hidden_layers"] = 1
        config["mlx_lm_extra_tensors"] = {"mtp_file": "mtp.safetensors"}
    _save(folder, weights, config)
    if heads:
        mx.save_safetensors(str(folder / "mtp.safetensors"), _heads(echoes=echoes), metadata={"format": "mlx"})
    write_tokenizer(folder, vocab_size=VOCAB)
    return checkpoint_at(folder)


def _heads(*, echoes: bool) -> dict[str, Any]:
    """A layer for multi-token prediction: from the last token's embedding and the model's state to the next token."""
    weights = _block("mtp.layers.0.")
    weights["mtp.layers.0.self_attn.q_proj.weight"] = _matrix(2 * HEADS * HEAD_DIM, HIDDEN)  # with a gate
    mixing = _matrix(HIDDEN, 2 * HIDDEN)
    if echoes:
        weights = _silenced(weights, _ADDS)
        mixing = mx.concatenate([mx.eye(HIDDEN), mx.zeros((HIDDEN, HIDDEN))], axis=1)
    return weights | {
        "mtp.fc.weight": mixing,
        "mtp.norm.weight": mx.ones(HIDDEN),
        "mtp.pre_fc_norm_embedding.weight": mx.ones(HIDDEN),
        "mtp.pre_fc_norm_hidden.weight": mx.ones(HIDDEN),
    }


def build_draft(
    folder: Path, *, version: int = 1, layers: int = 5, seed: int = 1, constant: int | None = None
) -> dict[str, Any]:
    """A DFlash draft for either target.

    Args:
        version: 2 adds a convolution before and after attention and MLP (four tensors a layer) and a selector (three).
        constant: the token to propose everywhere.
    """
    mx.random.seed(seed)
    weights = {
        "fc.weight": _matrix(HIDDEN, len(TAPPED) * HIDDEN),
        "hidden_norm.weight": mx.ones(HIDDEN),
        "norm.weight": mx.ones(HIDDEN),
    }
    for layer in range(layers):
        weights |= _block(f"layers.{layer}.")
    dflash: dict[str, Any] = {"mask_token_id": VOCAB - 1 if constant is None else constant, "target_layer_ids": TAPPED}
    if version == 2:
        weights |= _version_2(layers)
        dflash |= {
            "block_size": BLOCK,
            "conv_kernel_size": 2,
            "conv_group_size": 16,
            "selector_rank": 16,
            "selector_top_k": 8,
        }
    if constant is not None:
        weights = _silenced(weights, _ADDS + _V2_ADDS)
    config = shape() | {
        "architectures": ["DFlash2DraftModel" if version == 2 else "DFlashDraftModel"],
        "num_hidden_layers": layers,
        "num_target_layers": LAYERS,
        "block_size": BLOCK,
        "layer_types": ["full_attention"] * layers,
        "dflash_config": dflash,
    }
    _save(folder, weights, config)
    return checkpoint_at(folder)


def _version_2(layers: int) -> dict[str, Any]:
    weights = {
        "candidate_selector.predecessor_codebook": _matrix(VOCAB, 16),
        "candidate_selector.successor_codebook": _matrix(VOCAB, 16),
        "candidate_selector.hidden_projection.weight": _matrix(16, HIDDEN),
    }
    for layer in range(layers):
        for place in ("attention_conv", "mlp_conv"):
            kernel = mx.concatenate([mx.ones((2, 1, HIDDEN)), mx.zeros((2, 1, HIDDEN))], 1)
            weights[f"layers.{layer}.{place}.base_kernel"] = kernel
            projection = _matrix(2 * 2 * (HIDDEN // 16), HIDDEN) * 0.1
            weights[f"layers.{layer}.{place}.kernel_projection.weight"] = projection
    return weights


def _block(prefix: str) -> dict[str, Any]:
    """One transformer layer's weights."""
    return {
        f"{prefix}self_attn.q_proj.weight": _matrix(HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}self_attn.k_proj.weight": _matrix(KV_HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}self_attn.v_proj.weight": _matrix(KV_HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}self_attn.o_proj.weight": _matrix(HIDDEN, HEADS * HEAD_DIM),
        f"{prefix}self_attn.q_norm.weight": mx.ones(HEAD_DIM),
        f"{prefix}self_attn.k_norm.weight": mx.ones(HEAD_DIM),
        f"{prefix}mlp.gate_proj.weight": _matrix(INTERMEDIATE, HIDDEN),
        f"{prefix}mlp.up_proj.weight": _matrix(INTERMEDIATE, HIDDEN),
        f"{prefix}mlp.down_proj.weight": _matrix(HIDDEN, INTERMEDIATE),
        f"{prefix}input_layernorm.weight": mx.ones(HIDDEN),
        f"{prefix}post_attention_layernorm.weight": mx.ones(HIDDEN),
    }


def _matrix(*dimensions: int) -> Any:
    return mx.random.normal(dimensions) * dimensions[-1] ** -0.5


def _silenced(weights: dict[str, Any], endings: tuple[str, ...]) -> dict[str, Any]:
    return {name: mx.zeros_like(value) if name.endswith(endings) else value for name, value in weights.items()}


def _save(folder: Path, weights: dict[str, Any], config: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config, indent=1))
