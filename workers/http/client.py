"""The HTTP client; the only module that imports the HTTP package.

A streamed request has four deadlines, each a fault of its own: to connect, until the first token (whatever else arrives
before it, such as a role or a keep-alive), between two tokens, and for the whole answer; see `workers.http.watchdog`.
Every other request has one deadline for the whole and a limit to its size.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from workers.errors import EngineError, FaultKind
from workers.http.answer import error_in, kind_of
from workers.http.foreign_body import OTHER_ADDRESS, describe, page_in
from workers.http.json_text import read_json
from workers.http.refusals import StatusError, TooLate, Unreachable, explained
from workers.http.reply import Reply, limited, ticks
from workers.http.sse import SseError, SseParser
from workers.http.watchdog import Alarm, Connection, Timeouts, Watchdog
from workers.masking import KNOWN, mask
from workers.settings import is_address
from workers.stopwatch import Clock
from workers.wellformed import well_formed_json

if TYPE_CHECKING:
    import httpx
else:

    class _Httpx:
        """The package, imported when it is first used: whoever only reads an engine's settings need not wait for it."""

        def __getattr__(self, name: str) -> Any:
            import httpx

            return getattr(httpx, name)

    httpx = _Httpx()

MAX_BODY_BYTES = 8 * 2**20  # of an answer in one piece: metrics, statistics, an error
_SHOWN = 300


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
            ValueError: not JSON, or none that can be relied on; see `workers.http.json_text`.
        """
        return well_formed_json(read_json(self.text))


class Client:
    """One server. Not thread-safe. No proxy and no redirect: only the server at the address answers.

    Args:
        url: http or https, host and port; a path before `/v1` if the server has one.
        api_key: sent as a bearer token, never shown.

    Raises:
        EngineError: the address is not valid.
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
        self._connection = Connection()

    def stream(self, path: str, body: bytes, reply: Reply, clock: Clock) -> Iterator[None]:
        """Send a prepared request; one tick each time that text of any channel, or the end, has come.

        Raises:
            EngineError: the answer is incomplete; the text that came before is a note.
        """
        try:
            yield from self._streamed(path, body, reply, clock)
            if reply.head.strip() and not reply.recognised:
                raise self._no_stream(bytes(reply.head))
            reply.answer.require_complete()
        except EngineError as error:
            if reply.answer.text or not page_in(_masked(bytes(reply.head))):
                raise
            raise self._no_stream(bytes(reply.head)) from error

    def get(self, path: str) -> Fetched:
        """One small answer.

        Raises:
            EngineError: there is no answer within `Timeouts.query_s`, or one of more than 8 MiB.
        """
        return self._query("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any], *, limit_s: float | None = None) -> Fetched:
        """Send JSON for an answer in one piece. Cookies that the server sets are kept.

        Args:
            limit_s: how long the server may take; by default as long as for a small answer.

        Raises:
            EngineError: there is no answer.
        """
        return self._query("POST", path, body, limit_s=limit_s)

    def get_json(self, path: str) -> Any:
        """The JSON at a path.

        Raises:
            EngineError: there is no answer, another status than 200, or an answer that is not JSON.
        """
        response = self.get(path)
        if response.status_code != httpx.codes.OK:
            raise EngineError(FaultKind.generation_failed, f"{self.url}{path}: HTTP {response.status_code}")
        try:
            return response.json()
        except ValueError as error:
            page = page_in(response.text)
            raise EngineError(
                FaultKind.generation_failed,
                f"{self.url}{path}: {f'{page}, not JSON' if page else f'not JSON ({error})'}",
                remedy=OTHER_ADDRESS if page else "",
            ) from error

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
                Alarm(self._connection, whole_s) as alarm,
                self._http.stream(
                    method, path, json=body, timeout=timeout, extensions={"trace": self._connection.trace}
                ) as response,
            ):
                if (encoding := response.headers.get("content-encoding", "identity")) != "identity":
                    raise Unreachable(f"{self.url}{path} sends {encoding}, although the request refused compression")
                found = Fetched(status_code=response.status_code, content=_held(response, f"{self.url}{path}"))
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            problem = error
        if alarm.rang or isinstance(problem, httpx.ReadTimeout):  # shut, a body without a length looks whole
            raise TooLate(f"{self.url}{path}: no whole answer within {whole_s:g} s") from problem
        if problem is not None:
            words, remedy = _explained(problem)
            raise Unreachable(f"{self.url}{path}: {words}", remedy=remedy) from problem
        return found

    def _streamed(self, path: str, body: bytes, reply: Reply, clock: Clock) -> Iterator[None]:
        answer = reply.answer
        watchdog = Watchdog(self._connection, self.timeouts)
        reply.started_ns = clock()
        with watchdog:
            try:
                yield from self._read(path, body, reply, clock, watchdog)
            except (httpx.HTTPError, httpx.StreamError, OSError, SseError) as error:
                if (fault := watchdog.fault) is not None:
                    if not answer.whole:
                        raise answer.failure(fault, f"{self.url}: {watchdog.words}") from error
                elif not answer.done:
                    words, remedy = _explained(error)
                    raise answer.failure(FaultKind.generation_failed, f"{self.url}: {words}", remedy=remedy) from error
            if watchdog.fault is not None and not answer.whole:
                raise answer.failure(watchdog.fault, f"{self.url}: {watchdog.words}")

    def _read(self, path: str, body: bytes, reply: Reply, clock: Clock, watchdog: Watchdog) -> Iterator[None]:
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
            for chunk in limited(response.iter_raw()):
                if reply.first_byte_ns is None:
                    reply.first_byte_ns = clock()
                if not answer.done:  # then only the end is waited for, so that the server sees no hang-up
                    events = parser.feed(chunk)
                    reply.recognise(chunk, seen=bool(events or parser.comments))
                    yield from ticks(events, reply, clock, watchdog)
                    watchdog.ending(answer)
            if watchdog.fault is None:  # else the end is our own doing, and what is pending is no event
                events = parser.close()
                reply.recognise(b"", seen=bool(events or parser.comments))
                yield from ticks(events, reply, clock, watchdog)

    def _require_stream(self, response: "httpx.Response") -> None:
        """A status of 200 and an event stream.

        Raises:
            EngineError: any other status, with the server's text.
        """
        kind = response.headers.get("content-type", "").lower()
        encoding = response.headers.get("content-encoding", "identity")
        whole = ("json" in kind and "json-seq" not in kind and "ndjson" not in kind) or "html" in kind
        if response.status_code == httpx.codes.OK and not whole and encoding == "identity":
            return
        body = _held(response, self.url)
        if response.status_code != httpx.codes.OK:
            text = _masked(body) if encoding == "identity" else f"(an error in {encoding})"
            raise StatusError(self.url, response.status_code, _refusal(response, text))
        if encoding != "identity":
            raise EngineError(
                FaultKind.generation_failed, f"{self.url} sends {encoding}, although the request refused compression"
            )
        raise self._no_stream(body)

    def _no_stream(self, body: bytes) -> EngineError:
        """The error for a body, with status 200, that is not an event stream."""
        text = _masked(body)
        if (reported := _error_in(text)) is not None:
            kind = kind_of(reported, FaultKind.generation_failed)
            return EngineError(kind, f"{self.url} reported an error: {reported[:_SHOWN]}")
        found, remedy = describe(text)
        return EngineError(
            FaultKind.generation_failed, f"{self.url} answered without an event stream: it sent {found}", remedy=remedy
        )


def _can_be_asked(url: str) -> bool:
    """Return whether the address is valid, for the HTTP package too."""
    try:
        httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return is_address(url)


def checked_url(url: str) -> str:
    """The address without a slash at its end, and without `/v1`.

    Raises:
        EngineError: not http or https, or no host.
    """
    if "@" in url:
        KNOWN.add(url)
    if not _can_be_asked(url):
        raise EngineError(
            FaultKind.unsupported_setting, f"{url!r} is not a valid address", remedy="write it as http://127.0.0.1:8080"
        )
    return url.rstrip("/").removesuffix("/v1")


def _held(response: "httpx.Response", where: str) -> bytes:
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


def _masked(body: bytes) -> str:
    """The text of a body. It is masked before it is cut: half a key is a key that nobody finds."""
    return mask(body.decode("utf-8", errors="replace").strip())


def _refusal(response: "httpx.Response", text: str) -> str:
    """Return a server's text with a status other than 200, in one line."""
    if response.is_redirect:
        where = mask(response.headers.get("location", ""))[:_SHOWN]
        return f"it redirects to {where}; no redirect is followed: write the address that answers into engine.url"
    return (_error_in(text) or page_in(text) or " ".join(text.split()))[:_SHOWN]


def _error_in(text: str) -> str | None:
    """The error that a JSON body reports; None if it reports none or is not JSON."""
    try:
        body = read_json(text)
    except ValueError:
        return None
    return error_in(body) if isinstance(body, dict) else None


def _explained(error: Exception) -> tuple[str, str]:
    words, remedy = explained(error)
    return mask(words)[:_SHOWN], remedy
