"""The parent's handle of one arm's worker: load it, ask it, notice whatever goes wrong, and end it for certain.

Every wait has a deadline. A worker that crashes, hangs, sends garbage or ends without an answer is a `WorkerFault` with
its kind; by then its processes are ended and the caller may spawn another. This process never imports mlx.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import NoReturn, Self

from workers.codec import ProtocolError, decode, encode
from workers.errors import EngineError, FaultKind, WorkerFault, classify, classify_text, describe_exit
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
)
from workers.references import resolved
from workers.supervision.channel import ChannelClosed
from workers.supervision.child import SIGNAL_GRACE_S, Child, StopReport, WorkerSpec
from workers.supervision.deadlines import Deadlines, Due, Watch

__all__ = ["Deadlines", "StopReport", "WorkerProcess", "WorkerSpec"]

EXIT_GRACE_S = 2.0  # between the channel's end, or a last record, and the process's end
MAX_PRINTED_BYTES = 256 * 2**20  # of one request: more is a loop that prints, and would fill the disk
BEATS_A_DEADLINE = 4  # heartbeats come at least this often within the shortest deadline that needs them


class WorkerProcess:
    """One worker process, spawned by `load`. Not thread-safe. A context manager: leaving it stops the worker.

    Attributes:
        hello: the process's description of itself; None before `load`.
        loaded: the engine's description of itself; None before `load`.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.hello: Hello | None = None
        self.loaded: Loaded | None = None
        self._child: Child | None = None
        self._report = StopReport(returncode=None, signals=(), survivors=())
        self._busy = False  # an answer is outstanding: a request to stop would not be read
        self._takes_requests = True

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._child is not None and self._child.popen.poll() is None

    @property
    def pid(self) -> int | None:
        """The process's id; None before `load` and after its end."""
        return None if self._child is None else self._child.popen.pid

    def load(self, request: Load, deadlines: Deadlines) -> Loaded:
        """Spawn the process and load the engine. Once for each WorkerProcess.

        Raises:
            WorkerFault: the process is ended.
        """
        due = Due(
            at=time.monotonic() + deadlines.load_s,
            kind=FaultKind.hung_load,
            words=f"not loaded within {deadlines.load_s:g} s",
        )
        child = self._spawn(deadlines)
        self._busy = True
        self._send(child, request, due)
        self.hello = self._hello(child, due)
        self.loaded = self._loaded(child, due)
        self._busy = False
        self._snapshot(child)
        return self.loaded

    def generate(
        self, request: Generate, deadlines: Deadlines, on_heartbeat: Callable[[Heartbeat], None] | None = None
    ) -> list[Generation]:
        """Run one conversation: one generation per turn.

        Raises:
            WorkerFault: with the turns that were answered before it. Its `alive` is set where the engine failed in an
                orderly way and the process takes the next request; else the process is ended.
        """
        child = self._running()
        child.mark_log()
        self._busy = True
        answered: list[Generation] = []
        try:
            self._converse(child, request, Watch(deadlines), answered, on_heartbeat)
        except WorkerFault as fault:
            fault.generations = tuple(answered)
            raise
        self._busy = False
        self._snapshot(child)
        return answered

    def probe(self, request: Probe, *, limit_s: float) -> ProbeAnswer:
        """Send a probe: a question to the engine beside its answers.

        Args:
            limit_s: after how long the worker is taken for stuck; more than the request's own budget.

        Raises:
            WorkerFault: as `generate`.
        """
        child = self._running()
        child.mark_log()
        self._busy = True
        words = f"the probe took more than {limit_s:g} s"
        due = Due(at=time.monotonic() + limit_s, kind=FaultKind.too_long, words=words)
        self._send(child, request, due)
        while isinstance(message := self._receive(child, due), Heartbeat):
            self._check_log(child)
        if isinstance(message, Failure) and message.request_id == request.request_id:
            self._raise_orderly_failure(child, message)
        if isinstance(message, Failure):
            self._raise_last_failure(child, message, FaultKind.probe_failed)
        if not isinstance(message, ProbeAnswer):
            self._raise_fault(child, FaultKind.garbage, f"{message.kind} is not due: {message!r:.200}")
        self._busy = False
        return message

    def stop(self, teardown_s: float) -> StopReport:
        """End the process and its descendants: Stop, then SIGTERM, then SIGKILL; verify. May be called again.

        Args:
            teardown_s: how long it may take to end as asked. Each signal then gets as long, but 5 s at most.
        """
        if self._child is None:
            return self._report
        child, self._child = self._child, None
        held, ended = child.held_bytes(), True
        if not self._busy:
            ended = child.ask_to_stop(teardown_s)
        report = child.end(min(teardown_s, SIGNAL_GRACE_S))
        self._report = replace(report, hung=not ended, held_bytes=held)
        return self._report

    def held_bytes(self) -> int | None:
        """Memory that the worker and its descendants, such as a server, hold together; None if unreadable or ended."""
        return None if self._child is None else self._child.held_bytes()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(SIGNAL_GRACE_S)

    def _spawn(self, deadlines: Deadlines) -> Child:
        if self._child is not None or self.hello is not None:
            raise RuntimeError("a WorkerProcess loads once; make another")
        shortest_s = min(deadlines.first_token_s, deadlines.inter_token_s)
        heartbeat_s = min(self.spec.heartbeat_s, shortest_s / BEATS_A_DEADLINE)
        try:
            environment = resolved(self.spec.environment, "engine.environment")
            self._child = Child(replace(self.spec, environment=environment), heartbeat_s=heartbeat_s)
        except EngineError as error:
            raise WorkerFault(error.kind, self._named(str(error))) from error
        except OSError as error:
            kind = classify(error, default=FaultKind.load_failed)
            raise WorkerFault(kind, self._named(f"cannot start the worker: {error}")) from error
        return self._child

    def _snapshot(self, child: Child) -> None:
        """Journal the worker's descendants; a descendant that no journal knows must not be used."""
        try:
            child.snapshot()
        except OSError as error:
            kind = classify(error, default=FaultKind.load_failed)
            self._raise_fault(child, kind, f"the journal cannot be written: {error}")

    def _check_log(self, child: Child) -> None:
        if child.printed_bytes() > MAX_PRINTED_BYTES:
            self._raise_fault(child, FaultKind.log_flood, f"printed more than {MAX_PRINTED_BYTES / 2**20:.0f} MiB")

    def _running(self) -> Child:
        if self._child is None or self.loaded is None:
            raise RuntimeError("the worker is not loaded, or has ended; make another and load it")
        return self._child

    def _hello(self, child: Child, due: Due) -> Hello:
        message = self._receive(child, due)
        if not isinstance(message, Hello) or message.protocol != PROTOCOL_VERSION:
            self._raise_fault(child, FaultKind.garbage, f"no greeting of protocol {PROTOCOL_VERSION}: {message!r:.200}")
        return message

    def _loaded(self, child: Child, due: Due) -> Loaded:
        while isinstance(message := self._receive(child, due), Heartbeat):
            self._snapshot(child)  # a server that an engine launches is known before it is used
            self._check_log(child)
        if isinstance(message, Failure):
            self._raise_last_failure(child, message, FaultKind.load_failed)
        if not isinstance(message, Loaded):
            self._raise_fault(child, FaultKind.garbage, f"{message.kind} while loading: {message!r:.200}")
        return message

    def _converse(
        self,
        child: Child,
        request: Generate,
        watch: Watch,
        answered: list[Generation],
        on_heartbeat: Callable[[Heartbeat], None] | None,
    ) -> None:
        self._send(child, request, watch.next_due())
        while True:
            message = self._receive(child, watch.next_due())
            match message:
                case Heartbeat():
                    watch.beat(message)
                    self._check_log(child)
                    if on_heartbeat is not None:
                        on_heartbeat(message)
                case Generation(request_id=request.request_id) if message.turn == len(answered) < len(request.turns):
                    answered.append(message)
                    watch.turn_answered()
                case Done(request_id=request.request_id) if len(answered) == len(request.turns):
                    return
                case Failure(request_id=request.request_id):
                    self._raise_orderly_failure(child, message)
                case Failure():
                    self._raise_last_failure(child, message, FaultKind.generation_failed)
                case _:
                    self._raise_fault(child, FaultKind.garbage, f"{message.kind} is not due: {message!r:.200}")

    def _send(self, child: Child, message: Message, due: Due) -> None:
        try:
            child.channel.send(encode(message), deadline=due.at)
        except TimeoutError:
            self._raise_fault(child, due.kind, f"the request to {message.kind} was not taken: {due.words}")
        except ChannelClosed:
            # It has ended, or is about to. Its last record states why, and is received next.
            child.reap(EXIT_GRACE_S)
            self._takes_requests = False

    def _receive(self, child: Child, due: Due) -> Message:
        """The next record; of a worker that takes no more requests, what it has written by now."""
        try:
            return decode(child.channel.receive(deadline=due.at if self._takes_requests else 0.0))
        except TimeoutError:
            if not self._takes_requests:
                self._raise_exit(child)
            self._raise_fault(child, due.kind, due.words)
        except ProtocolError as error:
            self._raise_fault(child, FaultKind.garbage, f"garbage on the channel: {error}")
        except ChannelClosed:
            self._raise_exit(child)

    def _raise_orderly_failure(self, child: Child, failure: Failure) -> NoReturn:
        """The request failed; the process goes on."""
        self._busy = False
        kind = _kind_of(failure, FaultKind.generation_failed)
        raise WorkerFault(
            kind, self._named(failure.message), log_tail=child.log_tail(), detail=failure.detail, alive=True
        )

    def _raise_last_failure(self, child: Child, failure: Failure, default: FaultKind) -> NoReturn:
        """Handle a fault that the worker has reported; it is about to end."""
        child.reap(EXIT_GRACE_S)
        self._raise_fault(child, _kind_of(failure, default), failure.message, detail=failure.detail)

    def _raise_exit(self, child: Child) -> NoReturn:
        """The channel has ended: the process has, or is about to."""
        returncode = child.reap(EXIT_GRACE_S)
        if returncode is None:
            self._raise_fault(child, FaultKind.exited_without_record, "closed its channel without an answer")
        words = describe_exit(returncode)
        if self.hello is None:  # an interpreter that cannot run a worker prints the reason before it ends
            words += f", {_last_line(child.log_tail())}"
        if returncode == 0:
            self._raise_fault(child, FaultKind.exited_without_record, f"ended without an answer ({words})")
        # Metal's and C++'s errors end the process; their text is in the log.
        self._raise_fault(child, classify_text(child.log_tail()) or FaultKind.crashed, f"crashed ({words})")

    def _raise_fault(self, child: Child, kind: FaultKind, message: str, *, detail: str = "") -> NoReturn:
        """End the process, then raise the fault."""
        self._busy = True  # it takes no request to stop now
        report = self.stop(SIGNAL_GRACE_S)
        if report.survivors:
            message += f"; processes {report.surviving_pids} survived SIGKILL"
        if report.open_ports:
            message += f"; ports {report.open_ports} of its servers are still answered"
        raise WorkerFault(kind, self._named(message), log_tail=child.log_tail(), detail=detail)

    def _named(self, message: str) -> str:
        return f"arm {self.spec.arm}: {message} (log: {self.spec.log_path})"


def _kind_of(failure: Failure, default: FaultKind) -> FaultKind:
    try:
        return FaultKind(failure.error_kind)
    except ValueError:
        return default


def _last_line(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "nothing in the log"
