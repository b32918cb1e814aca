"""The HTTP client. The one module that imports the HTTP package.

A streamed request has four deadlines, each its own fault: to connect, until the first token (whatever else comes before
it: a role, a keep-alive), between two tokens, and for the whole. The HTTP package knows a time-out for each read only,
which a server that keeps a silent connection alive never reaches; so a watchdog thread ends the connection when a
deadline passes. It sleeps until then and costs the reading nothing. Every other request has one deadline for the whole
and a limit to its size.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from workers.errors import EngineError, FaultKind
from workers.http.answer import Answer, error_in, kind_of
from workers.http.reading import read_json
from workers.http.sse import Event, SseError, SseParser
from workers.masking import KNOWN, mask
from workers.stopwatch import Clock
from workers.wellformed import well_formed_json

MAX_BODY_BYTES = 8 * 2**20  # of an answer in one piece: metrics, statistics, an error
MAX_STREAM_BYTES = 128 * 2**20  # 100,000 tokens of a wordy server take about 40 MB
_AFTER_DONE_S = 1.0  # how long the end of the stream may take once it said [DONE]
_AFTER_FINISH_S = 10.0  # how long the usage and [DONE] may take once the answer has ended
_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """In seconds."""

    connect_s: float = 10.0
    first_token_s: float = 600.0
    idle_s: float = 60.0
    total_s: float = 24 * 3600.0  # of a streamed answer; a run's own deadline comes earlier
    query_s: float = 10.0  # for everything that is no generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """An answer in one piece."""

    status_code: int
    content: bytes

    @property
    def text(self) -> str:
        """The body; what is not UTF-8 is replaced."""
        return self.content.decode("utf-8", errors="replace")

    def json(self) -> Any:
        """The body's value, every string well formed.

        Raises:
            ValueError: not JSON, or none that can be relied on; see `workers.http.reading`.
        """
        return well_formed_json(read_json(self.text))


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
                    if not answer.whole:
                        raise answer.failure(fault, f"{self.url}: {watchdog.words}") from error
                elif not answer.done:
                    kind = FaultKind.generation_failed
                    raise answer.failure(kind, f"{self.url}: {_words(error)}", remedy=_remedy(error)) from error
            if watchdog.fault is not None and not answer.whole:
                raise answer.failure(watchdog.fault, f"{self.url}: {watchdog.words}")
        answer.require_complete()

    def get(self, path: str) -> Fetched:
        """One small answer.

        Raises:
            EngineError: nobody answers, or not within `Timeouts.query_s`, or with more than 8 MiB.
        """
        return self._query("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any], *, limit_s: float | None = None) -> Fetched:
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
            raise EngineError(FaultKind.generation_failed, f"{self.url}{path}: no JSON ({error})") from error

    @property
    def ends(self) -> frozenset[tuple[str, int]]:
        """Our own ends (address and port) of all connections that were made, ended ones among them."""
        return frozenset(self._connection.ends)

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
    ) -> Fetched:
        whole_s = self.timeouts.query_s if limit_s is None else limit_s
        timeout = httpx.Timeout(whole_s, connect=self.timeouts.connect_s)
        problem: Exception | None = None
        try:
            with (
                _Alarm(self._connection, whole_s) as alarm,
                self._http.stream(
                    method, path, json=body, timeout=timeout, extensions={"trace": self._connection.trace}
                ) as response,
            ):
                if (encoding := response.headers.get("content-encoding", "identity")) != "identity":
                    raise Unreachable(f"{self.url}{path} sends {encoding}, although it was told not to")
                found = Fetched(status_code=response.status_code, content=_held(response, f"{self.url}{path}"))
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            problem = error
        if alarm.rang or isinstance(problem, httpx.ReadTimeout):  # shut, a body without a length looks whole
            raise TooLate(f"{self.url}{path}: no whole answer within {whole_s:g} s") from problem
        if problem is not None:
            raise Unreachable(f"{self.url}{path}: {_words(problem)}", remedy=_remedy(problem)) from problem
        return found

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
            for chunk in _limited(response.iter_raw()):
                if reply.first_byte_ns is None:
                    reply.first_byte_ns = clock()
                if not answer.done:  # then only the end is waited for, so that the server sees no hang-up
                    yield from _ticks(parser.feed(chunk), reply, clock, watchdog)
                    watchdog.ending(answer)
            if watchdog.fault is None:  # else the end is our own doing, and what is pending is no event
                yield from _ticks(parser.close(), reply, clock, watchdog)

    def _require_stream(self, response: httpx.Response) -> None:
        """A status of 200 and an event stream.

        Raises:
            EngineError: else, with what the server said.
        """
        kind = response.headers.get("content-type", "")
        encoding = response.headers.get("content-encoding", "identity")
        if response.status_code == httpx.codes.OK and "json" not in kind and encoding == "identity":
            return
        text = _held(response, self.url).decode("utf-8", errors="replace").strip()
        text = mask(text)  # before it is cut: half a key is a key that nobody finds
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


class _Alarm:
    """Ends the connection when a request has taken too long."""

    def __init__(self, connection: _Connection, limit_s: float) -> None:
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


class _Watchdog:
    """Ends the connection when a deadline passes, and says which.

    A deadline moves with each token. Once the answer has ended, nothing that the server sends moves it any more.
    """

    def __init__(self, connection: _Connection, timeouts: Timeouts) -> None:
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
        """What is left once the answer has ended: the usage and [DONE], then the stream's end."""
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


def _can_be_asked(url: str) -> bool:
    """Whether it is http or https, with a host, a port and characters that the HTTP package takes as such."""
    try:
        httpx.URL(url)
        parts = urlsplit(url)
    except (httpx.InvalidURL, ValueError):
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def checked_url(url: str) -> str:
    """The address without a slash at its end, and without `/v1`.

    Raises:
        EngineError: not http or https, or no host.
    """
    if "@" in url:
        KNOWN.add(url)
    if not _can_be_asked(url):
        raise EngineError(
            FaultKind.unsupported_setting, f"{url!r} is no address", remedy="write it as http://127.0.0.1:8080"
        )
    return url.rstrip("/").removesuffix("/v1")


_STATUS_REMEDIES = {
    401: "name the variable that holds the key in engine.api_key_env",
    403: "name the variable that holds the key in engine.api_key_env",
    404: "check engine.url and engine.model",
    405: "check engine.url",
}


def _limited(chunks: Iterator[bytes]) -> Iterator[bytes]:
    received = 0
    for chunk in chunks:
        received += len(chunk)
        if received > MAX_STREAM_BYTES:
            raise SseError(f"a stream of more than {MAX_STREAM_BYTES // 2**20} MiB")
        yield chunk


def _ticks(events: Sequence[Event], reply: Reply, clock: Clock, watchdog: _Watchdog) -> Iterator[None]:
    """Take events until the answer is done; one tick for each that brings text or the end."""
    for event in events:
        if reply.answer.done:
            return
        if reply.answer.take(event):
            if reply.first_visible_ns is None and reply.answer.text:
                reply.first_visible_ns = clock()
            watchdog.progress()
            yield


def _held(response: httpx.Response, where: str) -> bytes:
    """The whole body.

    Raises:
        Unreachable: it is larger than `MAX_BODY_BYTES`.
    """
    held = bytearray()
    for chunk in response.iter_raw():
        held += chunk
        if len(held) > MAX_BODY_BYTES:
            raise Unreachable(f"{where} sends more than {MAX_BODY_BYTES // 2**20} MiB where a small answer is due")
    return bytes(held)


def _said(text: str) -> str:
    try:
        body = read_json(text)
    except ValueError:
        return " ".join(text.split())[:_SHOWN]
    found = error_in(body) if isinstance(body, dict) else None
    return (found or text)[:_SHOWN]


def _words(error: Exception) -> str:
    if isinstance(error, httpx.RemoteProtocolError):
        return f"the connection ended in the middle of the answer: {error}"
    if isinstance(error, httpx.ConnectTimeout | httpx.ReadTimeout | httpx.PoolTimeout):
        return f"no answer in time ({type(error).__name__})"
    return mask(f"{error}")[:_SHOWN] or type(error).__name__


def _remedy(error: Exception) -> str:
    return "is the server running?" if isinstance(error, httpx.ConnectError) else ""
