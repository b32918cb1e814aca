"""A server that plays a script: oMLX's command line, files, log, counters and answers, faults included.

A real process with real sockets that renames itself as oMLX does. Started as

    python scripted_server.py SCRIPT serve --base-path DIR --model-dir DIR --port N

SCRIPT names what happens; what was asked for it reads from the settings that the engine wrote:

    good            the mechanism runs
    start_failed    DFlash fails while the model loads; every answer is 200 and plain
    evicted         the second request after the load evicts DFlash; all later ones run plain
    zero_tokens     loaded, then 0 tokens
    useless         it drafts and nothing is accepted
    incompatible    MTP: the model has no heads
    dies            ends before it listens
    dies_later      ends in the middle of the third answer
    never_ready     503 to every completion
    stubborn        ignores SIGTERM, and a child of its own does too
    broken          the cause of every HTTP 500 stands in its log only
    breaks_later    so it does from the second answer on
    silent_counters the counters cannot be read: HTTP 404
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WORDS = list("A list of no")  # each a token of the tests' checkpoints, which have one for each byte
TOKEN_S = 0.002


class State:
    """The server's own state."""

    def __init__(self, script: str, base: Path, models: Path) -> None:
        self.script = script
        self.settings = json.loads((base / "settings.json").read_text())
        all_settings = json.loads((base / "model_settings.json").read_text())["models"]
        (self.model,) = all_settings
        assert (models / self.model / "config.json").is_file()
        own = all_settings[self.model]
        self.mechanism = "dflash" if own["dflash_enabled"] else "mtp" if own["mtp_enabled"] else None
        self.key = self.settings["auth"]["api_key"]
        self.answers = 0
        self.totals = dict.fromkeys(
            ("requests", "speculative_requests", "fallback_requests", "cycles", "accepted_draft_tokens"), 0
        )
        self.loaded = False
        self.plain = script == "start_failed"

    def log(self, line: str) -> None:
        sys.stderr.write(f"2026-01-01 00:00:00,000 - omlx - INFO - {line}\n")
        sys.stderr.flush()

    def load(self) -> None:
        if self.loaded:
            return
        self.loaded = True
        if self.mechanism == "dflash":
            self.log(f"DFlash enabled for {self.model}")
            if self.plain:
                self.log(
                    f"DFlash start failed for {self.model}: Received 23 parameters not in model. Falling back to"
                    " batched engine."
                )
                self.log(f"Successfully loaded {self.model} as batched (fallback from DFlash)")
            else:
                self.log(f"DFlashEngine loaded: target={self.model}, draft=d, max_ctx=4096, fallback=batched")
        elif self.mechanism == "mtp" and self.script == "incompatible":
            self.log(f"mtp_enabled=True for {self.model} but model is incompatible (x); MTP path will be inactive")

    def finish(self, tokens: int) -> None:
        """Log and count a complete answer."""
        self.answers += 1
        if self.script == "evicted" and self.answers == 3 and not self.plain:
            self.log("DFlash context fallback: 9000 >= 8192, evicting dflash models and switching to batched engine")
            self.plain = True
        if self.mechanism == "dflash" and not self.plain:
            self._finish_dflash(tokens)
        elif self.mechanism == "mtp" and self.script != "incompatible":
            accepted = 0 if self.script == "useless" else tokens // 2
            self.log(f"MTP path activated for uid={self.answers}")
            self.log(
                f"MTP[{self.answers}] finish=length tokens={tokens} cycles={tokens} accept={accepted}/{tokens} (x%) y"
            )

    def _finish_dflash(self, tokens: int) -> None:
        cycles = max(1, tokens // 3)
        accepted = 0 if self.script == "useless" else tokens - cycles
        self.totals["requests"] += 1
        self.totals["speculative_requests"] += 1
        self.totals["cycles"] += cycles
        self.totals["accepted_draft_tokens"] += accepted
        shown = 0 if self.script == "zero_tokens" else tokens
        self.log(
            f"DFlash generation complete: {shown} tokens, 38.2 tok/s, acceptance=67.2%, cycles={cycles},"
            " phases[prefill=0.1s]"
        )

    def stats(self) -> dict[str, Any]:
        speculation = {"last": {"fallback_ar": False}, "totals": self.totals}
        model = {"id": self.model, "engine_type": "batched", "dflash": {"speculation": speculation}}
        return {"active_models": {"models": [model]}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State  # set once, before the first request

    def do_GET(self) -> None:
        if self.path == "/admin/api/stats" and self.state.script != "silent_counters":
            allowed = f"session={self.state.key}" in self.headers.get("Cookie", "")
            self.answer(self.state.stats() if allowed else {"detail": "login first"}, 200 if allowed else 401)
        else:
            self.answer({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/admin/api/login":
            good = body.get("api_key") == self.state.key
            cookie = {"Set-Cookie": f"session={self.state.key}; Path=/"} if good else {}
            self.answer({"success": good}, 200 if good else 401, cookie)
        elif self.headers.get("Authorization") != f"Bearer {self.state.key}":
            self.answer({"error": {"message": "Invalid API key"}}, 401)
        elif self.state.script == "never_ready":
            self.answer({"error": {"message": "loading"}}, 503)
        elif self.state.script == "broken" or (self.state.script == "breaks_later" and self.state.answers):
            self.answer({"error": {"message": "Internal server error"}}, 500)
            try:
                raise KeyError(18)
            except KeyError:
                traceback.print_exc()
        else:
            self.complete(body)

    def complete(self, body: dict[str, Any]) -> None:
        assert body["model"] == self.state.model
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.event({"id": "chatcmpl-keepalive", "model": "keepalive", "choices": [{"delta": {"content": ""}}]})
        self.state.load()
        self.event({"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]})
        tokens = 0 if self.state.script == "zero_tokens" and self.state.mechanism else body["max_tokens"]
        for place in range(tokens):
            time.sleep(TOKEN_S)
            if self.state.script == "dies_later" and self.state.answers == 2 and place == 2:
                os._exit(3)
            word = WORDS[place % len(WORDS)]
            self.event({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]})
        # DFlash says "stop" at the limit too.
        reason = "stop" if self.state.mechanism == "dflash" else "length"
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        prompt = 20 + sum(len(message["content"]) for message in body["messages"])
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "prompt_tokens_details": None}
        self.event({"choices": [], "usage": usage | {"time_to_first_token": 0.01}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")
        self.state.finish(tokens)  # after the answer: whoever reads at once is too early

    def event(self, body: dict[str, Any]) -> None:
        self.chunk(b"data: " + json.dumps(body).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def answer(self, body: dict[str, Any], status: int, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return


def rename() -> None:
    """As oMLX does: the command line is gone from the process's title."""
    import setproctitle

    setproctitle.setproctitle("omlx-server")


def main(arguments: list[str]) -> None:
    script, command, *options = arguments
    assert command == "serve"
    named = dict(zip(options[::2], options[1::2], strict=True))
    if script == "dies":
        sys.exit("no such model here")
    if script == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code])
    rename()
    Handler.state = State(script, Path(named["--base-path"]), Path(named["--model-dir"]))
    ThreadingHTTPServer(("127.0.0.1", int(named["--port"])), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
