"""Prompt lookup: what followed the last few tokens earlier in the conversation is proposed, no draft model needed.

mlx-dspark's `lookup_generate` does it. A step that finds no match decodes one token plainly: engaged means that the
loop looked, on this very turn; useful, that something it found was accepted.
"""

from collections.abc import Iterator, Sequence
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
from workers.settings import EngineSettings, at_least, setting
from workers.stopwatch import Tick

PREFILL_STEP = 2048  # of a probe
SOURCES = ("lookup", "plain")  # of a step, in mlx-dspark's words


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(EngineSettings):
    """Settings of mlx-dspark's prompt lookup."""

    block_size: int = setting(
        7,
        "Verify width of a match: of a block, one token is the target's own.",
        limit=at_least(2),
        unit="tokens",
        word="max_draft_tokens + 1",
    )
    long_block_size: int | None = setting(
        33,
        "Verify width if the match reaches far back, as in copied text. null: block_size there too.",
        limit=at_least(2),
        unit="tokens",
        word="long_draft_tokens + 1",
    )
    ngram_min: int = setting(3, "Fewest tokens that must match.", limit=at_least(1), unit="tokens")
    ngram_max: int = setting(4, "Most tokens that are matched.", limit=at_least(1), unit="tokens")
    prefix_cache: bool = setting(True, "Reuse the processed prefix between the turns of one conversation.")

    def conflicts(self) -> Iterator[tuple[str, str]]:
        if self.long_block_size is not None and self.long_block_size < self.block_size:
            yield "long_block_size", f"is {self.long_block_size}: give at least block_size, {self.block_size}, or null"
        if self.ngram_max < self.ngram_min:
            yield "ngram_max", f"is {self.ngram_max}: give at least ngram_min, {self.ngram_min}"


class PromptLookup(SpeculativeEngine):
    """See the module."""

    settings_kind = Settings
    needs = ("mlx-dspark", "mlx-lm", "mlx")
    NAME = "prompt_lookup"
    NO_DRAFTING_PASS = "looking up takes no pass of a model"

    def _check_settings(self) -> None:
        own = parse_settings(Settings, self.settings, engine=self.NAME)
        longest = own.block_size if own.long_block_size is None else own.long_block_size
        require_setting(
            {
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
