"""The streaming client against a real socket that sends exactly these bytes, at these moments."""

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.errors import EngineError, FaultKind
from workers.http import client as client_module
from workers.http import watchdog
from workers.http.answer import Answer, error_in
from workers.http.client import Client, checked_url
from workers.http.json_text import read_json
from workers.http.refusals import Unreachable, explained
from workers.http.reply import Reply
from workers.http.sse import Event
from workers.http.tokens import APPORTIONED, ONE_EACH, apportion
from workers.http.watchdog import Timeouts

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"

Script = Sequence[bytes | float]  # bytes to send, seconds to wait
ENDLESS = 10_000  # steps of a script that nobody should hear to its end


def piece(**delta: Any) -> bytes:
    return data({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def finish(reason: str = "length") -> bytes:
    return data({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})


def usage(tokens: int, **more: Any) -> bytes:
    return data({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": tokens} | more})


def data(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


class Server:
    """Plays one script a connection, then closes it."""

    def __init__(self, *scripts: Script) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[bytes] = []
        self.hung_up = threading.Event()  # the client closed the connection before a script had ended
        self._thread = threading.Thread(target=self._serve, args=(scripts,), daemon=True)
        self._thread.start()

    def _serve(self, scripts: Sequence[Script]) -> None:
        for script in scripts:
            with contextlib.suppress(OSError):
                connection, _ = self._listener.accept()
                with connection:
                    self.requests.append(_read_request(connection))
                    try:
                        for step in script:
                            if isinstance(step, bytes):
                                connection.sendall(step)
                            else:
                                time.sleep(step)
                    except OSError:
                        self.hung_up.set()

    def close(self) -> None:
        self._listener.close()


def _read_request(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*scripts: Script) -> Server:
        servers.append(Server(*scripts))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def ask(server: Server, **timeouts: float) -> tuple[Reply, list[float]]:
    """The reply and when its ticks came, in seconds since the request's start."""
    reply = Reply(answer=Answer())
    limits = Timeouts(**({"first_token_s": 5.0, "idle_s": 5.0, "connect_s": 2.0} | timeouts))
    with Client(server.url, timeouts=limits) as client:
        ticks = []
        for _ in client.stream("/v1/chat/completions", b"{}", reply, time.perf_counter_ns):
            ticks.append((time.perf_counter_ns() - reply.started_ns) / 1e9)
    return reply, ticks


def failed(server: Server, **timeouts: float) -> EngineError:
    with pytest.raises(EngineError) as failure:
        ask(server, **timeouts)
    assert "\n" not in str(failure.value)
    return failure.value


# ---- what counts as a token, and when ----


def test_three_stamps_are_three(serve: Callable[..., Server]) -> None:
    """A role chunk, a keep-alive and thinking come before anything that a reader sees."""
    keepalive = data({"id": "chatcmpl-keepalive", "model": "keepalive", "choices": [{"delta": {"content": ""}}]})
    script = [HEAD, b": keepalive 1/2\n\n", keepalive, piece(role="assistant"), piece(reasoning="hm")]
    server = serve([*script, piece(content="Yes"), piece(content="."), finish("stop"), usage(4), DONE])
    readings = iter(range(1000))  # each reading of the clock is a nanosecond later than the one before
    reply = Reply(answer=Answer())
    with Client(server.url) as client:
        ticks = [next(readings) for _ in client.stream("/v1/chat/completions", b"{}", reply, lambda: next(readings))]
    assert (reply.started_ns, reply.first_byte_ns) == (0, 1)
    assert (ticks[0], reply.first_visible_ns, ticks[1]) == (2, 3, 4)
    assert (reply.answer.reasoning, reply.answer.text) == ("hm", "Yes.")
    assert reply.answer.pieces == [2, 3, 1, 0]
    assert reply.answer.empty_chunks == 3


def test_the_usage_is_taken_once_however_often_it_is_stated(serve: Callable[..., Server]) -> None:
    cumulative = [
        data({"choices": [{"delta": {"content": "a"}}], "usage": {"completion_tokens": n, "prompt_tokens": 9}})
        for n in (1, 2, 3)
    ]
    reply, _ = ask(serve([HEAD, *cumulative, finish(), usage(3), DONE]))
    assert reply.answer.usage["completion_tokens"] == 3


def test_a_null_usage_is_no_usage(serve: Callable[..., Server]) -> None:
    chunk = data({"choices": [{"delta": {"content": "a"}}], "usage": None})
    reply, _ = ask(serve([HEAD, chunk, finish(), DONE]))
    assert reply.answer.usage == {}


def test_a_missing_done_is_seen_and_the_answer_stands(serve: Callable[..., Server]) -> None:
    reply, ticks = ask(serve([HEAD, piece(content="a"), finish(), usage(1)]))
    assert (reply.answer.done, len(ticks)) == (False, 2)
    reply, _ = ask(serve([HEAD, piece(content="a"), finish(), usage(1), b"data: [DONE]"]))
    assert reply.answer.done


def test_every_byte_on_its_own_gives_the_same_answer(serve: Callable[..., Server]) -> None:
    body = (
        b"\xef\xbb\xbf: hi\r\n\r\n" + piece(role="assistant") + piece(content="\u00e4\U0001f600")
        + b'data: {"choices":[{"delta":\r\ndata:{"content":" b"}}]}\r\n\r\n' + finish("stop") + usage(3) + DONE
    )  # fmt: skip
    assert b"\\u00e4" in body
    body = body.replace(b"\\u00e4\\ud83d\\ude00", "\u00e4\U0001f600".encode())
    pieces = [body[place : place + 1] for place in range(len(body))]
    reply, _ = ask(serve([HEAD, *pieces]))
    assert reply.answer.text == "\u00e4\U0001f600 b"


@pytest.mark.parametrize("after", [b": still here\n\n", piece(content="more"), data({"error": "too late"})])
def test_what_comes_after_done_is_neither_read_nor_waited_for(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, after: bytes
) -> None:
    monkeypatch.setattr(watchdog, "_AFTER_DONE_S", 0.1)
    after_done = [step for _ in range(ENDLESS) for step in (after, 0.01)]
    server = serve([HEAD, piece(content="a"), finish(), usage(1), DONE, *after_done])
    reply, ticks = ask(server)
    assert (reply.answer.text, reply.answer.done, len(ticks)) == ("a", True, 2)
    assert server.hung_up.wait(30)


def test_a_stream_that_stays_open_after_its_answer_gives_that_answer(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_AFTER_FINISH_S", 0.1)
    beats = [step for _ in range(ENDLESS) for step in (b": beat\n\n", 0.01)]
    server = serve([HEAD, piece(content="a"), finish(), usage(1), *beats])
    reply, _ = ask(server)
    assert (reply.answer.text, reply.answer.done, reply.answer.usage["completion_tokens"]) == ("a", False, 1)
    assert server.hung_up.wait(30)


def test_the_request_says_what_was_prepared_and_asks_for_no_compression(serve: Callable[..., Server]) -> None:
    server = serve([HEAD, piece(content="a"), finish(), usage(1), DONE])
    with Client(f"{server.url}/v1/", api_key="secret") as client:
        for _ in client.stream("/v1/chat/completions", b'{"a": 1}', Reply(answer=Answer()), time.perf_counter_ns):
            pass
    (request,) = server.requests
    assert request.startswith(b"POST /v1/chat/completions ")
    assert b"accept-encoding: identity" in request.lower()
    assert b"Authorization: Bearer secret" in request
    assert request.endswith(b'{"a": 1}')


# ---- what is no success ----


@pytest.mark.parametrize(
    "event",
    [
        data({"error": {"message": "CUDA out of memory", "code": 500}}),
        data({"error": "CUDA out of memory"}),
        data({"object": "error", "message": "CUDA out of memory"}),
        b"event: error\ndata: CUDA out of memory\n\n",
        b'event: error\ndata: {"detail": "CUDA out of memory"}\n\n',
    ],
)
def test_an_error_within_the_stream_is_a_failure_with_its_words(serve: Callable[..., Server], event: bytes) -> None:
    """HTTP 200, some text, an error, [DONE]: counted as a success elsewhere."""
    error = failed(serve([HEAD, piece(content="par"), piece(content="tial"), event, DONE]))
    assert "CUDA out of memory" in str(error)
    assert "after 2 pieces of text" in str(error)
    assert error.__notes__ == ["partial answer: 'partial'"]


def test_an_error_that_names_memory_is_of_that_kind(serve: Callable[..., Server]) -> None:
    event = data({"error": {"message": "[metal::malloc] Attempting to allocate 9 bytes"}})
    assert failed(serve([HEAD, event, DONE])).kind is FaultKind.out_of_memory


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([piece(content="a")], "no finish reason and no"),
        ([piece(content="a"), DONE], "without a finish reason"),
        ([piece(content="a"), finish("abort")], "ended the answer with 'abort'"),
        ([piece(content="a"), b'data: {"choices": [\n\n'], "invalid JSON"),
        ([piece(content="a"), b"data: <html>\n\n"], "invalid JSON"),
        ([], "no finish reason"),
    ],
)
def test_a_stream_that_is_cut_short_or_broken(serve: Callable[..., Server], body: list[bytes], words: str) -> None:
    error = failed(serve([HEAD, *body]))
    assert words in str(error)
    assert error.kind is FaultKind.generation_failed


def test_a_connection_that_ends_within_a_chunk(serve: Callable[..., Server]) -> None:
    head = HEAD.replace(b"Connection: close", b"Transfer-Encoding: chunked")
    body = piece(content="a")
    error = failed(serve([head, f"{len(body):x}\r\n".encode() + body + b"\r\n", b"ff\r\nda"]))
    assert "ended in the middle of the answer" in str(error)


@pytest.mark.parametrize(
    ("status", "body", "words", "kind"),
    [
        ("404 Not Found", b'{"error": "Speculative decoding requires a trimmable prompt cache"}', "trimmable",
         FaultKind.cache_not_trimmable),
        ("401 Unauthorized", b'{"error": {"message": "Invalid API key"}}', "engine.api_key_env",
         FaultKind.generation_failed),
        ("500 Internal Server Error", b"Traceback\n  boom", "HTTP 500: Traceback boom", FaultKind.generation_failed),
    ],
)  # fmt: skip
def test_another_status_is_reported_with_the_servers_words(
    serve: Callable[..., Server], status: str, body: bytes, words: str, kind: FaultKind
) -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n".encode()
    error = failed(serve([head, body]))
    assert words in str(error)
    assert error.kind is kind


def test_a_redirect_is_not_followed_and_its_goal_is_named(serve: Callable[..., Server]) -> None:
    server = serve([b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"])
    said = str(failed(server))
    assert "HTTP 302: it redirects to file:///etc/passwd" in said
    assert "write the address that answers into engine.url" in said


def test_an_answer_in_one_piece_has_no_token_times(serve: Callable[..., Server]) -> None:
    head = HEAD.replace(b"text/event-stream", b"application/json")
    whole = b'     {"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}'
    assert "in one piece" in str(failed(serve([head, whole])))
    assert "no such model" in str(failed(serve([head, b'   {"error":{"message":"no such model"}}'])))


PORTAL = (
    b"<!DOCTYPE html>\n<html><head><title>Sign in to\n Caf&eacute; Wi-Fi</title></head><body>data: x</body></html>\n"
)
PIECE = b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}'


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("text/html; charset=utf-8", PORTAL, "it sent a web page ('Sign in to Caf&eacute; Wi-Fi')"),
        ("text/event-stream", PORTAL, "it sent a web page ('Sign in to Caf&eacute; Wi-Fi')"),
        ("text/html", b"<html><body><h1>504 Gateway</h1></body></html>", "it sent a web page ('504 Gateway')"),
        ("TEXT/HTML", b"<?xml version='1.0'?><!-- x -->\n<html>", "it sent a web page"),
        ("text/event-stream", PIECE, "it sent its answer in one piece"),
        ("application/json", PIECE, "it sent its answer in one piece"),
        ("text/plain", b'{"error":{"message":"no such model"}}', "reported an error: no such model"),
        ("application/x-ndjson", PIECE + b"\n" + PIECE + b"\n", "it sent lines of JSON instead of server-sent events"),
        ("text/event-stream", b"upstream unavailable", "it sent text that starts with 'upstream unavailable'"),
        ("text/html", b"", "it sent an empty body"),
        ("text/event-stream", PORTAL + b"\n<style>\na\n: b;\n</style>\n\n", "it sent a web page ('Sign in to Caf"),
        ("text/event-stream", PORTAL + b"\n<style>\ndata: b;\n</style>\n\n", "it sent a web page ('Sign in to Caf"),
    ],
)
def test_a_body_that_is_no_stream_is_named(serve: Callable[..., Server], kind: str, body: bytes, words: str) -> None:
    error = str(failed(serve([HEAD.replace(b"text/event-stream", kind.encode()), body])))
    assert words in error
    assert "cut short" not in error


def test_a_stream_that_breaks_off_is_cut_short(serve: Callable[..., Server]) -> None:
    for body in (b"", b"\n \n", b": hello\n\n", piece(role="assistant"), b'data: {"choices": []}'):
        assert "cut short" in str(failed(serve([HEAD, body])))


def test_a_page_instead_of_an_answer_or_an_error_is_named_by_its_title(serve: Callable[..., Server]) -> None:
    page = b"Content-Type: text/html\r\nConnection: close\r\n\r\n<html><title>502 Bad Gateway</title><body>nginx</body>"
    assert str(failed(serve([b"HTTP/1.1 502 Bad Gateway\r\n" + page]))).endswith(
        "HTTP 502: a web page ('502 Bad Gateway')"
    )
    with (
        Client(serve([b"HTTP/1.1 200 OK\r\n" + page]).url) as client,
        pytest.raises(EngineError, match=r"/v1/models: a web page \('502 Bad Gateway'\), not JSON"),
    ):
        client.get_json("/v1/models")


def test_a_compressed_answer_is_refused(serve: Callable[..., Server]) -> None:
    head = HEAD.replace(b"Connection", b"Content-Encoding: gzip\r\nConnection")
    assert "sends gzip" in str(failed(serve([head, b"\x1f\x8b"])))


# ---- deadlines ----


def test_keep_alive_does_not_extend_the_first_tokens_deadline(serve: Callable[..., Server]) -> None:
    beats: list[bytes | float] = [step for _ in range(40) for step in (b": keepalive\n\n", 0.05)]
    error = failed(serve([HEAD, piece(role="assistant"), *beats]), first_token_s=0.4, idle_s=5.0)
    assert error.kind is FaultKind.hung_first_token  # waited for to its end, the answer would be cut off: another kind


def test_a_first_token_that_comes_byte_by_byte_is_late_and_not_broken(serve: Callable[..., Server]) -> None:
    event = piece(content="a")
    trickle = [step for place in range(len(event)) for step in (event[place : place + 1], 0.05)]
    assert failed(serve([HEAD, *trickle]), first_token_s=0.4).kind is FaultKind.hung_first_token


def test_nothing_between_two_tokens_is_another_fault(serve: Callable[..., Server]) -> None:
    beats: list[bytes | float] = [step for _ in range(40) for step in (b": keepalive\n\n", 0.05)]
    error = failed(serve([HEAD, 0.6, piece(content="a"), *beats]), first_token_s=5.0, idle_s=0.4)
    assert error.kind is FaultKind.hung_inter_token
    assert "no token for 0.4 s" in str(error)
    assert error.__notes__ == ["partial answer: 'a'"]


def test_a_server_that_sends_no_head_hangs_at_its_first_token(serve: Callable[..., Server]) -> None:
    error = failed(serve([3.0]), first_token_s=0.3)
    assert error.kind is FaultKind.hung_first_token


@pytest.mark.slow
def test_after_a_failure_the_next_request_is_whole(serve: Callable[..., Server]) -> None:
    good = [HEAD, piece(content="a"), finish(), usage(1), DONE]
    server = serve([HEAD, piece(content="x"), 3.0], good)
    before = threading.active_count()  # other tests' threads may still be ending
    with Client(server.url, timeouts=Timeouts(first_token_s=1.0, idle_s=1.0)) as client:
        with pytest.raises(EngineError):
            list(client.stream("/v1/chat/completions", b"{}", Reply(answer=Answer()), time.perf_counter_ns))
        time.sleep(2.2)
        reply = Reply(answer=Answer())
        list(client.stream("/v1/chat/completions", b"{}", reply, time.perf_counter_ns))
    assert reply.answer.text == "a"
    assert threading.active_count() <= before + 2  # the server's own for this connection


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ([], "it closed the connection without an answer (after 0 pieces of text); check engine.url"),
        ([b"SSH-2.0-OpenSSH_9.6\r\n\r\n"], "its answer is not valid HTTP: illegal status line"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"], "its answer is not valid HTTP: bad Content-Length"),
        (
            [b"HTTP/1.1 302 F\r\nLocation: http://\x1b/\r\n\r\n"],
            "its answer is not valid HTTP: Invalid URL in location",
        ),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000], "its answer is not valid HTTP: Receive buffer too long"),
        ([b"HTTP/1.1 500 E\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n\x1f\x8b"], "500: (an error in gzip)"),
    ],
)
def test_what_is_no_answer_by_http_is_not_called_the_middle_of_one(
    serve: Callable[..., Server], script: Script, words: str
) -> None:
    assert words in str(failed(serve(script)))


def test_tls_on_one_side_alone_is_named_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1)  # of TLS's greeting
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                while connection.recv(4096):
                    pass

        threading.Thread(target=answer, daemon=True).start()
        with (
            Client(f"https://127.0.0.1:{listener.getsockname()[1]}") as client,
            pytest.raises(EngineError, match=r"it does not speak TLS \(.*write http:// into engine\.url"),
        ):
            client.get("/v1/models")
    for text, words in (
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed", "its certificate is not trusted"),
        ("All connection attempts failed", "is the server running?"),
    ):
        assert words in " ".join(explained(type("ConnectError", (Exception,), {})(text)))


def test_nobody_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(EngineError, match="is the server running"):
            list(client.stream("/v1/chat/completions", b"{}", Reply(answer=Answer()), time.perf_counter_ns))
        with pytest.raises(Unreachable, match="is the server running"):
            client.get("/metrics")


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:8080", "ftp://a", "http://", "http://h:port", "http://[::1", "http://a\x00b"),
        *("http://h:0", "http://h:65536", "http://h:99999"),  # httpx would ask port 34463
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(EngineError) as refused:
        checked_url(url)
    assert refused.value.kind is FaultKind.unsupported_setting


def test_the_login_in_an_address_is_not_shown() -> None:
    client = Client(f"{checked_url('http://user:pass-word@127.0.0.1:9')}", timeouts=Timeouts(connect_s=1))
    with client, pytest.raises(Unreachable) as refused:
        client.get("/metrics")
    assert "pass-word" not in str(refused.value)


def test_one_module_imports_the_http_package() -> None:
    workers = Path(__file__).parents[3] / "workers"
    importing = [
        path.name for path in workers.rglob("*.py") if re.search(r"(?m)^\s*(import|from) httpx", path.read_text())
    ]
    assert importing == ["client.py"]


def test_an_answer_that_trickles_ends_at_the_whole_requests_deadline(serve: Callable[..., Server]) -> None:
    trickle = [step for _ in range(ENDLESS) for step in (piece(content="a"), 0.01)]
    server = serve([HEAD, *trickle])
    assert failed(server, total_s=0.3).kind is FaultKind.too_long
    assert server.hung_up.wait(30)


def test_an_answer_far_longer_than_asked_for_is_broken_off(serve: Callable[..., Server]) -> None:
    server = serve([HEAD, *[piece(content="a ") * 50] * ENDLESS])
    reply = Reply(answer=Answer(max_tokens=2))
    with Client(server.url) as client, pytest.raises(EngineError, match="does not end") as failure:
        list(client.stream("/v1/chat/completions", b"{}", reply, time.perf_counter_ns))
    assert failure.value.kind is FaultKind.too_long
    assert server.hung_up.wait(30)


# ---- small answers: metrics, models ----

SMALL = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ([SMALL, *[b"x" * 2**16] * ENDLESS], "sends more than 1 MiB where a small answer is due"),
        ([SMALL, *[step for _ in range(ENDLESS) for step in (b"x", 0.05)]], "no whole answer within 0.3 s"),
        ([*[step for _ in range(ENDLESS) for step in (b"H", 0.05)]], "no whole answer within 0.3 s"),
        ([SMALL[:-2], *[b"X-A: " + b"a" * 60000 + b"\r\n"] * ENDLESS], "not valid HTTP: Receive buffer too long"),
        ([SMALL.replace(b"Connection", b"Content-Encoding: gzip\r\nConnection"), b"\x1f\x8b" * ENDLESS], "sends gzip"),
    ],
)
def test_a_small_answer_is_small_and_comes_in_time(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, script: Script, words: str
) -> None:
    monkeypatch.setattr(client_module, "MAX_BODY_BYTES", 2**20)
    server = serve(script)
    with Client(server.url, timeouts=Timeouts(query_s=0.3)) as client, pytest.raises(Unreachable, match=words):
        client.get("/metrics")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"data": [{"id": "a"}], "data": [{"id": "b"}]}',
        b'{"x": ' + b"9" * 10_000 + b"}",
        b"<html>",
        b"\xff\xfe",
    ],
)
def test_json_that_cannot_be_relied_on_is_refused_in_one_line(serve: Callable[..., Server], body: bytes) -> None:
    with Client(serve([SMALL, body]).url) as client, pytest.raises(EngineError, match="JSON") as failure:
        client.get_json("/v1/models")
    assert "\n" not in str(failure.value)
    assert failed(serve([HEAD, b"data: " + body + b"\n\n"])).kind is FaultKind.generation_failed


def test_old_http_and_a_body_without_a_length_are_read(serve: Callable[..., Server]) -> None:
    head = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    reply, _ = ask(serve([head, piece(content="a"), finish(), usage(1), DONE]))
    assert reply.answer.text == "a"
    with Client(serve([b"HTTP/1.0 200 OK\r\n\r\n", b'{"data": []}']).url) as client:
        assert client.get_json("/v1/models") == {"data": []}


# ---- pure parts ----


def test_what_is_no_number_is_null() -> None:
    assert read_json('{"a": NaN, "b": -Infinity, "c": 1e999, "d": 1.5}') == {"a": None, "b": None, "c": None, "d": 1.5}


def test_halves_of_a_character_are_joined_and_what_is_left_is_replaced() -> None:
    answer = Answer()
    for half in ("a\ud83d", "\ude00b", "\udfff"):
        answer.take(Event(json.dumps({"choices": [{"delta": {"content": half}}], "model": half})))
    answer.take(Event(json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]})))
    answer.require_complete()
    assert answer.text == "a\U0001f600b\ufffd"
    assert answer.response["model"] == "\ufffd"


@pytest.mark.parametrize(
    ("delta", "text", "calls"),
    [
        ({"content": [{"type": "text", "text": "to"}, {"type": "text", "text": "k"}, {"type": "image"}]}, "tok", ""),
        ({"function_call": {"name": "f", "arguments": "{}"}}, "", "f{}"),
        ({"refusal": "I cannot"}, "I cannot", ""),
        ({"content": None, "tool_calls": [None, {"function": 3}]}, "", ""),
    ],
)
def test_every_form_of_an_answer_is_text_that_came(delta: dict[str, Any], text: str, calls: str) -> None:
    answer = Answer()
    assert answer.take(Event(json.dumps({"choices": [{"delta": delta}]}))) is bool(text or calls)
    assert (answer.text, answer.calls, answer.refusal) == (text, calls, "refusal" in delta)


@pytest.mark.parametrize("reason", [{"a": 1}, 7, "\ud800", "x" * 10**6, []])
def test_an_odd_finish_reason_is_one_short_line(reason: Any) -> None:
    with pytest.raises(EngineError, match="ended the answer with") as failure:
        Answer().take(Event(json.dumps({"choices": [{"delta": {}, "finish_reason": reason}]})))
    assert len(str(failure.value)) < 500


@pytest.mark.parametrize(
    ("pieces", "tokens", "counts", "how"),
    [
        ([1, 2, 3], 3, [1, 1, 1], ONE_EACH),
        ([1, 2, 0], 2, [1, 1, 0], ONE_EACH),
        ([1, 2, 0], 3, [1, 1, 1], ONE_EACH),
        ([0], 1, [1], ONE_EACH),
        ([10, 10], 4, [2, 2], APPORTIONED),
        ([1, 99, 0], 10, [1, 9, 0], APPORTIONED),
        ([5, 5, 5, 5], 2, [1, 0, 0, 1], APPORTIONED),
        ([5, 5, 5], 1, [1, 0, 0], APPORTIONED),
        ([0, 0], 3, [0, 3], APPORTIONED),
    ],
)
def test_tokens_are_divided_over_stamps_and_never_counted_by_them(
    pieces: list[int], tokens: int, counts: list[int], how: str
) -> None:
    found, kind = apportion(pieces, tokens)
    assert (sum(found), kind) == (tokens, how)
    assert found == counts


def test_no_stamp_has_no_tokens() -> None:
    with pytest.raises(ValueError, match="no stamp"):
        apportion([], 3)


def test_tool_calls_are_tokens_that_nobody_reads() -> None:
    answer = Answer()
    call = {"index": 0, "function": {"name": "f", "arguments": '{"a"'}}
    assert answer.take(Event(json.dumps({"choices": [{"delta": {"tool_calls": [call]}}]})))
    assert (answer.text, answer.pieces) == ("", [5])


def test_an_error_is_found_wherever_it_is() -> None:
    assert error_in({"error": None, "choices": []}) is None
    assert error_in({"error": {"code": 7}}) == '{"code": 7}'
    assert error_in({"error": "a\n b"}) == "a b"


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(1, 200))
def test_no_token_is_lost_or_made(pieces: list[int], tokens: int) -> None:
    counts, _ = apportion(pieces, tokens)
    assert sum(counts) == tokens
    assert len(counts) == len(pieces)
    assert min(counts) >= 0
