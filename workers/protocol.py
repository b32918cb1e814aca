"""What the orchestrator and a worker process say to each other: one JSON object a line.

Standard library only, and independent of the rest of the project, so that the worker's side runs in any interpreter.
Requests travel on one file descriptor, records come back on another; stdout and stderr are the log.

    orchestrator                          worker
        Load            ---------------->
                        <----------------   Hello            (at once, before any model)
                        <----------------   Loaded
        Generate        ---------------->
                        <----------------   Heartbeat ...    (about once a second, with the tokens so far)
                        <----------------   Generation       (one a turn)
                        <----------------   Done
        Stop            ---------------->                    (the process ends)
        at any time     <----------------   Failure

Times: durations and stamps are monotonic; stamps are microseconds since the generation's start; `*_at` is UTC.
A value that could not be read is None, never 0.
"""

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, get_type_hints

PROTOCOL_VERSION = 1


class ProtocolError(ValueError):
    """A line that is no message of this protocol."""


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
    versions: dict[str, str | None]  # mlx, mlx_lm and others by distribution; None: not installed
    device: dict[str, Any] = field(default_factory=dict)  # mx.device_info() where the engine has one


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The process is alive; `tokens` grows while it generates."""

    kind: ClassVar[str] = "heartbeat"
    phase: str  # load | prefill | decode | idle
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Whether a mechanism ran on this very generation. None: the engine gives no sign either way."""

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
    stamps_us: list[int]  # one a token, after its evaluation, since the request's start
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """All turns of the request are answered."""

    kind: ClassVar[str] = "done"
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something failed. After a failure in loading the process ends; after one in generating it goes on."""

    kind: ClassVar[str] = "failure"
    request_id: str | None
    error_kind: str  # see workers.errors
    message: str  # what, where and the remedy, in one line
    detail: str = ""  # traceback


Message = Load | Generate | Stop | Hello | Loaded | Heartbeat | Generation | Done | Failure
_KINDS: dict[str, type[Message]] = {
    cls.kind: cls for cls in (Load, Generate, Stop, Hello, Loaded, Heartbeat, Generation, Done, Failure)
}


def encode(message: Message) -> bytes:
    """One line, newline included, ASCII only: no character of a model's text can break the framing."""
    body = {"kind": message.kind} | asdict(message)
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def decode(line: bytes) -> Message:
    """The message of one line.

    Raises:
        ProtocolError: not JSON, an unknown kind, or fields missing or unknown.
    """
    try:
        body = json.loads(line)
        cls = _KINDS[body.pop("kind")]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(f"no message: {line[:200]!r}") from error
    known = {f.name for f in fields(cls)}
    if unknown := set(body) - known:
        raise ProtocolError(f"{cls.kind}: unknown fields {sorted(unknown)}")
    if cls is Generation and isinstance(body.get("evidence"), list):
        body["evidence"] = [Evidence(**item) for item in body["evidence"]]
    try:
        return cls(**body)
    except TypeError as error:
        raise ProtocolError(f"{cls.kind}: {error}") from error


def field_types(cls: type[Message]) -> dict[str, Any]:
    """The annotated types of a message's fields, for tests that build random ones."""
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}
