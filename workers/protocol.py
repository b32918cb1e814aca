"""Messages between the orchestrator and a worker process: one JSON object per line.

Standard library only, and independent of the rest of the project, so that the worker's side runs in any interpreter.
Requests travel on one file descriptor, records come back on another; stdout and stderr are the log.

    orchestrator                          worker
        Load            ---------------->
                        <----------------   Hello            (at once, before any model)
                        <----------------   Loaded
        Generate        ---------------->
                        <----------------   Heartbeat ...    (about once per second, with the tokens so far)
                        <----------------   Generation       (one per turn)
                        <----------------   Done
        ScoreTokens     ---------------->                    (after the last round: how sure was the model there?)
                        <----------------   Heartbeat ..., Scored or Unsupported
        TimePasses      ---------------->                    (after the last round: what does a pass take?)
                        <----------------   Heartbeat ..., PassesTimed or Unsupported
        Regenerate          ---------------->                    (after the last round: which tokens was that text?)
                        <----------------   Heartbeat ..., Regenerated or Unsupported
        Stop            ---------------->                    (the process ends)
        at any time     <----------------   Failure

Times: durations and stamps are monotonic; stamps are microseconds since the generation's start; `*_at` is UTC.
A value that could not be read is None, never 0.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

PROTOCOL_VERSION = 4  # 2: probes; 3: repeated requests; 4: their messages renamed


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load this arm. Sent once, first."""

    kind: ClassVar[str] = "load"
    target: str  # dotted path of the engine's class, below `workers.engines.`
    settings: dict[str, Any]  # the engine's own settings
    checkpoint: dict[str, Any]  # resolved: `path` is absolute, or hub_id and revision, or a dummy's shape
    draft: dict[str, Any] | None
    sampling: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """Run one conversation. The worker keeps the assistant's replies between its turns."""

    kind: ClassVar[str] = "generate"
    request_id: str
    turns: list[list[dict[str, str]]]  # for each turn, the messages added before the model answers
    max_tokens: int
    seed: int
    # Position in the run (0-based) and its length: a simulated clock makes its drift from them.
    sequence: int = 0
    sequence_total: int = 1
    prompt_class: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTokens:
    """Ask for the most likely tokens at one place of an answer, and how far passes of other widths change them.

    The worker processes the prompt as for an answer, then the answer's tokens one per pass up to the place; then all of
    that again for each width, with so many tokens of the answer a pass, as a verify step has them.
    """

    kind: ClassVar[str] = "score_tokens"
    request_id: str
    messages: list[dict[str, str]]  # the whole conversation before the answer
    prompt_sha256: str  # of the prompt that was answered: another one is refused
    token_ids: list[int]  # of the answer, up to the place, which is the next token's
    rivals: list[int]  # tokens to score whether or not they are among the most likely
    widths: list[int]
    most_likely: int  # how many tokens to return
    budget_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePasses:
    """Ask for the duration of one pass, by the number of tokens in it, all widths interleaved in random order."""

    kind: ClassVar[str] = "time_passes"
    request_id: str
    messages: list[dict[str, str]]
    token_ids: list[int]  # an answer to them: its tokens fill the context and the passes
    context_tokens: int  # tokens in the cache before each pass
    widths: list[int]  # of the target's passes; empty: it is not timed
    draft: bool  # time the drafting pass too
    repeats: int
    seed: int
    budget_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Regenerate:
    """Answer a turn once more, greedily, this time with the tokens: for a server that sends only text while timed."""

    kind: ClassVar[str] = "regenerate"
    request_id: str
    messages: list[dict[str, str]]  # the whole conversation before the answer
    prompt_sha256: str  # of the prompt that was answered: another one is refused
    max_tokens: int
    budget_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End the process after what is under way."""

    kind: ClassVar[str] = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The process lives. Versions are those of its own interpreter."""

    kind: ClassVar[str] = "hello"
    protocol: int
    pid: int
    python: str
    versions: dict[str, str | None]  # by distribution (mlx, mlx-lm, ...); None: not installed
    device: dict[str, Any] = field(default_factory=dict)  # empty: known only once an engine is loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The versions in a server's own environment, as far as they are known."""

    python: str | None = None  # None: unknown, or no Python
    versions: dict[str, str | None] = field(default_factory=dict)  # by distribution; None: not there; missing: unknown
    source: str = ""  # the source of the versions
    reason: str = ""  # why MLX's versions are unknown, or that there is no MLX


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The arm is ready for its first request."""

    kind: ClassVar[str] = "loaded"
    load_s: float
    active_memory_bytes: int | None
    peak_memory_bytes: int | None
    simulated: bool  # nothing here was measured
    drafted_per_step: int | None  # None: plain decoding
    verify_width: int | None  # tokens checked by one pass; 1 for plain decoding
    engine_setting: dict[str, Any] = field(default_factory=dict)  # the width in the engine's own word
    engine_version: str | None = None
    notes: list[str] = field(default_factory=list)
    device: dict[str, Any] = field(default_factory=dict)  # the engine's package's description of the device
    served: Served | None = None  # of an engine behind a server; None: this process's own versions made the figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The process is alive; `tokens` grows while it generates."""

    kind: ClassVar[str] = "heartbeat"
    phase: str  # load | prefill | decode
    tokens: int  # of the current turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence that a mechanism ran on this generation. None: the engine gives no sign either way."""

    mechanism: str  # plain | draft_model | ...
    requested: bool
    engaged: bool | None
    useful: bool | None  # some proposed token was accepted
    source: str  # where the sign was read
    text: str  # the sign itself, in words
    drafted: int | None = None
    accepted: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One turn, as measured by our own stopwatch."""

    kind: ClassVar[str] = "generation"
    request_id: str
    turn: int  # 0-based
    started_at: str  # UTC, ISO 8601
    prompt_tokens: int  # the whole prompt's, cached ones included
    cached_tokens: int | None  # of these, taken from the prefix cache
    token_ids: list[int]  # a final end-of-sequence token included: it took a pass like any other
    stamps_us: list[int]  # one per token, after its evaluation, since the request's start
    text: str
    finish_reason: str  # stop | length
    # Speculation: for each verify step [drafted, accepted, committed]; None for plain decoding.
    steps: list[list[int]] | None
    evidence: list[Evidence]
    prompt_sha256: str  # of the prompt's token ids
    engine_prefill_tps: float | None  # the engine's own figures, as it defines them
    engine_decode_tps: float | None
    peak_memory_bytes: int | None
    cpu_s: float | None = None  # this process's CPU time over the generation
    # For a server, which sends no token ids: how many there were. None: as many as token_ids.
    completion_tokens: int | None = None
    stamps_of: str = "token"  # token: each has its own; chunk: tokens that one chunk brought share its stamp
    # A server's further stamps, since the request's start. None: not a server, or it never came.
    first_byte_us: int | None = None
    first_visible_us: int | None = None  # the first token that a reader sees: no role, no thinking
    flags: list[str] = field(default_factory=list)  # codes of what did not add up, as the engine saw it

    @property
    def tokens(self) -> int:
        """The number of generated tokens."""
        return len(self.token_ids) if self.completion_tokens is None else self.completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """All turns of the request are answered."""

    kind: ClassVar[str] = "done"
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScore:
    """One token at the place."""

    token_id: int
    text: str
    logprob: float  # natural logarithm of its probability, in nats


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthChange:
    """The change of the most likely tokens' log-probabilities by passes of a width, in nats."""

    width: int
    at_place: float  # the largest change at the place itself
    largest: float  # and at any of the compared places


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The answer to ScoreTokens."""

    kind: ClassVar[str] = "scored"
    request_id: str
    top: list[TokenScore]  # the most likely first, as one token a pass gives them
    rivals: list[TokenScore]  # in the request's order
    context_text: str  # the text just before the place
    changes: list[WidthChange]
    compared_places: int  # the place itself and those before it


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTiming:
    """One model's pass of one width: median and quartiles."""

    role: str  # target | draft
    width: int  # tokens in the pass
    median_s: float
    low_s: float
    high_s: float
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassesTimed:
    """The answer to TimePasses."""

    kind: ClassVar[str] = "passes_timed"
    request_id: str
    timings: list[PassTiming]
    context_tokens: int
    notes: list[str] = field(default_factory=list)  # the requested passes that could not be timed, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class Regenerated:
    """The answer to Regenerate. One log-probability per token, in nats: of that token, at its place."""

    kind: ClassVar[str] = "regenerated"
    request_id: str
    text: str
    token_ids: list[int]
    logprobs: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """The engine cannot be probed so. It goes on."""

    kind: ClassVar[str] = "unsupported"
    request_id: str
    reason: str  # in one line


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something failed. After a failure in loading the process ends; after one in generating it goes on."""

    kind: ClassVar[str] = "failure"
    request_id: str | None
    error_kind: str  # see workers.errors
    message: str  # what, where and the remedy, in one line
    detail: str = ""  # traceback


Probe = ScoreTokens | TimePasses | Regenerate
ProbeAnswer = Scored | PassesTimed | Regenerated | Unsupported  # the possible answers to a probe
Request = Load | Generate | Probe | Stop
Message = Request | Hello | Loaded | Heartbeat | Generation | Done | ProbeAnswer | Failure
KINDS: dict[str, type[Message]] = {cls.kind: cls for cls in get_args(Message)}
