"""Common parts of the engines on mlx-lm: sampler, prompt, and one generation over the conversation's cache.

Nothing of mlx is imported before `load`.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from workers.engines.base import Engine, LoadInfo, TurnRequest, TurnResult, parse_settings, sha256_of_ids
from workers.engines.mlx_cache import ConversationCache
from workers.engines.mlx_loading import LoadedModel, load_model
from workers.engines.mlx_probes import Probed, score, time_passes
from workers.errors import EngineError, FaultKind
from workers.protocol import Evidence, PassesTimed, Scored, ScoreTokens, TimePasses
from workers.sampling import Sampling
from workers.settings import one_of

KV_BITS = one_of(2, 3, 4, 5, 6, 8)  # that MLX quantises to
# Of the chat template's arguments, those that are the engine's to set.
_RESERVED_OPTIONS = frozenset({"add_generation_prompt", "continue_final_message", "return_dict", "tokenize"})


@dataclass(slots=True, kw_only=True)
class MlxTurn:
    """The current turn."""

    request: TurnRequest
    prompt_ids: list[int]
    cached_tokens: int
    suffix: Any  # mx.array of the token ids that are not cached
    token_ids: list[int] = field(default_factory=list)
    segments: list[str] = field(default_factory=list)
    from_draft: list[bool] = field(default_factory=list)
    last: Any = None  # mlx-lm's last GenerationResponse


class MlxEngine(Engine):
    """An engine over mlx-lm's `stream_generate`."""

    needs = ("mlx-lm", "mlx")

    def load(self) -> LoadInfo:
        import mlx.core as mx

        sampling = parse_settings(Sampling, self.sampling, engine="mlx-lm sampling")
        self._check_settings()
        self.target = load_model(self.checkpoint)
        self._sampler = make_sampler(sampling, self.target)
        self._encode = prompt_encoder(self.target.tokenizer, sampling)
        if sampling.ignore_eos:
            self.target.tokenizer.eos_token_ids = ()
        self._turn: MlxTurn | None = None
        self._makers = self._prepare_models()
        self._caches = ConversationCache(self._makers)
        drafted_per_step = self._drafted_per_step()
        return LoadInfo(
            active_memory_bytes=mx.get_active_memory(),
            peak_memory_bytes=mx.get_peak_memory(),
            drafted_per_step=drafted_per_step,
            verify_width=1 + (drafted_per_step or 0),
            engine_setting={} if drafted_per_step is None else {"num_draft_tokens": drafted_per_step},
            engine_version=version("mlx-lm"),
            device=mx.device_info(),
            notes=self._notes(),
        )

    def start_conversation(self) -> None:
        import mlx.core as mx

        self._turn = None
        self._caches.reset()
        mx.clear_cache()  # every conversation starts with the same allocator state

    def prepare(self, request: TurnRequest) -> None:
        import mlx.core as mx

        prompt_ids = self._encode(request.messages)
        if not self._keeps_prefix():
            self._caches.reset()
        cached_tokens = self._caches.reuse(prompt_ids)
        suffix = mx.array(prompt_ids[cached_tokens:])
        mx.eval(suffix)
        mx.random.seed(request.seed)
        mx.reset_peak_memory()
        self._turn = MlxTurn(request=request, prompt_ids=prompt_ids, cached_tokens=cached_tokens, suffix=suffix)

    def stream(self) -> Iterator[None]:
        from mlx_lm import stream_generate

        turn = self._prepared()
        add_token, add_segment, add_flag = turn.token_ids.append, turn.segments.append, turn.from_draft.append
        responses = stream_generate(
            self.target.model,
            self.target.tokenizer,
            turn.suffix,
            turn.request.max_tokens,
            sampler=self._sampler,
            prompt_cache=self._caches.layers,
            **self._generate_arguments(),
        )
        for response in responses:  # evaluated: mlx-lm reads the token's value before it yields
            add_token(response.token)
            add_segment(response.text)
            add_flag(response.from_draft)
            turn.last = response
            yield

    def finish(self) -> TurnResult:
        import mlx.core as mx

        turn = self._prepared()
        _synchronize()
        peak_memory_bytes = mx.get_peak_memory()
        self._caches.extend([*turn.prompt_ids, *turn.token_ids])
        steps, evidence = self._account(turn)
        return TurnResult(
            token_ids=turn.token_ids,
            text="".join(turn.segments),
            finish_reason=turn.last.finish_reason if turn.last else "stop",
            prompt_tokens=len(turn.prompt_ids),
            cached_tokens=turn.cached_tokens,
            prompt_sha256=sha256_of_ids(turn.prompt_ids),
            evidence=evidence,
            steps=steps,
            engine_prefill_tps=turn.last.prompt_tps if turn.last else None,
            # One token has no interval: mlx-lm then divides by next to nothing.
            engine_decode_tps=turn.last.generation_tps if turn.last and len(turn.token_ids) > 1 else None,
            peak_memory_bytes=peak_memory_bytes,
        )

    def settle(self) -> None:
        # mlx-lm launches one step more than it yields; it must not run on into the next turn.
        _synchronize()
        self._turn = None

    def score(self, request: ScoreTokens) -> Scored:
        with wired(self.target.model):
            return score(
                self._probed(),
                request,
                prompt_ids=self._encode(request.messages),
                decode=self.target.tokenizer.decode,
            )

    def time_passes(self, request: TimePasses) -> PassesTimed:
        draft = self._probed_draft() if request.draft else None
        with wired(self.target.model):
            return time_passes(self._probed(), draft, request, prompt_ids=self._encode(request.messages))

    def _probed(self) -> Probed:
        return Probed(
            model=self.target.model,
            make_cache=self._makers[0],
            prefill_step_size=self._generate_arguments()["prefill_step_size"],
        )

    def _probed_draft(self) -> Probed | None:
        """The model that proposes; None: nothing does."""
        return None

    def close(self) -> None:
        _synchronize()

    def _prepared(self) -> MlxTurn:
        if self._turn is None:
            raise EngineError(FaultKind.generation_failed, "no turn is prepared")
        return self._turn

    @abstractmethod
    def _check_settings(self) -> None:
        """Parse the engine's settings, before anything loads."""

    @abstractmethod
    def _prepare_models(self) -> "Sequence[Callable[[], list[Any]]]":
        """Load what is needed beside the target; what makes an empty cache of each model, the target's first."""

    @abstractmethod
    def _drafted_per_step(self) -> int | None:
        """Return None for plain decoding."""

    @abstractmethod
    def _keeps_prefix(self) -> bool:
        """True if the turns of one conversation share a cache."""

    @abstractmethod
    def _generate_arguments(self) -> dict[str, Any]:
        """Arguments of `stream_generate` beside the model, the prompt, the sampler and the cache."""

    @abstractmethod
    def _account(self, turn: MlxTurn) -> tuple[Sequence[tuple[int, int, int]] | None, Sequence[Evidence]]:
        """The verify steps and the evidence of a finished turn."""

    def _notes(self) -> Sequence[str]:
        return self.target.notes


def wired(model: Any) -> AbstractContextManager[None]:
    """Hold the model's weights in memory as mlx-lm does while it generates; without Metal do nothing."""
    from mlx_lm.generate import wired_limit

    held: AbstractContextManager[None] = wired_limit(model)
    return held


def _synchronize() -> None:
    import mlx.core as mx
    from mlx_lm.generate import generation_stream

    mx.synchronize(generation_stream)
    mx.synchronize()


def make_sampler(sampling: Sampling, target: LoadedModel) -> Any:
    """mlx-lm's sampler; at temperature 0 the most likely token.

    Raises:
        EngineError: a value outside what mlx-lm takes.
    """
    from mlx_lm.sample_utils import make_sampler as make

    vocab_size = target.info.vocab_size or len(target.tokenizer)
    problems = {
        f"temperature {sampling.temperature} is negative": sampling.temperature < 0,
        f"top_p {sampling.top_p} is not in (0, 1]": not 0 < sampling.top_p <= 1,
        f"min_p {sampling.min_p} is not in [0, 1]": not 0 <= sampling.min_p <= 1,
        f"top_k {sampling.top_k} is not in [0, {vocab_size})": not 0 <= sampling.top_k < vocab_size,
    }
    for problem, found in problems.items():
        if found:
            raise EngineError(FaultKind.unsupported_setting, problem, remedy=f"correct sampling {sampling.name}")
    return make(sampling.temperature, top_p=sampling.top_p, min_p=sampling.min_p, top_k=sampling.top_k)


def prompt_encoder(tokenizer: Any, sampling: Sampling) -> Callable[[Sequence[Mapping[str, str]]], list[int]]:
    """A function from messages to token ids: the chat template once, or without it the bare contents, line by line.

    Raises:
        EngineError: no chat template, or an option that is not the user's.
    """
    if not sampling.chat_template:
        return lambda messages: _not_empty(tokenizer.encode("\n".join(message["content"] for message in messages)))
    if not tokenizer.has_chat_template:
        raise EngineError(
            FaultKind.unsupported_setting,
            "the checkpoint's tokenizer has no chat template",
            remedy="set sampling.chat_template=false",
        )
    if reserved := sorted(_RESERVED_OPTIONS & set(sampling.template_options)):
        raise EngineError(
            FaultKind.unsupported_setting,
            f"sampling.template_options.{reserved[0]} is set by the engine",
            remedy="leave it out; other names go to the template",
        )
    options = dict(sampling.template_options)

    def encode(messages: Sequence[Mapping[str, str]]) -> list[int]:
        # In one go: a template rendered to text and encoded afterwards would get a second start token.
        return _not_empty(tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, **options))

    return encode


def _not_empty(token_ids: Sequence[int]) -> list[int]:
    if not token_ids:
        raise EngineError(FaultKind.generation_failed, "the prompt has no token", remedy="give it some text")
    return list(token_ids)
