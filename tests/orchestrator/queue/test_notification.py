"""Whatever becomes of a notification is one note, without the address, and the night goes to its end."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.queue import notification
from orchestrator.queue.notification import COMMAND, WEBHOOK, notify

WORD = "t0psecretpath"


def told(value: str, *, name: str = WEBHOOK) -> list[str]:
    return notify("done", "a summary", Path("/tmp/x.md"), exit_code=0, environment={name: value})


@contextmanager
def answering(answer: bytes, *, over: threading.Event | None = None) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers every request so; with `over`, it keeps the connection until then."""
    listener, got = socket.create_server(("127.0.0.1", 0)), []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                got.append(connection.recv(65536))
                connection.sendall(answer)
                if over is not None:
                    over.wait()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/hooks/{WORD}", got
    finally:
        if over is not None:
            over.set()
        listener.close()


def test_a_webhook_gets_the_summary() -> None:
    with answering(b"HTTP/1.1 204 No Content\r\n\r\n") as (url, got):
        assert told(url) == []
    assert got[0].startswith(f"POST /hooks/{WORD} HTTP/1.1".encode())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "answered 500"),
        (b"HTTP/1.1 302 Found\r\nLocation: /t0psecretpath\r\nContent-Length: 0\r\n\r\n", "redirects are not followed"),
        (b"this is no HTTP /hooks/t0psecretpath\r\n\r\n", "not reached"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", "not reached"),
        (b"HTTP/1.1 20", "not reached"),
        (b"", "not reached"),
    ],
)
def test_a_server_that_answers_badly_is_one_note(answer: bytes, words: str) -> None:
    with answering(answer) as (url, _):
        (problem,) = told(url)
    assert problem.startswith(f"{WEBHOOK}: ")
    assert words in problem
    assert WORD not in problem


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:1/hooks/t0psecretpath token",
        "http://127.0.0.1:1/hooks/t0psecretpath",
        "http://127.0.0.1:t0psecretpath/",
        "http://127.0.0.1:99999999/t0psecretpath",
        "http://[::1/t0psecretpath",
        "http://[t0psecretpath]/",
        "http://t0psecretpath.invalid/",
        "http://münchen.invalid/t0psecretpath",
        "http://\udcff.invalid/t0psecretpath",
        "http://xn--\u200d/t0psecretpath",
        "http:///t0psecretpath",
        "https://127.0.0.1:1/t0psecretpath",
        "ftp://host/t0psecretpath",
        "http://127.0.0.1:99999/t0psecretpath",
        "t0psecretpath",
        "http://user:t0psecretpath@127.0.0.1:1/",
        "http://127.0.0.1:1/t0psecretpath\x00",
        "http://" + "a" * 300 + "/t0psecretpath",
    ],
)
def test_an_address_that_cannot_be_used_is_one_note(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (problem,) = told(address)
    assert WORD not in problem.replace("t0psecretpath.invalid", "")


def test_a_tls_server_that_is_none_is_one_note() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as (url, _):
        (problem,) = told(url.replace("http:", "https:"))
    assert "not reached" in problem


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nX-A: a", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nx"]
)
def test_an_answer_without_end_delays_nothing(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    has_head = b"\r\n\r\n" in answer
    monkeypatch.setattr(notification, "TIMEOUT_S", 60.0 if has_head else 0.3)
    with answering(answer, over=threading.Event()) as (url, _):
        problems = told(url)
    assert problems == [] if has_head else "within 0.3 s" in problems[0]


def test_a_proxy_of_the_environment_that_cannot_be_is_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "nonsense://me:t0psecretpath@:x")
    monkeypatch.setenv("no_proxy", "")
    (problem,) = told("http://198.51.100.1:1/")
    assert WORD not in problem


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("sh -c 'echo no $0 >&2; exit 3'", "ended with 3: no /tmp/x.md"),
        ("sh -c 'printf \"\\377\" >&2; exit 1'", "ended with 1"),
        ("/nonexistent/tool", "cannot be run"),
        ("sh -c 'unclosed", "is not a valid command line"),
        ("sh -c 'sleep 60'", "within"),
    ],
)
def test_a_command_that_fails_is_one_note(command: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "sleep" in command:
        monkeypatch.setattr(notification, "TIMEOUT_S", 0.3)
    (problem,) = told(command, name=COMMAND)
    assert words in problem


def test_a_command_that_works_says_nothing(tmp_path: Path) -> None:
    assert told(f"sh -c 'cat > {tmp_path / 'got'}'", name=COMMAND) == []
    assert (tmp_path / "got").read_text(encoding="utf-8") == "a summary"
    assert os.environ.get(COMMAND) is None
