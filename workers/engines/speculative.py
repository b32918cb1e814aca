"""The common part of engines on other packages' speculative loops: one turn, its verify steps in one form, its
evidence counted.

These packages commit the first token with prefill and then tokens a verify step; each step ticks once. They may overrun
max_tokens within a step, and commit past an end token: what counts is what a reader would get.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workers.engines.base import CallbackEngine, LoadInfo, TurnRequest, TurnResult, parse_settings, sha256_of_ids
from workers.engines.mlx_common import prompt_encoder, wired
from workers.engines.mlx_loading import LoadedModel, load_model
from workers.engines.mlx_probes import BlockDraft, Probed, score, time_passes
from workers.errors import EngineError, FaultKind, ProbeUnsupported
from workers.protocol import Evidence, PassesTimed, Scored, ScoreTokens, TimePasses
from workers.sampling import Sampling
from workers.stopwatch import Tick

Step = tuple[int, int, int]  # drafted, accepted, committed
DRAFT, COPY = "draft", "copy"  # the source of a step's proposals: the mechanism, or a copy of the context


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyStep:
    """One verify step as the package reports it."""

    drafted: int
    accepted: int  # proposals, the target's own token excluded
    source: str = DRAFT


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResult:
    """The result of a package's loop."""

    token_ids: Sequence[int]
    verify_steps: Sequence[VerifyStep]
    prefill_tps: float | None = None  # the package's own figures
    decode_tps: float | None = None
    tokens_per_tick: Sequence[int] | None = None  # None: prefill's token, then those of each step
    fallback: str | None = None  # why it gave speculation up, in its own words
    cached_tokens: int | None = None  # of the prompt, from a cache of the package's own; None: it has none


@dataclass(slots=True, kw_only=True)
class SpeculativeTurn:
    """The current turn."""

    request: TurnRequest
    prompt_ids: list[int]
    cached_tokens: int
    ticks: int = 0
    answer: LoopResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """An answer's tokens as far as they count, and the steps that committed them."""

    token_ids: list[int]
    finish_reason: str
    steps: list[Step]
    sources: list[str] = field(default_factory=list)  # of each step


class SpeculativeEngine(CallbackEngine):
    """An engine over a package's own loop."""

    NAME: str  # as in configurations
    NO_DRAFTING_PASS = "the package has no drafting pass that could be run alone"

    def load(self) -> LoadInfo:
        import mlx.core as mx

        self._sampling = parse_settings(Sampling, self.sampling, engine=self.NAME)
        self._check_settings()
        self.target = self._load_target()
        self._encode = prompt_encoder(self.target.tokenizer, self._sampling)
        self._turn: SpeculativeTurn | None = None
        self._end_ids = frozenset() if self._sampling.ignore_eos else frozenset(self.target.tokenizer.eos_token_ids)
        info = self._load_package()
        return LoadInfo(
            active_memory_bytes=mx.get_active_memory(),
            peak_memory_bytes=mx.get_peak_memory(),
            drafted_per_step=info.drafted_per_step,
            verify_width=info.verify_width,
            engine_setting=info.engine_setting,
            engine_version=info.engine_version,
            device=mx.device_info(),
            notes=(*self.target.notes, *info.notes),
        )

    def start_conversation(self) -> None:
        import mlx.core as mx

        self._turn = None
        self._forget()
        mx.clear_cache()  # every conversation finds the allocator alike

    def prepare(self, request: TurnRequest) -> None:
        import mlx.core as mx

        prompt_ids = self._encode(request.messages)
        cached_tokens = self._reuse(prompt_ids)
        mx.random.seed(request.seed)
        mx.reset_peak_memory()
        self._turn = SpeculativeTurn(request=request, prompt_ids=prompt_ids, cached_tokens=cached_tokens)

    def answer(self, tick: Tick) -> None:
        turn = self._prepared()

        def counted() -> None:
            turn.ticks += 1
            tick()

        turn.answer = self._generate(turn, counted)

    def finish(self) -> TurnResult:
        import mlx.core as mx

        turn = self._prepared()
        mx.synchronize()
        if turn.answer is None:
            raise EngineError(FaultKind.generation_failed, f"engine {self.NAME}: the turn was not answered")
        peak_memory_bytes = mx.get_peak_memory()
        done = committed(turn.answer, max_tokens=turn.request.max_tokens, end_ids=self._end_ids)
        self._remember([*turn.prompt_ids, *done.token_ids])
        return TurnResult(
            token_ids=done.token_ids,
            text=text_of(self.target.tokenizer, done.token_ids, self._end_ids),
            finish_reason=done.finish_reason,
            prompt_tokens=len(turn.prompt_ids),
            cached_tokens=turn.cached_tokens if turn.answer.cached_tokens is None else turn.answer.cached_tokens,
            prompt_sha256=sha256_of_ids(turn.prompt_ids),
            evidence=self._evidence(turn.answer, done),
            tokens_per_stamp=tokens_per_stamp(turn.answer, done, ticks=turn.ticks, engine=self.NAME),
            steps=done.steps,
            engine_prefill_tps=turn.answer.prefill_tps,
            engine_decode_tps=turn.answer.decode_tps if len(done.token_ids) > 1 else None,
            peak_memory_bytes=peak_memory_bytes,
        )

    def settle(self) -> None:
        import mlx.core as mx

        mx.synchronize()
        self._turn = None

    def score(self, request: ScoreTokens) -> Scored:
        return score(
            self._probed(), request, prompt_ids=self._encode(request.messages), decode=self.target.tokenizer.decode
        )

    def time_passes(self, request: TimePasses) -> PassesTimed:
        draft = self._block_draft() if request.draft else None
        with wired(self.target.model):
            timed = time_passes(self._probed(), draft, request, prompt_ids=self._encode(request.messages))
        return replace(timed, notes=[*timed.notes, self.NO_DRAFTING_PASS]) if request.draft and draft is None else timed

    def _block_draft(self) -> BlockDraft | None:
        """Return the pass that proposes a block, or None if there is none that could be run alone."""
        return None

    def _probed(self) -> Probed:
        """The target alone, as mlx-lm runs it.

        Raises:
            ProbeUnsupported: the package changes it.
        """
        raise ProbeUnsupported(f"{self.NAME}: the package runs the target in its own way")

    def _prepared(self) -> SpeculativeTurn:
        if self._turn is None:
            raise EngineError(FaultKind.generation_failed, f"engine {self.NAME}: no turn is prepared")
        return self._turn

    def _load_target(self) -> LoadedModel:
        return load_model(self.checkpoint)

    @abstractmethod
    def _check_settings(self) -> None:
        """Parse the engine's settings, before anything loads."""

    @abstractmethod
    def _load_package(self) -> LoadInfo:
        """Load what is needed beside the target: widths, the package's version, notes."""

    @abstractmethod
    def _generate(self, turn: SpeculativeTurn, tick: Tick) -> LoopResult:
        """Run the package's loop: a tick when prefill's token is evaluated, and one a verify step."""

    @abstractmethod
    def _evidence(self, answer: LoopResult, done: Committed) -> Sequence[Evidence]:
        """The signs of one turn, the way of decoding first."""

    def _reuse(self, prompt_ids: Sequence[int]) -> int:
        """The number of the prompt's tokens in the conversation's cache. By default there is no such cache."""
        return 0

    def _remember(self, token_ids: Sequence[int]) -> None:
        """The conversation is now these tokens."""
        return

    def _forget(self) -> None:
        """A new conversation."""
        return


def committed(answer: LoopResult, *, max_tokens: int, end_ids: frozenset[int]) -> Committed:
    """The part of an answer that counts: up to max_tokens and to the first end token, each step cut accordingly.

    Of a proposal that was accepted but came after the cut, nothing is left: it counts as drafted only. The first token
    is prefill's.

    Raises:
        EngineError: the rounds do not account for the tokens.
    """
    token_ids = list(answer.token_ids[:max_tokens])
    ends = next((place for place, token in enumerate(token_ids) if token in end_ids), None)
    if ends is not None:
        token_ids = token_ids[: ends + 1]
    left = len(token_ids) - 1
    steps: list[Step] = []
    sources = []
    for each in answer.verify_steps:
        count = min(each.accepted + 1, left)
        if count < 1:
            break
        steps.append((each.drafted, min(each.accepted, count), count))
        sources.append(each.source)
        left -= count
    if left > 0:
        raise EngineError(
            FaultKind.generation_failed,
            f"the verify steps account for {len(token_ids) - left} of {len(token_ids)} tokens",
            remedy="the package may report them in another way than the version that was tested",
        )
    return Committed(
        token_ids=token_ids, finish_reason="length" if ends is None else "stop", steps=steps, sources=sources
    )


def tokens_per_stamp(answer: LoopResult, done: Committed, *, ticks: int, engine: str) -> list[int]:
    """The number of counting tokens that each tick brought.

    Raises:
        EngineError: the number of ticks is not that of the answer's steps: the stamps would belong to other tokens.
    """
    brought = answer.tokens_per_tick
    if brought is None:
        brought = [1, *(step[2] for step in done.steps)] if done.token_ids else []
    if ticks != len(brought):
        raise EngineError(FaultKind.generation_failed, f"engine {engine}: {ticks} stamps, {len(brought)} expected")
    left = len(done.token_ids)
    kept = []
    for count in brought:
        kept.append(min(count, left))
        left -= kept[-1]
    return kept


def text_of(tokenizer: Any, token_ids: Sequence[int], end_ids: frozenset[int]) -> str:
    """The text as mlx-lm streams it: a final end token has none."""
    detokenizer = tokenizer.detokenizer
    for token in token_ids:
        if token not in end_ids:
            detokenizer.add_token(token)
    detokenizer.finalize()
    return str(detokenizer.text)


def counts(done: Committed, *sources: str) -> tuple[int, int, int]:
    """Steps, proposed and accepted tokens of the steps that these sources proposed."""
    chosen = [step for step, source in zip(done.steps, done.sources, strict=True) if source in sources]
    return len(chosen), sum(step[0] for step in chosen), sum(step[1] for step in chosen)


def copy_evidence(done: Committed, *, source: str) -> Evidence:
    """Evidence on tokens that a package copied from the context instead of drafting: copies are not accepted drafts.

    It was allowed, not asked for: whether it ran decides nothing.
    """
    steps, drafted, accepted = counts(done, COPY)
    return Evidence(
        mechanism="copy_drafts",
        requested=False,
        engaged=None if steps else False,
        useful=accepted > 0,
        source=source,
        text=f"{accepted} of {drafted} copied tokens accepted in {steps} verify steps",
        drafted=drafted,
        accepted=accepted,
    )


def require_setting(problems: Mapping[str, bool], *, engine: str, remedy: str = "") -> None:
    """The first problem that was found, as an error.

    Raises:
        EngineError: unsupported_setting.
    """
    for problem, found in problems.items():
        if found:
            raise EngineError(FaultKind.unsupported_setting, f"engine {engine}: {problem}", remedy=remedy)
