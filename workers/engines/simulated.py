"""No model and no waiting: a fake clock with a known true effect, a drift of the machine's speed, noise, and faults.

For tests, for demonstrations and for judging a design before it costs a night. Everything that it yields is marked
simulated. The text and the token ids depend on the prompt alone, and above temperature 0 on the seed as well, so that
all arms answer alike; speed is a property of the clock alone:

    rate = decode_tps * effect * drift(sequence / (sequence_total - 1)) * exp(noise * N(0, 1))

A depth cost (`depth_us`) adds to the time of a token before effect, drift and noise change it.

With `acceptance` set, tokens come in verify steps whose cost is that of the tokens they commit, so that the true effect
stays `effect`, whatever is accepted.

Faults are real: a crash is a signal, a hang hangs. `fault` names one, `fault_at` the turn at which it happens, counted
from 0 over the process's life (warm-ups included):

    crash         ends itself with SIGKILL            hang_load     never finishes loading
    segfault      ends itself with SIGSEGV            hang_first    never brings the first token
    exit0         exits with status 0, unanswered     hang_between  stops after the first tokens
    garbage       writes bytes that are no record     endless       brings tokens for ever
    flood         writes a line without an end        slow_stop     ignores Stop and SIGTERM
    oom           fails as MLX does without memory    error         raises in the middle of the answer
    load_error    fails to load                       zero_tokens   answers without one token
    print         prints a line to the log            print_flood   prints to the log for ever
"""

import math
import os
import random
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from workers.codec import MAX_LINE_BYTES
from workers.engines.base import Engine, LoadInfo, TurnRequest, TurnResult, parse_settings, sha256_of_ids
from workers.environment import installed
from workers.errors import EngineError, FaultKind
from workers.machine.drift import PROFILES, factor
from workers.protocol import Evidence
from workers.settings import EngineSettings, above, at_least, one_of, setting, within
from workers.stopwatch import Clock

LOAD_S = 1.0  # of the fake clock
TOKENS_A_MESSAGE = 4  # what a chat template adds to each
FAULTS = (
    "crash",
    "segfault",
    "exit0",
    "garbage",
    "flood",
    "oom",
    "load_error",
    "hang_load",
    "hang_first",
    "hang_between",
    "endless",
    "slow_stop",
    "error",
    "zero_tokens",
    "print",
    "print_flood",
)
_VOCABULARY = (
    "a node where the search ends has no child and its parent keeps one link fewer so we walk up from there until both "
    "sides agree"
).split()  # a word's place is its token id
_TOKEN_OF = {word: token for token, word in enumerate(_VOCABULARY)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(EngineSettings):
    """Settings of the simulated engine, on a fake clock."""

    effect: float = setting(1.0, "True speed relative to the others.", limit=above(0))
    decode_tps: float = setting(100.0, "Decode rate before effect, drift and noise.", limit=above(0))
    prefill_tps: float = setting(1000.0, "Prefill rate before effect, drift and noise.", limit=above(0))
    depth_us: float = setting(
        0.0, "Time that each 1,000 tokens of context add to a token, in microseconds.", limit=at_least(0)
    )
    noise: float = setting(0.01, "Standard deviation of the log rate.", limit=at_least(0))
    drift: str = setting("none", "Course of the machine's speed over the run.", limit=one_of(*PROFILES))
    drift_size: float = setting(-0.34, "Change of speed, as a share, that the drift reaches.", limit=above(-1))
    drift_seed: int = setting(0, "Seed of drifts that are drawn.")
    block_size: int = setting(4, "Verify width, with acceptance.", limit=at_least(1), unit="tokens")
    acceptance: float | None = setting(
        None, "Share of proposed tokens that are accepted. null: plain decoding.", limit=within(0, 1)
    )
    fallback: bool = setting(False, "Request speculation, decode plainly, and report nothing.")
    silent: bool = setting(False, "Give no sign whether it speculated.")
    prefix_cache: bool = setting(True, "Reuse the processed prefix between the turns of one conversation.")
    stop_after: int | None = setting(None, "Length of each answer. null: max_tokens.", limit=at_least(1), unit="tokens")
    fault: str | None = setting(
        None, "A worker's fault to play: see workers.engines.simulated. null: none.", limit=one_of(*FAULTS)
    )
    fault_at: int = setting(0, "The generation at which the fault happens, counted from 0.", limit=at_least(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """A prepared turn: what it will answer, and how fast."""

    prompt_ids: tuple[int, ...]
    cached_tokens: int
    answer_ids: tuple[int, ...]
    finish_reason: str
    steps: tuple[tuple[int, int, int], ...] | None
    prefill_ns: float
    token_ns: float


class Simulated(Engine):
    """See the module."""

    settings_kind = Settings
    takes_draft = True

    def __init__(
        self,
        *,
        settings: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        draft: Mapping[str, Any] | None,
        sampling: Mapping[str, Any],
    ) -> None:
        super().__init__(settings=settings, checkpoint=checkpoint, draft=draft, sampling=sampling)
        self._own = parse_settings(Settings, settings, engine="simulated")
        self._now_ns = 0.0
        self._turns_begun = 0
        self._cached: tuple[int, ...] = ()  # the conversation's token ids so far
        self._turn: _Turn | None = None

    @property
    def clock(self) -> Clock:
        return lambda: round(self._now_ns)

    @property
    def _speculates(self) -> bool:
        return self._own.acceptance is not None and not self._own.fallback

    def load(self) -> LoadInfo:
        if self._own.fault == "load_error":
            raise EngineError(FaultKind.load_failed, "simulated fault load_error", remedy="unset engine.fault")
        if self._own.fault == "hang_load":
            _hang()
        if self._own.fault == "slow_stop":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._now_ns += LOAD_S * 1e9
        requested = self._own.acceptance is not None
        return LoadInfo(
            simulated=True,
            drafted_per_step=self._own.block_size - 1 if requested else None,
            verify_width=self._own.block_size if requested else 1,
            engine_setting={"block_size": self._own.block_size} if requested else {},
            engine_version=installed("interlace"),
            notes=("simulated: a fake clock, nothing here was measured",),
        )

    def start_conversation(self) -> None:
        self._cached = ()

    def prepare(self, request: TurnRequest) -> None:
        prompt_ids = tuple(_prompt_ids(request.messages))
        cached = _common_prefix(self._cached, prompt_ids) if self._own.prefix_cache else 0
        cached_tokens = min(cached, len(prompt_ids) - 1)  # the last one must be processed to get an answer
        length = min(request.max_tokens, self._own.stop_after or request.max_tokens)
        rate = self._rate(request)
        self._turn = _Turn(
            prompt_ids=prompt_ids,
            cached_tokens=cached_tokens,
            answer_ids=tuple(_answer_ids(prompt_ids, self._answer_seed(request), length)),
            finish_reason="stop" if length == self._own.stop_after else "length",
            steps=self._steps(request, length) if self._speculates else None,
            prefill_ns=(len(prompt_ids) - cached_tokens) / (self._own.prefill_tps * rate) * 1e9,
            token_ns=self._token_ns(len(prompt_ids) + length / 2) / rate,
        )

    def stream(self) -> Iterator[None]:
        turn = self._prepared()
        fault = self._due_fault()
        if fault == "zero_tokens":
            self._turn = replace(turn, answer_ids=())
            return
        if fault == "hang_first":
            _hang()
        self._now_ns += turn.prefill_ns
        yield  # prefill's token
        if fault is not None:
            yield from _play(fault)
        for committed in self._committed(turn):
            self._now_ns += committed * turn.token_ns
            yield

    def finish(self) -> TurnResult:
        turn = self._prepared()
        self._cached = turn.prompt_ids + turn.answer_ids
        return TurnResult(
            token_ids=turn.answer_ids,
            text=" ".join(_VOCABULARY[token] for token in turn.answer_ids),
            finish_reason=turn.finish_reason,
            prompt_tokens=len(turn.prompt_ids),
            cached_tokens=turn.cached_tokens,
            prompt_sha256=sha256_of_ids(turn.prompt_ids),
            evidence=(self._evidence(turn),),
            tokens_per_stamp=(1, *self._committed(turn)) if turn.answer_ids else (),
            steps=turn.steps,
            engine_prefill_tps=(len(turn.prompt_ids) - turn.cached_tokens) / (turn.prefill_ns / 1e9),
        )

    def close(self) -> None:
        if self._own.fault == "slow_stop":
            _hang()

    def _prepared(self) -> _Turn:
        if self._turn is None:
            raise EngineError(FaultKind.generation_failed, "no turn was prepared")
        return self._turn

    def _token_ns(self, depth: float) -> float:
        """Before effect, drift and noise; every token of an answer takes as long as its middle one."""
        return 1e9 / self._own.decode_tps + self._own.depth_us * depth

    def _answer_seed(self, request: TurnRequest) -> int:
        """Greedy answers know no chance."""
        return request.seed if self.sampling.get("temperature") else 0

    def _rate(self, request: TurnRequest) -> float:
        fraction = request.sequence / max(1, request.sequence_total - 1)
        machine = factor(self._own.drift, fraction, size=self._own.drift_size, seed=self._own.drift_seed)
        noise = random.Random(f"noise/{request.seed}/{request.sequence}/{request.turn}").gauss(0.0, self._own.noise)
        return self._own.effect * machine * math.exp(noise)

    def _steps(self, request: TurnRequest, length: int) -> tuple[tuple[int, int, int], ...]:
        """Verify steps that commit all tokens but prefill's: each proposes up to the first one that is refused."""
        luck = random.Random(f"acceptance/{request.seed}/{request.sequence}/{request.turn}")
        steps, left = [], length - 1
        while left > 0:
            drafted = min(self._own.block_size - 1, left)
            accepted = 0
            while accepted < drafted and luck.random() < (self._own.acceptance or 0.0):
                accepted += 1
            committed = min(accepted + 1, left)
            steps.append((drafted, accepted, committed))
            left -= committed
        return tuple(steps)

    def _committed(self, turn: _Turn) -> Sequence[int]:
        """Return the number of tokens of each tick after prefill's."""
        if turn.steps is None:
            return [1] * (len(turn.answer_ids) - 1)
        return [committed for _, _, committed in turn.steps]

    def _evidence(self, turn: _Turn) -> Evidence:
        """The sign in each of its cases: plain, engaged, engaged and useless, not engaged, silent."""
        requested = self._own.acceptance is not None
        mechanism = "draft_model" if requested else "plain"
        sign = Evidence(
            mechanism=mechanism, requested=requested, engaged=False, useful=False, source="simulated", text=""
        )
        if requested and self._own.silent:
            return replace(sign, engaged=None, useful=None, text="simulated: no sign either way")
        if turn.steps is None:
            words = "speculation requested, fell back to plain decoding" if requested else "plain decoding"
            return replace(sign, text=f"simulated: {words}")
        drafted = sum(step[0] for step in turn.steps)
        accepted = sum(step[1] for step in turn.steps)
        return replace(
            sign,
            engaged=drafted > 0,
            useful=accepted > 0,
            text=f"simulated: {accepted} of {drafted} proposed tokens accepted in {len(turn.steps)} steps",
            drafted=drafted,
            accepted=accepted,
        )

    def _due_fault(self) -> str | None:
        due = self._own.fault if self._turns_begun == self._own.fault_at else None
        self._turns_begun += 1
        return due


def _prompt_ids(messages: Sequence[Mapping[str, str]]) -> Iterator[int]:
    """A header and a token a word for each message, then the answer's header, as a chat template does."""
    for message in messages:
        yield from _header(message["role"])
        for word in message["content"].split():
            yield _TOKEN_OF.get(word, 10_000 + zlib.crc32(word.encode()) % 1_000_000)
    yield from _header("assistant")


def _header(role: str) -> Iterator[int]:
    first = 1000 + zlib.crc32(role.encode()) % 1000
    return iter(range(first, first + TOKENS_A_MESSAGE))


def _answer_ids(prompt_ids: Sequence[int], seed: int, length: int) -> Iterator[int]:
    words = random.Random(f"answer/{seed}/{sha256_of_ids(prompt_ids)}")
    return (words.randrange(len(_VOCABULARY)) for _ in range(length))


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def _play(fault: str) -> Iterator[None]:
    """Play the fault after the first token."""
    actions: dict[str, Callable[[], Iterator[None]]] = {
        "crash": lambda: _end_by(signal.SIGKILL),
        "segfault": lambda: _end_by(signal.SIGSEGV),
        "exit0": lambda: os._exit(0),
        "garbage": lambda: _write_to_channel(b"\x00 is this json?\n"),
        "flood": lambda: _write_to_channel(b"x" * (MAX_LINE_BYTES + 1)),
        "oom": _run_out_of_memory,
        "error": _fail,
        "hang_between": _hang,
        "endless": _go_on_for_ever,
        "print": _print_a_line,
        "print_flood": _print_for_ever,
    }
    if fault in actions:
        yield from actions[fault]()


def _end_by(number: signal.Signals) -> NoReturn:
    os.kill(os.getpid(), number)
    _hang()


def _hang() -> NoReturn:
    while True:
        time.sleep(60)


def _go_on_for_ever() -> Iterator[None]:
    while True:
        time.sleep(0.001)
        yield


def _print_a_line() -> Iterator[None]:
    sys.stdout.write("simulated: a line for the log\n")
    sys.stdout.flush()
    return iter(())


def _print_for_ever() -> NoReturn:
    line = "simulated: this never ends\n" * 4096
    while True:
        sys.stdout.write(line)
        sys.stdout.flush()


def _write_to_channel(what: bytes) -> NoReturn:
    """Past the worker's own writer, as a stray print into the wrong descriptor would."""
    os.write(int(sys.argv[sys.argv.index("--record-fd") + 1]), what)
    _hang()


def _run_out_of_memory() -> NoReturn:
    raise RuntimeError(
        "[METAL] Command buffer execution failed: Insufficient Memory "
        "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
    )


def _fail() -> NoReturn:
    raise RuntimeError("simulated fault error")
