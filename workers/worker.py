"""The worker's side of `workers.protocol`: load one engine, answer requests, report failures, end on request.

This is the process boundary: whatever an engine raises becomes a Failure record, with its kind and its traceback.
What an engine prints goes to the log; only this module writes records.
"""

import os
import platform
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from types import TracebackType
from typing import Self

from workers.codec import MAX_LINE_BYTES, ProtocolError, decode, encode
from workers.counts import Counts, require_possible
from workers.engines.base import ENTRY_POINTS, Engine, TurnRequest, TurnResult, offered
from workers.environment import explained_when_missing, require_environment, versions
from workers.errors import EngineError, FaultKind, ProbeUnsupported, classify
from workers.masking import KNOWN
from workers.protocol import (
    PROTOCOL_VERSION,
    Done,
    Failure,
    Generate,
    Generation,
    Heartbeat,
    Hello,
    Load,
    Loaded,
    Message,
    Probe,
    ProbeAnswer,
    Regenerate,
    ScoreTokens,
    Stop,
    Unsupported,
)
from workers.references import resolved_engine
from workers.stopwatch import Stopwatch

ENGINES_PACKAGE = "workers.engines."
EXIT_OK, EXIT_LOAD_FAILED, EXIT_GARBAGE, EXIT_PARENT_GONE = 0, 1, 2, 3
# Of a failure: what it quotes may be as long as its author likes.
_MESSAGE_CHARACTERS, _DETAIL_CHARACTERS = 2000, 100_000
# Keys of an engine's configuration that are not its own: the class, the name, the drafting checkpoint's name, which
# comes resolved as `Load.draft`, and what this process was started with.
_NOT_SETTINGS = frozenset({"_target_", "name", "draft", "python", "environment"})


class Channel:
    """Requests in, records out; a record is written whole and flushed, from whichever thread it comes."""

    def __init__(self, *, request_fd: int, record_fd: int) -> None:
        self._requests = os.fdopen(request_fd, "rb")
        self._records = os.fdopen(record_fd, "wb")
        self._lock = threading.Lock()

    def requests(self) -> Iterator[Message]:
        """The parent's requests until the channel ends, which it does with the parent.

        Raises:
            ProtocolError: a line is not a message.
        """
        while line := self._requests.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n"):
                raise ProtocolError(f"a request of {len(line)} bytes without an end")
            yield decode(line)

    def send(self, message: Message) -> None:
        """Write one record, without any secret that this process uses.

        A parent that no longer reads ends this process: nobody would stop it.
        """
        line = encode(message, redact=KNOWN.mask_all)
        with self._lock:
            try:
                self._records.write(line)
                self._records.flush()
            except BrokenPipeError:
                os._exit(EXIT_PARENT_GONE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.close()
        self._records.close()


class Pulse:
    """Sends heartbeats from a separate thread while a request is in progress."""

    def __init__(self, channel: Channel, *, interval_s: float) -> None:
        self._channel = channel
        self._interval_s = interval_s
        self._loading = False
        self._stamps: list[int] | None = None  # those of the turn under way, read while they grow
        self._active = False

    def start(self) -> None:
        """Begin. The thread never holds up the process's end."""
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    @contextmanager
    def during_load(self) -> Iterator[None]:
        """Beat as `load`."""
        self._loading, self._stamps, self._active = True, None, True
        try:
            yield
        finally:
            self._active = self._loading = False

    @contextmanager
    def during_request(self) -> Iterator[None]:
        """Beat as `prefill` or `decode`, by the tokens of the turn that `watch` names."""
        self._stamps, self._active = None, True
        try:
            yield
        finally:
            self._active = False

    def watch(self, stopwatch: Stopwatch) -> None:
        """The turn under way is the one that this stopwatch times."""
        self._stamps = stopwatch.stamps_ns

    def _beat(self) -> None:
        while True:
            time.sleep(self._interval_s)
            if self._active:
                self._channel.send(self._heartbeat())

    def _heartbeat(self) -> Heartbeat:
        tokens = len(self._stamps or ())
        phase = "load" if self._loading else "decode" if tokens else "prefill"
        return Heartbeat(phase=phase, tokens=tokens)


class Worker:
    """One engine, and the conversation that is under way with it."""

    def __init__(self, channel: Channel, *, heartbeat_s: float) -> None:
        self._channel = channel
        self._pulse = Pulse(channel, interval_s=heartbeat_s)
        self._engine: Engine | None = None

    def run(self) -> int:
        """Serve until Stop, the parent's end or a fault that ends the process; the exit status."""
        self._channel.send(hello())
        self._pulse.start()
        try:
            return self._serve()
        except ProtocolError as error:
            self._fail(None, error, default=FaultKind.garbage)
            return EXIT_GARBAGE
        finally:
            if self._engine is not None:
                self._engine.close()

    def _serve(self) -> int:
        for request in self._channel.requests():
            if isinstance(request, Load) and self._engine is None:
                if not self._load(request):
                    return EXIT_LOAD_FAILED
            elif isinstance(request, Generate) and self._engine is not None:
                self._generate(request, self._engine)
            elif isinstance(request, Probe) and self._engine is not None:
                self._probe(request, self._engine)
            elif isinstance(request, Stop):
                break
            else:
                raise ProtocolError(f"{request.kind} is not due now")
        return EXIT_OK

    def _load(self, request: Load) -> bool:
        try:
            with self._pulse.during_load():
                loaded = self._loaded(request)
        except Exception as error:  # noqa: BLE001 - the process boundary: recorded as a Failure
            self._fail(None, error, default=FaultKind.load_failed)
            return False
        self._channel.send(loaded)
        return True

    def _loaded(self, request: Load) -> Loaded:
        settings = resolved_engine(request.settings)
        notes = require_environment(settings.get("environment") or {})
        engine = engine_class(request.target)(
            settings={name: value for name, value in settings.items() if name not in _NOT_SETTINGS},
            checkpoint=request.checkpoint,
            draft=request.draft,
            sampling=request.sampling,
        )
        started_ns = engine.clock()
        with explained_when_missing(request.target.split(".")[-2]):
            info = engine.load()
        load_s = (engine.clock() - started_ns) / 1e9
        engine.settle()
        self._engine = engine
        return Loaded(
            load_s=load_s,
            active_memory_bytes=info.active_memory_bytes,
            peak_memory_bytes=info.peak_memory_bytes,
            simulated=info.simulated,
            drafted_per_step=info.drafted_per_step,
            verify_width=info.verify_width,
            engine_setting=dict(info.engine_setting),
            engine_version=info.engine_version,
            notes=[*info.notes, *notes],
            device=dict(info.device),
            served=info.served,
        )

    def _generate(self, request: Generate, engine: Engine) -> None:
        try:
            with self._pulse.during_request():
                self._converse(request, engine)
        except Exception as error:  # noqa: BLE001 - the process boundary: recorded as a Failure
            self._settle_after_failure(engine)
            self._fail(request.request_id, error, default=FaultKind.generation_failed)
        else:
            self._channel.send(Done(request_id=request.request_id))

    def _probe(self, request: Probe, engine: Engine) -> None:
        answer: ProbeAnswer
        try:
            with self._pulse.during_request():
                engine.start_conversation()
                answer = _answer_probe(engine, request)
                engine.settle()
        except ProbeUnsupported as reason:
            answer = Unsupported(request_id=request.request_id, reason=" ".join(str(reason).split()))
        except Exception as error:  # noqa: BLE001 - the process boundary: recorded as a Failure
            self._settle_after_failure(engine)
            self._fail(request.request_id, error, default=FaultKind.probe_failed)
            return
        self._channel.send(answer)

    def _converse(self, request: Generate, engine: Engine) -> None:
        engine.start_conversation()
        messages: list[dict[str, str]] = []
        for turn, added in enumerate(request.turns):
            messages += added
            generation = self._turn(request, turn, list(messages), engine)
            messages.append({"role": "assistant", "content": generation.text})
            self._channel.send(generation)

    def _turn(self, request: Generate, turn: int, messages: list[dict[str, str]], engine: Engine) -> Generation:
        stopwatch = Stopwatch(engine.clock)
        self._pulse.watch(stopwatch)
        engine.prepare(
            TurnRequest(
                messages=messages,
                turn=turn,
                max_tokens=request.max_tokens,
                seed=request.seed,
                sequence=request.sequence,
                sequence_total=request.sequence_total,
                prompt_class=request.prompt_class,
            )
        )
        started_at = datetime.now(UTC).isoformat()
        cpu_before_s = time.process_time()
        stopwatch.time(engine.answer)
        cpu_s = time.process_time() - cpu_before_s
        result = engine.finish()
        if result.completion_tokens is None:  # else a server's, whose engine has held more against each other by now
            require_possible(_counts(result, max_tokens=request.max_tokens))
        engine.settle()
        return Generation(
            request_id=request.request_id,
            turn=turn,
            started_at=started_at,
            prompt_tokens=result.prompt_tokens,
            cached_tokens=result.cached_tokens,
            token_ids=list(result.token_ids),
            stamps_us=_stamps_us(stopwatch, result),
            text=result.text,
            finish_reason=result.finish_reason,
            steps=None if result.steps is None else [list(step) for step in result.steps],
            evidence=list(result.evidence),
            prompt_sha256=result.prompt_sha256,
            engine_prefill_tps=result.engine_prefill_tps,
            engine_decode_tps=result.engine_decode_tps,
            peak_memory_bytes=result.peak_memory_bytes,
            cpu_s=cpu_s,
            completion_tokens=result.completion_tokens,
            stamps_of=result.stamps_of,
            first_byte_us=result.first_byte_us,
            first_visible_us=result.first_visible_us,
            flags=list(result.flags),
        )

    def _settle_after_failure(self, engine: Engine) -> None:
        try:
            engine.settle()
        except Exception:  # noqa: BLE001 - the failure itself is recorded; this one goes to the log
            traceback.print_exc()

    def _fail(self, request_id: str | None, error: Exception, *, default: FaultKind) -> None:
        detail = "".join(traceback.format_exception(error))[-_DETAIL_CHARACTERS:]
        message = " ".join(str(error).split())[:_MESSAGE_CHARACTERS] or type(error).__name__
        kind = classify(error, default=default)
        self._channel.send(Failure(request_id=request_id, error_kind=kind, message=message, detail=detail))


def _answer_probe(engine: Engine, request: Probe) -> ProbeAnswer:
    if isinstance(request, ScoreTokens):
        return engine.score(request)
    if isinstance(request, Regenerate):
        return engine.regenerate(request)
    return engine.time_passes(request)


def hello() -> Hello:
    """This process, its interpreter and what is installed in it."""
    return Hello(
        protocol=PROTOCOL_VERSION,
        pid=os.getpid(),
        python=platform.python_version(),
        versions=versions(),
    )


def engine_class(target: str) -> type[Engine]:
    """The engine's class by its dotted path.

    Raises:
        EngineError: neither below `workers.engines.` nor an installed entry point, or no engine there.
    """
    module_name, _, name = target.rpartition(".")
    if not target.startswith(ENGINES_PACKAGE) and target not in {f"{each.module}.{each.attr}" for each in offered()}:
        raise EngineError(
            FaultKind.unsupported_setting,
            f"engine {target!r}",
            remedy=f"_target_ must lie below {ENGINES_PACKAGE} or be an entry point of {ENTRY_POINTS} installed here",
        )
    try:
        found = getattr(import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise EngineError(
            FaultKind.load_failed, f"engine {target!r}: {error}", remedy="check _target_ in the engine's configuration"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Engine)):
        raise EngineError(FaultKind.unsupported_setting, f"{target!r} is not an engine")
    return found


def _counts(result: TurnResult, *, max_tokens: int) -> Counts:
    first = result.evidence[0] if result.evidence else None  # of the way of decoding
    return Counts(
        max_tokens=max_tokens,
        prompt=result.prompt_tokens,
        cached=result.cached_tokens,
        completion=result.tokens,
        drafted=None if first is None else first.drafted,
        accepted=None if first is None else first.accepted,
        drafted_per_step=max((step[0] for step in result.steps or ()), default=None),
    )


def _stamps_us(stopwatch: Stopwatch, result: TurnResult) -> list[int]:
    if not result.tokens:
        raise EngineError(FaultKind.zero_tokens, "the engine answered without one token")
    stamps_us = stopwatch.stamps_us(result.tokens_per_stamp)
    if len(stamps_us) != result.tokens:
        raise EngineError(
            FaultKind.generation_failed, f"{len(stamps_us)} stamps for {result.tokens} tokens from the engine"
        )
    return stamps_us
