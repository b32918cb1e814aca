"""The HTTP client. The one module that imports the HTTP package.

A request has three kinds of deadline, each its own fault: to connect, until the first token (whatever else comes before
it: a role, a keep-alive), and between two tokens. The HTTP package knows a time-out for each read only, which a server
that keeps a silent connection alive never reaches; so a watchdog thread ends the connection when a deadline passes. It
sleeps until then and costs the reading nothing.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from workers.errors import EngineError, FaultKind
from workers.http.answer import Answer, error_in, kind_of
from workers.http.sse import SseError, SseParser
from workers.stopwatch import Clock

_MAX_BODY_BYTES = 16 * 2**20  # of an answer in one piece: metrics, statistics, an error
_AFTER_DONE_S = 1.0  # how long the end of the stream may take once it said [DONE]
_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """In seconds."""

    connect_s: float = 10.0
    first_token_s: float = 600.0
    idle_s: float = 60.0
    query_s: float = 10.0  # for everything that is no generation


@dataclass(slots=True)
class Reply:
    """One streamed answer with the stamps that the stopwatch does not take.

    Attributes:
        started_ns, first_byte_ns, first_visible_ns: by the clock that the caller gave; None: it never came.
    """

    answer: Answer
    started_ns: int = 0
    first_byte_ns: int | None = None
    first_visible_ns: int | None = None

    def since_start_us(self, stamp_ns: int | None) -> int | None:
        """A stamp of this reply in microseconds since its start."""
        return None if stamp_ns is None else (stamp_ns - self.started_ns + 500) // 1000


class Client:
    """One server. Not thread-safe. No proxy and no redirect: what answers is what is at the address.

    Args:
        url: http or https, host and port; a path before `/v1` if the server has one.
        api_key: sent as a bearer token, never shown.

    Raises:
        EngineError: the address is none.
    """

    def __init__(self, url: str, *, api_key: str | None = None, timeouts: Timeouts | None = None) -> None:
        self.url = checked_url(url)
        self.timeouts = timeouts or Timeouts()
        headers = {"Accept-Encoding": "identity"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(self.timeouts.query_s, connect=self.timeouts.connect_s),
            trust_env=False,
        )
        self._connection = _Connection()

    def stream(self, path: str, body: bytes, reply: Reply, clock: Clock) -> Iterator[None]:
        """Send a prepared request; one tick each time that text of any channel, or the end, has come.

        Raises:
            EngineError: with what had come before it as a note; a partial answer is never a whole one.
        """
        answer = reply.answer
        watchdog = _Watchdog(self._connection, self.timeouts)
        reply.started_ns = clock()
        with watchdog:
            try:
                yield from self._read(path, body, reply, clock, watchdog)
            except (httpx.HTTPError, httpx.StreamError, OSError, SseError) as error:
                if (fault := watchdog.fault) is not None:
                    raise answer.failure(fault, f"{self.url}: {watchdog.words}") from error
                if not answer.done:
                    kind = FaultKind.generation_failed
                    raise answer.failure(kind, f"{self.url}: {_words(error)}", remedy=_remedy(error)) from error
            if watchdog.fault is not None and not answer.done:
                raise answer.failure(watchdog.fault, f"{self.url}: {watchdog.words}")
        answer.require_complete()

    def get(self, path: str) -> httpx.Response:
        """One small answer.

        Raises:
            EngineError: nobody answers.
        """
        return self._query("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any], *, limit_s: float | None = None) -> httpx.Response:
        """Send JSON for an answer in one piece. Cookies that the server sets are kept.

        Args:
            limit_s: how long the server may take; by default as long as for a small answer.

        Raises:
            EngineError: nobody answers.
        """
        return self._query("POST", path, body, limit_s=limit_s)

    def get_json(self, path: str) -> Any:
        """The JSON at a path.

        Raises:
            EngineError: nobody answers, another status than 200, or no JSON.
        """
        response = self.get(path)
        if response.status_code != httpx.codes.OK:
            raise EngineError(FaultKind.generation_failed, f"{self.url}{path}: HTTP {response.status_code}")
        try:
            return response.json()
        except ValueError as error:
            raise EngineError(FaultKind.generation_failed, f"{self.url}{path}: no JSON") from error

    def close(self) -> None:
        """Close the connections. May be called again."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _query(
        self, method: str, path: str, body: Mapping[str, Any] | None, *, limit_s: float | None = None
    ) -> httpx.Response:
        read_s = self.timeouts.query_s if limit_s is None else limit_s
        timeout = httpx.Timeout(read_s, connect=self.timeouts.connect_s)
        try:
            return self._http.request(method, path, json=body, timeout=timeout)
        except httpx.ReadTimeout as error:
            raise TooLate(f"{self.url}{path}: {_words(error)}") from error
        except (httpx.HTTPError, OSError) as error:
            raise Unreachable(f"{self.url}{path}: {_words(error)}", remedy=_remedy(error)) from error

    def _read(self, path: str, body: bytes, reply: Reply, clock: Clock, watchdog: "_Watchdog") -> Iterator[None]:
        answer, parser = reply.answer, SseParser()
        with self._http.stream(
            "POST",
            path,
            content=body,
            headers={"Content-Type": "application/json", "Accept": "text/event-stream"},
            timeout=httpx.Timeout(None, connect=self.timeouts.connect_s),
            extensions={"trace": self._connection.trace},
        ) as response:
            self._require_stream(response)
            for chunk in response.iter_raw():
                if reply.first_byte_ns is None:
                    reply.first_byte_ns = clock()
                for event in parser.feed(chunk):
                    if answer.done:
                        return
                    if answer.take(event):
                        if reply.first_visible_ns is None and answer.text:
                            reply.first_visible_ns = clock()
                        watchdog.progress()
                        yield
                if answer.done:
                    watchdog.finish()
            for event in parser.close():
                if not answer.done and answer.take(event):
                    yield

    def _require_stream(self, response: httpx.Response) -> None:
        """A status of 200 and an event stream.

        Raises:
            EngineError: else, with what the server said.
        """
        kind = response.headers.get("content-type", "")
        encoding = response.headers.get("content-encoding", "identity")
        if response.status_code == httpx.codes.OK and "json" not in kind and encoding == "identity":
            return
        text = _body(response)
        said = _said(text)
        if response.status_code != httpx.codes.OK:
            raise StatusError(self.url, response.status_code, said)
        if encoding != "identity":
            raise EngineError(FaultKind.generation_failed, f"{self.url} sends {encoding}, although it was told not to")
        if said != text[:_SHOWN]:  # an error after HTTP 200, without a stream
            raise EngineError(kind_of(said, FaultKind.generation_failed), f"{self.url} reported an error: {said}")
        raise EngineError(
            FaultKind.generation_failed,
            f"{self.url} answered in one piece: no token has a time",
            remedy="use a server that streams",
        )


class Unreachable(EngineError):
    """Nobody answers at the address."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(FaultKind.generation_failed, message, remedy=remedy)


class TooLate(Unreachable):
    """Somebody took the request, and did not answer in time."""


class StatusError(EngineError):
    """The server refused the request, in words of its own."""

    def __init__(self, url: str, status: int, said: str) -> None:
        kind = kind_of(said, FaultKind.generation_failed)
        super().__init__(kind, f"{url}: HTTP {status}: {said}", remedy=_STATUS_REMEDIES.get(status, ""))
        self.status = status


class _Connection:
    """The socket of the client's newest connection, as the HTTP package tells it."""

    def __init__(self) -> None:
        self._stream: Any = None

    def trace(self, event: str, details: Mapping[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._stream = details["return_value"]

    def shut(self) -> None:
        """End it: a read that waits returns at once."""
        found = None if self._stream is None else self._stream.get_extra_info("socket")
        if isinstance(found, socket.socket):
            with contextlib.suppress(OSError):  # it ended by itself
                found.shutdown(socket.SHUT_RDWR)


class _Watchdog:
    """Ends the connection when a deadline passes, and says which."""

    def __init__(self, connection: _Connection, timeouts: Timeouts) -> None:
        self._connection = connection
        self._timeouts = timeouts
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="http-watchdog", daemon=True)
        self._since = time.monotonic()
        self._tokens = False
        self._done = False
        self.fault: FaultKind | None = None
        self.words = ""

    def progress(self) -> None:
        """A token has come."""
        self._tokens = True
        self._since = time.monotonic()

    def finish(self) -> None:
        """The answer is whole; only the stream's end is missing."""
        self._done = True
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        self._since = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _limit_s(self) -> float:
        if self._done:
            return _AFTER_DONE_S
        return self._timeouts.idle_s if self._tokens else self._timeouts.first_token_s

    def _watch(self) -> None:
        # The limit may shrink once tokens come, so the sleep is never longer than the shortest of them.
        nap_s = min(self._timeouts.idle_s, self._timeouts.first_token_s, _AFTER_DONE_S)
        while True:
            left_s = self._since + self._limit_s() - time.monotonic()
            if left_s <= 0:
                break
            if self._over.wait(min(left_s, nap_s)):
                return
        if self._tokens:
            self.fault = FaultKind.hung_inter_token
            self.words = f"no token for {self._timeouts.idle_s:g} s"
        else:
            self.fault = FaultKind.hung_first_token
            self.words = f"no first token within {self._timeouts.first_token_s:g} s"
        self._connection.shut()


def checked_url(url: str) -> str:
    """The address without a slash at its end, and without `/v1`.

    Raises:
        EngineError: not http or https, no host, or a password in it, which would be stored.
    """
    parts = urlsplit(url)
    problem = None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        problem, remedy = f"{url!r} is no address", "write it as http://127.0.0.1:8080"
    elif parts.username is not None or parts.password is not None:
        problem, remedy = "an address must not hold a user's name or password", "name a variable in engine.api_key_env"
    if problem is not None:
        raise EngineError(FaultKind.unsupported_setting, problem, remedy=remedy)
    return url.rstrip("/").removesuffix("/v1")


_STATUS_REMEDIES = {
    401: "name the variable that holds the key in engine.api_key_env",
    403: "name the variable that holds the key in engine.api_key_env",
    404: "check engine.url and engine.model",
    405: "check engine.url",
}


def _body(response: httpx.Response) -> str:
    """The answer's body, as far as it is needed for a message."""
    held = bytearray()
    for chunk in response.iter_raw():
        held += chunk
        if len(held) > _MAX_BODY_BYTES:
            break
    return held.decode("utf-8", errors="replace").strip()


def _said(text: str) -> str:
    try:
        body = json.loads(text)
    except ValueError:
        return " ".join(text.split())[:_SHOWN]
    found = error_in(body) if isinstance(body, dict) else None
    return (found or text)[:_SHOWN]


def _words(error: Exception) -> str:
    if isinstance(error, httpx.RemoteProtocolError):
        return f"the connection ended in the middle of the answer: {error}"
    if isinstance(error, httpx.ConnectTimeout | httpx.ReadTimeout | httpx.PoolTimeout):
        return f"no answer in time ({type(error).__name__})"
    return f"{error}" or type(error).__name__


def _remedy(error: Exception) -> str:
    return "is the server running?" if isinstance(error, httpx.ConnectError) else ""
