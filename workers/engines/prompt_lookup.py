"""Prompt lookup: what followed the last few tokens earlier in the conversation is proposed, no draft model needed.

mlx-dspark's `lookup_generate` does it. A step that finds no match decodes one token plainly: engaged means that the
loop looked, on this very turn; useful, that something it found was accepted.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workers.engines.base import LoadInfo, parse_settings
from workers.engines.dspark_steps import TickingTokenizer, VerifySteps, read_nothing, sampling_arguments
from workers.engines.mlx_cache import ConversationCache
from workers.engines.mlx_probes import Probed
from workers.engines.speculative import (
    Committed,
    LoopResult,
    SpeculativeEngine,
    SpeculativeTurn,
    counts,
    require_setting,
)
from workers.environment import installed
from workers.protocol import Evidence
from workers.stopwatch import Tick

PREFILL_STEP = 2048  # of a probe
SOURCES = ("lookup", "plain")  # of a step, in mlx-dspark's words


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """See conf.schema.PromptLookupConfig."""

    block_size: int = 7
    long_block_size: int | None = 33
    ngram_min: int = 3
    ngram_max: int = 4
    prefix_cache: bool = True


class PromptLookup(SpeculativeEngine):
    """See the module."""

    NAME = "prompt_lookup"
    NO_DRAFTING_PASS = "looking up takes no pass of a model"

    def _check_settings(self) -> None:
        own = parse_settings(Settings, self.settings, engine=self.NAME)
        longest = own.block_size if own.long_block_size is None else own.long_block_size
        require_setting(
            {
                f"block_size {own.block_size} proposes nothing; 2 or more": own.block_size < 2,
                f"long_block_size {longest} is below block_size {own.block_size}": longest < own.block_size,
                f"ngram_min {own.ngram_min}, ngram_max {own.ngram_max}": not 1 <= own.ngram_min <= own.ngram_max,
                f"mlx-dspark has no min_p, and sampling {self._sampling.name} sets it": self._sampling.min_p > 0,
            },
            engine=self.NAME,
        )
        self._own = own
        self._arguments: dict[str, Any] = {
            "max_draft_tokens": own.block_size - 1,
            "long_draft_tokens": longest - 1,
            "ngram_min": own.ngram_min,
            "ngram_max": own.ngram_max,
        }

    def _load_package(self) -> LoadInfo:
        from mlx_dspark.target import Target

        self._dspark_target = Target(self.target.model, self.target.tokenizer)
        self._caches = ConversationCache([self._dspark_target.make_cache])
        return LoadInfo(
            drafted_per_step=self._own.block_size - 1,
            verify_width=self._own.block_size,
            engine_setting=dict(self._arguments),
            engine_version=installed("mlx-dspark"),
        )

    def _forget(self) -> None:
        self._caches.reset()

    def _reuse(self, prompt_ids: Sequence[int]) -> int:
        if not self._own.prefix_cache:
            self._caches.reset()
        return self._caches.reuse(prompt_ids)

    def _remember(self, token_ids: Sequence[int]) -> None:
        self._caches.extend(token_ids)

    def _generate(self, turn: SpeculativeTurn, tick: Tick) -> LoopResult:
        from mlx_dspark import lookup_generate

        steps = VerifySteps()
        result = lookup_generate(
            self._dspark_target,
            TickingTokenizer(self.target.tokenizer, end_ids=self._end_ids, tick=tick),
            prompt_ids=turn.prompt_ids,
            cache=self._caches.layers,
            reuse_len=turn.cached_tokens,
            max_new_tokens=turn.request.max_tokens,
            on_round=steps,
            on_text=read_nothing,
            **self._arguments,
            **sampling_arguments(asdict(self._sampling)),
        )
        return LoopResult(token_ids=result.token_ids, verify_steps=steps.seen)

    def _probed(self) -> Probed:
        return Probed(
            model=self.target.model, make_cache=self._dspark_target.make_cache, prefill_step_size=PREFILL_STEP
        )

    def _evidence(self, answer: LoopResult, done: Committed) -> Sequence[Evidence]:
        steps, drafted, accepted = counts(done, *SOURCES)
        found, _, _ = counts(done, "lookup")
        words = f"{found} of {steps} verify steps found a match, {accepted} of {drafted} proposed tokens accepted"
        return [
            Evidence(
                mechanism="prompt_lookup",
                requested=True,
                engaged=steps > 0,
                useful=accepted > 0,
                source="mlx-dspark on_round",
                text=words if steps else "the answer ended with prefill's token: no verify step ran",
                drafted=drafted,
                accepted=accepted,
            )
        ]
