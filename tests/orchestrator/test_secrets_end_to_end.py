"""A server that repeats the key in every way that it can: the key is in no file, no row and no line that interlace
leaves."""

import base64
import html
import json
import os
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.orchestrator.shells import run_here
from workers.masking import KNOWN

KEY = "sk-Lab/7+hostile=KEY&90"
WORD = "correct-horse.battery"
ENVIRONMENT = {
    "LAB_KEY": KEY,
    "LAB_WORD": WORD,
    "HTTPS_PROXY": "http://me:proxy-pass-word@127.0.0.1:9",
    "SENTRY_DSN": "https://0123abcd0123abcd@sentry.example/1",
    "INTERLACE_NOTIFY_WEBHOOK": "http://127.0.0.1:9/hooks/webhook-path-secret",
}
SECRETS = [KEY, WORD, "proxy-pass-word", "0123abcd0123abcd", "webhook-path-secret"]


def forms(secret: str) -> list[str]:
    raw = secret.encode()
    return [
        secret,
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        json.dumps(json.dumps(secret))[2:-2],
        html.escape(secret),
        raw.hex(),
        base64.b64encode(raw).decode().rstrip("="),
        base64.b64encode(b"u:" + raw).decode().rstrip("="),
    ]


class Echo(BaseHTTPRequestHandler):
    """Answers as the server's `mode` says, and always with what it was sent."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._tell(200, json.dumps({"data": [{"id": "m"}]}))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        mode = self.server.mode  # type: ignore[attr-defined]
        self.server.asked += 1  # type: ignore[attr-defined]
        sent = f"{self.headers} {body} {self.path}"
        if mode == "refuses":
            every = " ".join(form for secret in SECRETS[:2] for form in forms(secret))
            self._tell(401, json.dumps({"error": {"message": f"{every} {sent}"}}), header=KEY)
        elif mode == "refuses_late":  # cut off in the middle of the key
            self._tell(401, "x" * 285 + KEY, header=KEY)
        elif mode == "redirects":
            self._tell(302, sent, header=KEY)
        elif mode == "talks_garbage":
            self.wfile.write(f"HTTP/1.1 200 {KEY}\r\n{WORD} {KEY}\r\n\r\n".encode())
            self.close_connection = True
        else:
            self._stream(sent, tokens=min(16, json.loads(body)["max_tokens"]))

    def _tell(self, status: int, text: str, *, header: str = "") -> None:
        self.send_response(status, f"No {header}")
        self.send_header("Content-Length", str(len(text.encode())))
        self.send_header("Location", f"/?key={quote(header)}")
        self.send_header("X-Key", header)
        self.end_headers()
        self.wfile.write(text.encode())

    def _stream(self, sent: str, *, tokens: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        pieces = [f"{KEY} ", f"{WORD} ", KEY[:9], KEY[9:]]
        more: dict[str, Any] = {"id": KEY, "system_fingerprint": f"fp {KEY}", "model": KEY, "debug": sent}
        for piece in pieces:
            self._event({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]} | more)
        usage = {"prompt_tokens": 9, "completion_tokens": tokens}
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage} | more)
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, body: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(body).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Nothing on this process's own output."""


@contextmanager
def server(mode: str) -> Iterator[int]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    made.mode, made.asked = mode, 0  # type: ignore[attr-defined]
    threading.Thread(target=made.serve_forever, daemon=True).start()
    try:
        yield made.server_address[1]
        assert made.asked  # type: ignore[attr-defined]
    finally:
        made.shutdown()
        made.server_close()


def interlace(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command that knows no secret but those of its own environment and of what is stored."""
    KNOWN.clear()
    environment = {**os.environ, **ENVIRONMENT, "INTERLACE_DB": str(folder / "data" / "x.db"), "HOME": str(folder)}
    return run_here(*words, env=environment, folder=Path(__file__).parent.parent.parent)


def printer(folder: Path) -> Path:
    """A command that prints a server's log, secrets and all, straight to the worker's log."""
    path = folder / "printer"
    path.write_text('#!/bin/sh\necho "log: $LAB_KEY $LAB_WORD $SENTRY_DSN $HTTPS_PROXY"\nexec sleep 600\n')
    path.chmod(0o755)
    return path


def overrides(folder: Path, port: int) -> list[str]:
    return [
        "engine=openai_http",
        "engine.model=m",
        f"engine.url='http://u:${{oc.env:LAB_WORD}}@127.0.0.1:{port}'",
        "engine.body={k: '${oc.env:LAB_KEY}', m: {n: ['${oc.env:LAB_WORD}']}}",
        "engine.environment={PROXY: '${oc.env:HTTPS_PROXY}', WORD: '${oc.env:LAB_WORD}'}",
        "engine.api_key_env=LAB_KEY",
        f"engine.log_command={printer(folder)}",
        *("checkpoint=dummy-tiny", "workload=quick", "design=quick", "design.rounds=6"),
        *("design.warmups=0", "gate=none"),
    ]


def leaks(folder: Path, said: list[str]) -> list[str]:
    """Return the places that hold a secret in any form."""
    texts = {f"output {number}": text.encode() for number, text in enumerate(said)}
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "printer":
            texts[str(path.relative_to(folder))] = path.read_bytes()
        if path.suffix == ".interlace":
            with zipfile.ZipFile(path) as packed:
                texts |= {f"{path.name}/{name}": packed.read(name) for name in packed.namelist()}
    wanted = [form.encode() for secret in SECRETS for form in forms(secret)]
    return [
        f"{where}: {text[max(0, text.find(form) - 80) : text.find(form) + 40]!r}"
        for where, text in texts.items()
        for form in wanted
        if form in text
    ]


SLOW = [pytest.param(mode, marks=pytest.mark.slow) for mode in ("refuses_late", "redirects", "talks_garbage")]


@pytest.mark.parametrize("mode", ["refuses", *SLOW])
def test_a_server_that_repeats_the_key_puts_it_nowhere(tmp_path: Path, mode: str) -> None:
    with server(mode) as port:
        ran = interlace(tmp_path, "run", *overrides(tmp_path, port))
    assert ran.returncode in (2, 4), ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert leaks(tmp_path, [ran.stdout, ran.stderr]) == []


@pytest.mark.nightly  # a process for each command and format
def test_a_server_that_answers_with_the_key_puts_it_nowhere(tmp_path: Path) -> None:
    with server("answers") as port:
        said = [interlace(tmp_path, "plan", *overrides(tmp_path, port), "--json")]
        said += [interlace(tmp_path, "run", *overrides(tmp_path, port))]
    said += [interlace(tmp_path, "audit")]
    said += [interlace(tmp_path, "report", "-o", str(tmp_path / "r.html"), "--markdown", str(tmp_path / "r.md"))]
    said += [interlace(tmp_path, "db", "export", "-o", str(tmp_path / "r.interlace"))]
    said += [interlace(tmp_path, "query", "SELECT * FROM run, arm, trial, generation LIMIT 5", "--format", "csv")]
    assert "${oc.env:LAB_KEY}" in said[0].stdout
    assert [each.returncode for each in said] == [0] * len(said), "\n".join(each.stderr for each in said)
    assert leaks(tmp_path, [text for each in said for text in (each.stdout, each.stderr)]) == []
