"""What the engines on mlx-lm share: loading, the prompt, the conversation's cache, and one generation.

Nothing of mlx is imported before `load`.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workers.checkpoints import CheckpointInfo, describe, inspect, resolve
from workers.dummies import DEFAULT_GROUP_SIZE, SHAPES, build_model, load_tokenizer
from workers.engines.base import Engine, LoadInfo, TurnRequest, TurnResult, parse_settings, sha256_of_ids
from workers.errors import EngineError, FaultKind
from workers.protocol import Evidence

# Of the chat template's arguments, those that are the engine's to set.
_RESERVED_OPTIONS = frozenset({"add_generation_prompt", "continue_final_message", "return_dict", "tokenize"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """See conf.schema.SamplingConfig."""

    name: str = ""
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    ignore_eos: bool = False
    chat_template: bool = True
    template_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to run. mlx-lm's classes, which its packages do not type."""

    model: Any
    tokenizer: Any
    info: CheckpointInfo
    notes: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Turn:
    """One turn under way."""

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

    def load(self) -> LoadInfo:
        import mlx.core as mx

        sampling = parse_settings(Sampling, self.sampling, engine="mlx-lm sampling")
        self._check_settings()
        self.target = load_model(self.checkpoint)
        self._sampler = make_sampler(sampling, self.target)
        self._encode = prompt_encoder(self.target.tokenizer, sampling)
        if sampling.ignore_eos:
            self.target.tokenizer.eos_token_ids = ()
        self._turn: Turn | None = None
        self._caches = ConversationCache(self._prepare_models())
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
        mx.clear_cache()  # every conversation finds the allocator alike

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
        self._turn = Turn(request=request, prompt_ids=prompt_ids, cached_tokens=cached_tokens, suffix=suffix)

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
            engine_decode_tps=turn.last.generation_tps if len(turn.token_ids) > 1 else None,
            peak_memory_bytes=peak_memory_bytes,
        )

    def settle(self) -> None:
        # mlx-lm launches one step more than it yields; it must not run on into the next turn.
        _synchronize()
        self._turn = None

    def close(self) -> None:
        _synchronize()

    def _prepared(self) -> Turn:
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
        """None: plain decoding."""

    @abstractmethod
    def _keeps_prefix(self) -> bool:
        """Whether the turns of one conversation share a cache."""

    @abstractmethod
    def _generate_arguments(self) -> dict[str, Any]:
        """What `stream_generate` takes beside the model, the prompt, the sampler and the cache."""

    @abstractmethod
    def _account(self, turn: Turn) -> tuple[Sequence[tuple[int, int, int]] | None, Sequence[Evidence]]:
        """The verify steps and the evidence of a finished turn."""

    def _notes(self) -> Sequence[str]:
        return self.target.notes


def _synchronize() -> None:
    import mlx.core as mx
    from mlx_lm.generate import generation_stream

    mx.synchronize(generation_stream)
    mx.synchronize()


class ConversationCache:
    """What one conversation has already processed: a prompt cache a model, and the tokens that are in it.

    After a generation the models may hold different lengths of the same tokens: a draft model has not processed its own
    last proposal, and no model a token that was sampled last in a verify step. The caches' own offsets tell.

    Args:
        makers: what makes an empty prompt cache of each model.
    """

    def __init__(self, makers: Sequence[Callable[[], list[Any]]]) -> None:
        self._makers = makers
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._parts = [make() for make in self._makers]
        self._tokens: list[int] = []

    @property
    def layers(self) -> list[Any]:
        """The prompt cache to hand to mlx-lm: of one model the list itself, since mlx-lm replaces entries of it when
        it quantises; of two models both lists in one."""
        if len(self._parts) == 1:
            return self._parts[0]
        return [layer for part in self._parts for layer in part]

    def reuse(self, prompt_ids: Sequence[int]) -> int:
        """Keep the longest common prefix with the prompt, trim the rest away, and return the prefix's length.

        At least one token of the prompt is left to process. A cache that cannot be trimmed is reused only if all of it
        is a prefix of the prompt; otherwise everything is forgotten.
        """
        from mlx_lm.models.cache import can_trim_prompt_cache, trim_prompt_cache

        common = _common_prefix_length(self._tokens, prompt_ids)
        held = [_held_tokens(part, len(self._tokens)) for part in self._parts]
        kept = min(common, len(prompt_ids) - 1, *held)
        for part, length in zip(self._parts, held, strict=True):
            if length > kept and not can_trim_prompt_cache(part):
                self.reset()
                return 0
            trim_prompt_cache(part, length - kept)
        self._tokens = list(prompt_ids[:kept])
        return kept

    def extend(self, token_ids: Sequence[int]) -> None:
        """The conversation is now these tokens, of which the caches hold as many as their offsets say."""
        self._tokens = list(token_ids)


def _held_tokens(part: Sequence[Any], fallback: int) -> int:
    """Tokens in a model's cache. Caches without an offset (recurrent layers) hold all that was yielded."""
    offsets = [int(layer.offset) for layer in part if isinstance(getattr(layer, "offset", None), int)]
    return min([*offsets, fallback])


def _common_prefix_length(left: Sequence[int], right: Sequence[int]) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length


def load_model(checkpoint: Mapping[str, Any]) -> LoadedModel:
    """Model and tokenizer of a checkpoint's configuration, after checking all that can be checked without loading.

    Raises:
        EngineError: missing, corrupt, or not what the configuration says.
    """
    checkpoint = resolve(checkpoint)
    if checkpoint["source"] == "dummy":
        return _load_dummy(checkpoint)
    folder = _obtain(checkpoint)
    info = inspect(folder)
    _require_bits(checkpoint, info)
    return _load_folder(folder, checkpoint, info)


def _obtain(checkpoint: Mapping[str, Any]) -> Path:
    """The checkpoint's folder, downloaded or converted now if need be."""
    if checkpoint["source"] == "hub":
        return _download(checkpoint)
    if checkpoint["source"] == "gguf":
        from workers import gguf

        return gguf.obtain(checkpoint)
    return Path(checkpoint["path"])


def _download(checkpoint: Mapping[str, Any]) -> Path:
    """A hub checkpoint's snapshot: the files that mlx-lm's own loader takes, never a folder that has the same name."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    from mlx_lm.utils import DEFAULT_ALLOW_PATTERNS

    hub_id, revision = checkpoint["hub_id"], checkpoint.get("revision")
    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=DEFAULT_ALLOW_PATTERNS))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise EngineError(
            FaultKind.checkpoint_missing,
            f"hub checkpoint {hub_id} at revision {revision or 'main'}: {reason}",
            remedy="check hub_id, revision and the network, or download it beforehand and use source=local",
        ) from error


def _require_bits(checkpoint: Mapping[str, Any], info: CheckpointInfo) -> None:
    """A folder that is not what its configuration says would be measured under a wrong name."""
    wanted = checkpoint.get("bits")
    if wanted is not None and info.bits is not None and wanted != info.bits:
        raise EngineError(
            FaultKind.unsupported_setting,
            f"checkpoint {checkpoint.get('name')}: bits={wanted}, but {info.path} has {info.bits}",
            remedy="correct checkpoint.bits, or convert the checkpoint to other bits",
        )


def _load_folder(folder: Path, checkpoint: Mapping[str, Any], info: CheckpointInfo) -> LoadedModel:
    import mlx.core as mx
    from mlx_lm import load

    try:
        loaded: Any = load(str(folder))
    except ValueError as error:  # an unknown architecture, weights that do not fit it, a broken tokenizer.json
        raise EngineError(
            FaultKind.load_failed,
            f"{folder}: {str(error).splitlines()[0]}",
            remedy="this mlx-lm may be too old for it, or the checkpoint is incomplete",
        ) from error
    model, tokenizer = loaded
    notes = []
    dtype = checkpoint.get("dtype") or info.dtype
    if dtype != info.dtype:
        model.set_dtype(getattr(mx, str(dtype)))
        mx.eval(model.parameters())
        notes.append(f"activations cast from {info.dtype} to {dtype}")
    if dtype in ("bfloat16", "float16") and mx.default_device().type == mx.DeviceType.cpu:
        notes.append(f"{dtype} on a CPU is about 10 times slower than float32; checkpoint.dtype=float32 casts")
    return LoadedModel(model=model, tokenizer=tokenizer, info=info, notes=tuple(notes))


def _load_dummy(checkpoint: Mapping[str, Any]) -> LoadedModel:
    import mlx.core as mx

    shape = SHAPES[checkpoint["shape"]]
    model, _ = build_model(
        shape,
        bits=checkpoint.get("bits"),
        group_size=checkpoint.get("group_size") or DEFAULT_GROUP_SIZE,
        dtype=checkpoint.get("dtype") or "float32",
        seed=0,
    )
    mx.eval(model.parameters())
    info = describe(checkpoint)
    if info is None:
        raise EngineError(FaultKind.load_failed, f"dummy {checkpoint['shape']} cannot be described")
    note = f"dummy: random weights in the shape of {checkpoint['shape']}; its text and acceptance mean nothing"
    return LoadedModel(model=model, tokenizer=load_tokenizer(shape), info=info, notes=(note,))


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
    """What turns messages into token ids: the chat template once, or without it the bare contents, line by line.

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
