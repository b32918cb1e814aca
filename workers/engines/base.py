"""The interface of every engine: the seam between the worker's loop and the software that runs a model.

The loop calls, in this order, all from one thread:

    engine = Engine(settings=..., checkpoint=..., draft=..., sampling=...)
    engine.load()
    for each conversation:
        engine.start_conversation()
        for each turn:
            engine.prepare(request)     not timed: the chat template, tokenising, which cache to use
            engine.answer(tick)         timed by the loop: each tick is stamped; by default `stream`, to its end
            engine.finish()             not timed: the text, the counts, the evidence
            engine.settle()             not timed, also after an error: nothing may run on into the next turn
    engine.score(request), engine.time_passes(request), engine.regenerate(request)
                                        after the last round, where the engine can
    engine.close()

Standard library only: engines import their packages in `load`, never at import time.
"""

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from workers.errors import EngineError, FaultKind, ProbeUnsupported
from workers.protocol import Evidence, PassesTimed, Regenerate, Regenerated, Scored, ScoreTokens, Served, TimePasses
from workers.settings import EngineSettings, problems
from workers.stopwatch import Clock, Tick

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadInfo:
    """An engine's facts once it is ready. The loop measures the loading time."""

    simulated: bool = False
    active_memory_bytes: int | None = None
    peak_memory_bytes: int | None = None
    # The width, normalised: mlx-lm's num_draft_tokens k, DFlash's block_size k + 1 and mtplx's speculative_depth k
    # all are drafted_per_step k and verify_width k + 1.
    drafted_per_step: int | None = None  # None: plain decoding
    verify_width: int | None = 1
    engine_setting: Mapping[str, Any] = field(default_factory=dict)  # the width in the engine's own word
    engine_version: str | None = None
    device: Mapping[str, Any] = field(default_factory=dict)  # the engine's package's description of the device
    notes: Sequence[str] = ()
    served: Served | None = None  # of an engine behind a server: the packages in that server's environment


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """One turn to answer."""

    messages: Sequence[Mapping[str, str]]  # the whole conversation so far, the assistant's earlier answers included
    turn: int  # 0-based
    max_tokens: int
    seed: int
    # For a simulated clock only: position in the run (0-based), its length, the kind of prompt.
    sequence: int = 0
    sequence_total: int = 1
    prompt_class: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The result of one turn. The times are the stopwatch's."""

    # A final end-of-sequence token included. Empty where a server does not send them: then completion_tokens counts.
    token_ids: Sequence[int]
    text: str  # without the end-of-sequence token's text
    finish_reason: str  # stop | length
    prompt_tokens: int  # the whole prompt's, cached ones included
    cached_tokens: int | None  # of these, taken from the prefix cache; None: unknown
    prompt_sha256: str  # `sha256_of_ids` of the whole prompt
    evidence: Sequence[Evidence]  # one per mechanism; the way of decoding always first
    # How many tokens each tick of `stream` brought; None: one each.
    tokens_per_stamp: Sequence[int] | None = None
    # For each verify step (drafted, accepted, committed): proposed tokens, proposed tokens that were committed, tokens
    # committed (the target's own included). The committed ones add up to all tokens, or to all but the first where
    # prefill yields that one on its own. accepted <= drafted; accepted <= committed <= accepted + 1: a last step may be
    # cut by max_tokens or by the end of the text. None: plain decoding.
    steps: Sequence[tuple[int, int, int]] | None = None
    engine_prefill_tps: float | None = None  # the engine's own figures, as it defines them
    engine_decode_tps: float | None = None
    peak_memory_bytes: int | None = None
    # A server's: see `workers.protocol.Generation`.
    completion_tokens: int | None = None
    stamps_of: str = "token"
    first_byte_us: int | None = None
    first_visible_us: int | None = None
    flags: Sequence[str] = ()

    @property
    def tokens(self) -> int:
        """The number of generated tokens."""
        return len(self.token_ids) if self.completion_tokens is None else self.completion_tokens


class Engine(ABC):
    """One arm's engine. Every error that it can foresee is an `EngineError` with its kind and the remedy.

    Args:
        settings: the engine's own settings; a name that it does not know is an `unsupported_setting`.
        checkpoint, draft, sampling: as in `workers.protocol.Load`.

    Attributes:
        settings_kind: the declaration of the engine's settings; see `workers.settings`.
        takes_draft: `engine.draft` names a checkpoint that drafts, which arrives as `draft`.
        needs: the distributions that run the model; an environment that an arm declares holds them.
        follows_environment: a declared environment applies to it: it runs the model in the worker, or launches a
            server with the worker's interpreter.
    """

    settings_kind: ClassVar[type[EngineSettings]] = EngineSettings
    takes_draft: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()
    follows_environment: ClassVar[bool] = True

    @classmethod
    def packages(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """The distributions that run the model with these settings, the engine's own package first."""
        return cls.needs

    def __init__(
        self,
        *,
        settings: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        draft: Mapping[str, Any] | None,
        sampling: Mapping[str, Any],
    ) -> None:
        self.settings = settings
        self.checkpoint = checkpoint
        self.draft = draft
        self.sampling = sampling

    @property
    def clock(self) -> Clock:
        """Return monotonic nanoseconds. Only an engine that measures nothing has its own clock."""
        return time.perf_counter_ns

    @abstractmethod
    def load(self) -> LoadInfo:
        """Get ready for the first request.

        Raises:
            EngineError: with the kind of what is missing, broken or does not fit together.
        """

    @abstractmethod
    def start_conversation(self) -> None:
        """Forget the conversation so far, its prefix cache included."""

    @abstractmethod
    def prepare(self, request: TurnRequest) -> None:
        """Everything before the first model call: messages to token ids, choice of the prefix cache."""

    @abstractmethod
    def stream(self) -> Iterator[None]:
        """Answer the prepared turn, prefill included; one tick each time that new tokens have been EVALUATED.

        The loop stamps each tick and does nothing else with it. The engine keeps the token ids and whatever else
        `finish` needs, and leaves decoding the text to `finish`.
        """

    def answer(self, tick: Tick) -> None:
        """Answer the prepared turn, and call `tick` each time that new tokens have been evaluated."""
        for _ in self.stream():
            tick()

    @abstractmethod
    def finish(self) -> TurnResult:
        """The turn that `answer` ended."""

    def settle(self) -> None:
        """Wait until the device is idle and drop what belongs to one turn only. Called after every turn."""
        return

    def score(self, request: ScoreTokens) -> Scored:
        """See `workers.protocol.ScoreTokens`. Ends the conversation.

        Raises:
            ProbeUnsupported: the engine cannot score tokens, with the reason.
        """
        raise ProbeUnsupported(f"{type(self).__name__} cannot state how likely its tokens are")

    def time_passes(self, request: TimePasses) -> PassesTimed:
        """See `workers.protocol.TimePasses`. Ends the conversation.

        Raises:
            ProbeUnsupported: the engine cannot run single passes, and why.
        """
        raise ProbeUnsupported(f"{type(self).__name__} cannot run single passes")

    def regenerate(self, request: Regenerate) -> Regenerated:
        """See `workers.protocol.Regenerate`. Ends the conversation.

        Raises:
            ProbeUnsupported: the engine cannot, and why.
        """
        raise ProbeUnsupported(f"{type(self).__name__} cannot state the tokens of an answer")

    def close(self) -> None:
        """Let go of everything; the process ends next."""
        return


class CallbackEngine(Engine):
    """An engine whose package calls back instead of yielding: its ticks are stamped inside the call."""

    @abstractmethod
    def answer(self, tick: Tick) -> None:
        """See `Engine.answer`."""

    def stream(self) -> Iterator[None]:
        """The same ticks once the answer is complete. Not for timing: the loop calls `answer`."""
        ticks: list[None] = []
        self.answer(lambda: ticks.append(None))
        return iter(ticks)


ENTRY_POINTS = "interlace.engines"  # the group in which another package names its engines

SettingsT = TypeVar("SettingsT", bound="DataclassInstance")


def offered() -> Iterator[EntryPoint]:
    """The engines that other installed packages bring, in the order of their names."""
    return iter(sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name))


def sha256_of_ids(token_ids: Iterable[int]) -> str:
    """A prompt's identity: SHA-256 of its token ids in decimal, comma between them."""
    return hashlib.sha256(",".join(map(str, token_ids)).encode("ascii")).hexdigest()


def parse_settings(kind: type[SettingsT], settings: Mapping[str, Any], *, engine: str) -> SettingsT:
    """The settings as the engine's own (data)class of them; missing ones take its defaults.

    Raises:
        EngineError: a name that the class has no field for, a missing one without a default, a value outside its
            declared limits, or two that conflict.
    """
    known = [f.name for f in fields(kind)]
    if unknown := sorted(set(settings) - set(known)):
        raise EngineError(
            FaultKind.unsupported_setting,
            f"engine {engine} does not know {', '.join(unknown)}",
            remedy=f"it has {', '.join(known)}",
        )
    try:
        found = next(problems(kind, settings), None)
        own = kind(**settings)
    except TypeError as error:
        raise EngineError(FaultKind.unsupported_setting, f"engine {engine}: {error}") from error
    if found is not None:
        raise EngineError(FaultKind.unsupported_setting, f"engine {engine}: {' '.join(found)}")
    return own
