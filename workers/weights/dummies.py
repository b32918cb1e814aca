"""Dummy checkpoints: random weights of a named shape, with a byte-level tokenizer that works.

A dummy has the cost of a real model of its shape and writes nonsense. Speed of plain decoding can be measured on
it; acceptance cannot, and nothing that depends on the text. Shapes are plain values; building one needs mlx.
"""

import contextlib
import io
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from workers.errors import EngineError, FaultKind

DEFAULT_GROUP_SIZE = 64
_SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_EOS_ID = 2
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The dimensions of a Llama-like model."""

    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    tied: bool = True  # the input embedding is the output head too
    rope_theta: float = 10000.0

    @property
    def matrix_parameters(self) -> int:
        """Weights that quantisation packs."""
        attention = self.hidden_size * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        feed_forward = 3 * self.hidden_size * self.intermediate_size
        return self.layers * (attention + feed_forward) + self.embedding_parameters * (1 if self.tied else 2)

    @property
    def embedding_parameters(self) -> int:
        return self.vocab_size * self.hidden_size

    @property
    def norm_parameters(self) -> int:
        """Weights that stay as they are."""
        return (2 * self.layers + 1) * self.hidden_size

    def config(self, *, dtype: str) -> dict[str, Any]:
        """The shape as a config.json."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.layers,
            "intermediate_size": self.intermediate_size,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "tie_word_embeddings": self.tied,
            "rms_norm_eps": 1e-5,
            "rope_theta": self.rope_theta,
            "max_position_embeddings": 131072,
            "eos_token_id": _EOS_ID,
            "torch_dtype": dtype,
        }


SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "tiny": Shape(
            layers=2, hidden_size=64, intermediate_size=128, heads=4, kv_heads=2, head_dim=32, vocab_size=320
        ),
        "smollm2-135m": Shape(
            layers=30,
            hidden_size=576,
            intermediate_size=1536,
            heads=9,
            kv_heads=3,
            head_dim=64,
            vocab_size=49152,
            rope_theta=100000.0,
        ),
        "llama-1b": Shape(
            layers=16,
            hidden_size=2048,
            intermediate_size=8192,
            heads=32,
            kv_heads=8,
            head_dim=64,
            vocab_size=128256,
            rope_theta=500000.0,
        ),
        "llama-8b": Shape(
            layers=32,
            hidden_size=4096,
            intermediate_size=14336,
            heads=32,
            kv_heads=8,
            head_dim=128,
            vocab_size=128256,
            tied=False,
            rope_theta=500000.0,
        ),
    }
)


def empty_llama(config: Mapping[str, Any]) -> Any:
    """mlx-lm's Llama for a config.json, its weights still to be set."""
    from mlx_lm.models import llama

    arguments: Any = llama.ModelArgs
    return llama.Model(arguments.from_dict(dict(config)))


def build_model(
    shape: Shape, *, bits: int | None, group_size: int, dtype: str, seed: int
) -> tuple[Any, dict[str, Any]]:
    """A model with random weights, not yet evaluated, and its configuration as mlx-lm saves it.

    Args:
        bits: of the quantised weights; None leaves them in `dtype`.
        dtype: as mlx names it.

    Raises:
        EngineError: a group size that does not divide the shape.
    """
    import mlx.core as mx

    config = shape.config(dtype=dtype)
    mx.random.seed(seed)
    model = empty_llama(config)
    model.set_dtype(getattr(mx, dtype))
    if bits is None:
        return model, config
    if shape.hidden_size % group_size or shape.intermediate_size % group_size:
        raise EngineError(
            FaultKind.unsupported_setting,
            f"group_size {group_size} does not divide {shape.hidden_size} and {shape.intermediate_size}",
            remedy="choose 32 or 64",
        )
    return quantize(model, config, bits=bits, group_size=group_size)


def quantize(model: Any, config: dict[str, Any], *, bits: int, group_size: int) -> tuple[Any, dict[str, Any]]:
    """mlx-lm's quantisation without what it prints.

    Raises:
        EngineError: bits or a group size that MLX does not have.
    """
    from mlx_lm.utils import quantize_model

    try:
        with contextlib.redirect_stdout(io.StringIO()):
            quantized, config = quantize_model(model, config, group_size=group_size, bits=bits)
    except ValueError as error:
        raise EngineError(
            FaultKind.unsupported_setting,
            f"bits={bits}, group_size={group_size}: {str(error).removeprefix('[quantize] ')}",
            remedy="choose 4 or 8 bits and groups of 32, 64 or 128",
        ) from error
    return quantized, config


def write_tokenizer(folder: Path, *, vocab_size: int) -> None:
    """A byte-level tokenizer of exactly this many tokens: bytes, chat markers, and fillers that no text encodes to."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = [*_SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens += [f"Ġ{index:x}" for index in range(len(tokens), vocab_size)]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIAL_TOKENS])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": _SPECIAL_TOKENS[_EOS_ID],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def save(
    shape: Shape, folder: Path, *, bits: int | None = None, dtype: str = "float32", seed: int = 0, group_size: int = 64
) -> Path:
    """Write a dummy as a folder in mlx-lm's layout."""
    from mlx_lm.utils import save_config, save_model

    folder.mkdir(parents=True)
    model, config = build_model(shape, bits=bits, group_size=group_size, dtype=dtype, seed=seed)
    save_model(folder, model)
    save_config(config, folder / "config.json")
    write_tokenizer(folder, vocab_size=shape.vocab_size)
    return folder


def load_tokenizer(shape: Shape) -> Any:
    """The dummy's tokenizer in mlx-lm's wrapper."""
    from mlx_lm import utils

    load: Any = utils.load_tokenizer
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), vocab_size=shape.vocab_size)
        return load(folder)
