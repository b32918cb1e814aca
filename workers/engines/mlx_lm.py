"""Plain decoding with mlx-lm, one token a pass: the usual control."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from workers.engines.base import parse_settings
from workers.engines.mlx_common import KV_BITS, MlxEngine, MlxTurn
from workers.engines.mlx_probes import Probed
from workers.errors import EngineError, FaultKind
from workers.protocol import Evidence
from workers.settings import EngineSettings, at_least, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(EngineSettings):
    """Settings of mlx-lm's plain loop."""

    prefill_step_size: int = setting(2048, "Most tokens of the prompt in one prefill pass.", limit=at_least(1))
    max_kv_size: int | None = setting(
        None, "Length of a cache that rotates: older tokens are forgotten. null: all are kept.", limit=at_least(8)
    )
    kv_bits: int | None = setting(None, "Quantise the cache to so many bits. null: it stays as it is.", limit=KV_BITS)
    kv_group_size: int = setting(64, "Values that share a scale in the quantised cache.", limit=at_least(1))
    quantized_kv_start: int = setting(
        5000, "Length of the conversation from which the cache is quantised.", limit=at_least(0), unit="tokens"
    )
    prefix_cache: bool = setting(True, "Reuse the processed prefix between the turns of one conversation.")

    def conflicts(self) -> Iterator[tuple[str, str]]:
        if self.max_kv_size is not None and self.kv_bits is not None:
            yield "kv_bits", "excludes max_kv_size: a cache that rotates is not quantised; set one of them to null"


class MlxLm(MlxEngine):
    """mlx-lm without a draft."""

    settings_kind = Settings

    def _check_settings(self) -> None:
        self._own = parse_settings(Settings, self.settings, engine="mlx_lm")

    def _prepare_models(self) -> Sequence[Callable[[], list[Any]]]:
        from mlx_lm.models.cache import make_prompt_cache

        model, own = self.target.model, self._own
        if own.max_kv_size is not None and hasattr(model, "make_cache"):
            raise EngineError(
                FaultKind.unsupported_setting,
                f"engine mlx_lm: max_kv_size has no effect on a {self.target.info.architecture}, which makes its own "
                "cache",
                remedy="leave engine.max_kv_size null",
            )
        if own.kv_bits is not None:
            self._require_quantizable()
        return [lambda: make_prompt_cache(model, own.max_kv_size)]

    def _require_quantizable(self) -> None:
        """Quantise a cache's row once: the bits and the group must fit the model's heads."""
        import mlx.core as mx

        try:
            row = mx.zeros((1, self.target.info.head_dim or self._own.kv_group_size))
            mx.eval(mx.quantize(row, group_size=self._own.kv_group_size, bits=self._own.kv_bits))
        except ValueError as error:
            raise EngineError(
                FaultKind.unsupported_setting,
                f"engine mlx_lm: kv_bits={self._own.kv_bits}, kv_group_size={self._own.kv_group_size}: "
                f"{str(error).removeprefix('[quantize] ')}",
                remedy="choose 4 or 8 bits, and a group that divides the head dimension",
            ) from error

    def _drafted_per_step(self) -> int | None:
        return None

    def _keeps_prefix(self) -> bool:
        return self._own.prefix_cache

    def _generate_arguments(self) -> dict[str, Any]:
        return {
            "prefill_step_size": self._own.prefill_step_size,
            "kv_bits": self._own.kv_bits,
            "kv_group_size": self._own.kv_group_size,
            "quantized_kv_start": self._own.quantized_kv_start,
        }

    def _probed(self) -> Probed:
        """Quantise the cache after each pass, as mlx-lm does."""
        if self._own.kv_bits is None:
            return super()._probed()
        from mlx_lm.generate import maybe_quantize_kv_cache

        quantise = partial(
            maybe_quantize_kv_cache,
            quantized_kv_start=self._own.quantized_kv_start,
            kv_group_size=self._own.kv_group_size,
            kv_bits=self._own.kv_bits,
        )
        return replace(super()._probed(), after_pass=quantise)

    def _account(self, turn: MlxTurn) -> tuple[None, Sequence[Evidence]]:
        drafted = sum(turn.from_draft)
        plain = Evidence(
            mechanism="plain",
            requested=False,
            engaged=drafted > 0,
            useful=drafted > 0,
            source="mlx_lm GenerationResponse.from_draft",
            text=f"no draft model loaded; from_draft true on {drafted} of {len(turn.token_ids)} tokens",
        )
        return None, [plain] if self._own.kv_bits is None else [plain, self._kv_evidence()]

    def _kv_evidence(self) -> Evidence:
        """Quantisation starts at a length: a short conversation never reaches it."""
        kinds = [type(layer).__name__ for layer in self._caches.layers]
        quantized = sum(kind == "QuantizedKVCache" for kind in kinds)
        return Evidence(
            mechanism="kv_quantization",
            requested=True,
            engaged=quantized > 0,
            useful=None,
            source="classes of the prompt cache's layers",
            text=f"{quantized} of {len(kinds)} cache layers quantised to {self._own.kv_bits} bits (starts at token "
            f"{self._own.quantized_kv_start})",
        )
