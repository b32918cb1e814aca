"""Deadlines of a request: they end the connection, so that a read that waits returns.

The HTTP package knows a time-out for each single read, which a server that keeps a silent connection alive never
reaches. A thread sleeps until the next deadline, which costs the reading nothing.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from workers.errors import FaultKind
from workers.http.answer import Answer

_AFTER_DONE_S = 1.0  # longest time to the end of the stream after [DONE]
_AFTER_FINISH_S = 10.0  # longest time to the usage and [DONE] after the end of the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Deadlines, in seconds."""

    connect_s: float = 10.0
    first_token_s: float = 600.0
    idle_s: float = 60.0
    total_s: float = 24 * 3600.0  # of a streamed answer; a run's own deadline comes earlier
    query_s: float = 10.0  # for everything but generations


class Connection:
    """Return the socket of the client's newest connection, as the HTTP package reports it."""

    def __init__(self) -> None:
        self._stream: Any = None
        self.ends: set[tuple[str, int]] = set()  # our own address and port of every connection so far

    def trace(self, event: str, details: Mapping[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._stream = details["return_value"]
            self._remember_end()

    def _remember_end(self) -> None:
        found = self._stream.get_extra_info("socket")
        if isinstance(found, socket.socket):
            with contextlib.suppress(OSError):  # it ended by itself
                self.ends.add(found.getsockname()[:2])

    def shut(self) -> None:
        """End it: a read that waits returns at once."""
        found = None if self._stream is None else self._stream.get_extra_info("socket")
        if isinstance(found, socket.socket):
            with contextlib.suppress(OSError):  # it ended by itself
                found.shutdown(socket.SHUT_RDWR)


class Alarm:
    """Ends the connection when a request has taken too long."""

    def __init__(self, connection: Connection, limit_s: float) -> None:
        self._connection = connection
        self._timer = threading.Timer(limit_s, self._ring)
        self._timer.daemon = True
        self.rang = False

    def _ring(self) -> None:
        self.rang = True
        self._connection.shut()

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()


class Watchdog:
    """Ends the connection when a deadline passes, and reports which one.

    A deadline moves with each token. Once the answer has ended, nothing that the server sends moves it any more.
    """

    def __init__(self, connection: Connection, timeouts: Timeouts) -> None:
        self._connection = connection
        self._timeouts = timeouts
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="http-watchdog", daemon=True)
        self._begun = self._since = time.monotonic()
        self._tokens = False
        self._left_s: float | None = None  # for the stream's end, once the answer has ended
        self.fault: FaultKind | None = None
        self.words = ""

    def progress(self) -> None:
        """A token has come."""
        self._tokens = True
        if self._left_s is None:
            self._since = time.monotonic()

    def ending(self, answer: Answer) -> None:
        """Return the time left once the answer has ended: for the usage and [DONE], then for the stream's end."""
        left_s = _AFTER_DONE_S if answer.done else _AFTER_FINISH_S if answer.whole else None
        if left_s != self._left_s:
            self._since, self._left_s = time.monotonic(), left_s

    def __enter__(self) -> Self:
        self._begun = self._since = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _limit_s(self) -> float:
        limits = self._timeouts
        limit_s = limits.idle_s if self._tokens else limits.first_token_s
        return limit_s if self._left_s is None else min(limit_s, self._left_s)

    def _watch(self) -> None:
        # The limit may shrink once tokens come, so the sleep is never longer than the shortest of them.
        limits = self._timeouts
        nap_s = min(limits.idle_s, limits.first_token_s, _AFTER_DONE_S)
        while True:
            now = time.monotonic()
            whole_s = self._begun + limits.total_s - now
            left_s = min(self._since + self._limit_s() - now, whole_s)
            if left_s <= 0:
                break
            if self._over.wait(min(left_s, nap_s)):
                return
        self.fault, self.words = self._missed(whole_s)
        self._connection.shut()

    def _missed(self, whole_s: float) -> tuple[FaultKind, str]:
        if whole_s <= 0:
            return FaultKind.too_long, f"no whole answer within {self._timeouts.total_s:g} s"
        if self._tokens:
            return FaultKind.hung_inter_token, f"no token for {self._timeouts.idle_s:g} s"
        return FaultKind.hung_first_token, f"no first token within {self._timeouts.first_token_s:g} s"
