"""Measures the cost of checking a block without any draft: greedy decoding in passes of `block_size` tokens.

The first token of a pass is the true next one, the others are fillers that are never accepted: the pass commits one
token, and the fillers are taken out of the cache again. So the answer is plain decoding's, up to rounding, and decode
rates of two widths relate as the times of their passes, with everything that a run guards against guarded against.

mlx-lm's loop has no such passes, so the loop is this module's. It forces each pass before the next one is made, for
every width alike: compare its widths with each other, not with another engine's arm.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workers.engines.base import LoadInfo, TurnResult, parse_settings
from workers.engines.mlx_common import MlxEngine, MlxTurn, wired
from workers.engines.speculative import text_of
from workers.errors import EngineError, FaultKind
from workers.protocol import Evidence
from workers.settings import EngineSettings, at_least, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(EngineSettings):
    """Settings of plain decoding in wide passes."""

    block_size: int = setting(
        4, "Tokens per pass: the true one, and fillers that are never accepted.", limit=at_least(1), unit="tokens"
    )
    prefill_step_size: int = setting(2048, "Most tokens of the prompt in one prefill pass.", limit=at_least(1))
    prefix_cache: bool = setting(True, "Reuse the processed prefix between the turns of one conversation.")


class WatchedWidths:
    """The target as the loop calls it, and how many tokens each of its passes held."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.widths: list[int] = []

    def __call__(self, tokens: Any, cache: Any) -> Any:
        self.widths.append(int(tokens.shape[1]))
        return self._model(tokens, cache=cache)


class VerifyCost(MlxEngine):
    """See the module."""

    settings_kind = Settings

    def load(self) -> LoadInfo:
        info = super().load()
        width = self._own.block_size
        # Nothing is drafted; the verify width is what the arm is about, at width 1 too.
        return replace(info, drafted_per_step=0, verify_width=width, engine_setting={"block_size": width})

    def stream(self) -> Iterator[None]:
        with wired(self.target.model):
            yield from self._decode(self._prepared())

    def finish(self) -> TurnResult:
        turn, end_ids = self._prepared(), frozenset(self.target.tokenizer.eos_token_ids)
        ended = bool(turn.token_ids) and turn.token_ids[-1] in end_ids
        turn.segments = [text_of(self.target.tokenizer, turn.token_ids, end_ids)]
        return replace(super().finish(), finish_reason="stop" if ended else "length")

    def _check_settings(self) -> None:
        own = parse_settings(Settings, self.settings, engine="verify_cost")
        if self.sampling.get("temperature", 0.0) > 0:
            raise EngineError(
                FaultKind.unsupported_setting,
                "engine verify_cost: it decodes greedily only",
                remedy="set sampling.temperature=0",
            )
        self._own = own

    def _prepare_models(self) -> Sequence[Callable[[], list[Any]]]:
        from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache

        model = self.target.model
        if not can_trim_prompt_cache(make_prompt_cache(model)):
            raise EngineError(
                FaultKind.cache_not_trimmable,
                "engine verify_cost: the model's cache cannot take fillers back",
                remedy="choose a model with full attention",
            )
        self._watched = WatchedWidths(model)
        return [lambda: make_prompt_cache(model)]

    def _drafted_per_step(self) -> int | None:
        return None

    def _keeps_prefix(self) -> bool:
        return self._own.prefix_cache

    def _generate_arguments(self) -> dict[str, Any]:
        return {"prefill_step_size": self._own.prefill_step_size}

    def _decode(self, turn: MlxTurn) -> Iterator[None]:
        """Prefill all but the prompt's last token in chunks, then run one pass per token."""
        import mlx.core as mx
        from mlx_lm.models.cache import trim_prompt_cache

        cache, width = self._caches.layers, self._own.block_size
        end_ids = frozenset(self.target.tokenizer.eos_token_ids)
        self._watched.widths = []
        start, last, step = 0, int(turn.suffix.size) - 1, self._own.prefill_step_size
        while start < last:
            self.target.model(turn.suffix[None, start : min(start + step, last)], cache=cache)
            mx.eval([layer.state for layer in cache])
            start += step
        text = list(turn.prompt_ids)
        for _ in range(turn.request.max_tokens):
            logits = self._watched(mx.array([[text[-1], *fillers(text, width - 1)]]), cache)
            # As a verify step: a token is chosen at every place.
            chosen = mx.argmax(logits[0], axis=-1)
            mx.eval(chosen)
            trim_prompt_cache(cache, width - 1)
            token: Any = chosen[0].item()
            text.append(token)
            turn.token_ids.append(token)
            yield
            if token in end_ids:
                return

    def _account(self, turn: MlxTurn) -> tuple[None, Sequence[Evidence]]:
        return None, [evidence_of(self._watched.widths, wanted=self._own.block_size, tokens=len(turn.token_ids))]


def fillers(text: Sequence[int], count: int) -> list[int]:
    """Tokens of the text itself, the last ones first: a mixture of experts reads other experts for other tokens, as it
    would for a draft's proposals."""
    return [text[-1 - place % len(text)] for place in range(1, count + 1)]


def evidence_of(widths: Sequence[int], *, wanted: int, tokens: int) -> Evidence:
    """Report whether every token took a pass of the requested width. A width of 1 requests nothing."""
    fitting = sum(width == wanted for width in widths)
    whole = fitting == len(widths) == tokens
    return Evidence(
        mechanism="wide_pass",
        requested=wanted > 1,
        engaged=wanted > 1 and whole,
        useful=None if wanted > 1 else False,  # nothing is proposed that could be accepted
        source="shapes of the target's calls",
        text=f"{fitting} of {len(widths)} passes held {wanted} tokens, for {tokens} tokens of the answer",
    )
