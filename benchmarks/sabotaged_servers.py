"""Sabotage attached servers, and count the generations that are taken for what they were not.

    python benchmarks/sabotaged_servers.py [--generations 1000] [--seed 0] [--presets vllm,ollama]

A stand-in of each preset is a process of its own that speaks HTTP and writes a log, in the shapes of the catalogue. Our
requests are the real engine's, over real sockets. A request of ours says in its body whether this stand-in speculates
for it; the second client, a process too, always gets speculation. Wrong: the mechanism was asked for, did not run, and
the generation counts as engaged. Honest: it ran, nothing interfered, and it counts.

`twin` is the second client with requests of exactly our size: where a server's signs tell nothing but a size, only the
connection that is seen, or a second line, distinguishes them.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from workers.catalogue.signs import load
from workers.engines import openai_http
from workers.engines.base import TurnRequest
from workers.engines.openai_http import OpenaiHttp
from workers.errors import EngineError
from workers.stopwatch import Stopwatch
from workers.supervision.server_process import HOST, free_port, port_is_open

TOKEN_S = 0.004
START_S = 120.0
WAIT_S = 0.15  # for signs; the presets' own waits are for programs that take longer
PROMPT = "Write down what a linked list is, and how an element is removed from it."
PROMPT_TOKENS = 21
PRESETS = ("llama_cpp", "llama_cpp_old", "lm_studio", "mlx_vlm", "mlx_vlm_old", "ollama", "mlx_serve", "vllm", "sglang")
PRESETS += ("omlx", "omlx_mtp", "dflash_mlx", "rapid_mlx", "mlx_lm_server")
MECHANISMS = {"omlx": "dflash", "dflash_mlx": "dflash", "omlx_mtp": "mtp", "mlx_serve": "mtp"}


def preset_of(kind: str) -> str:
    """A stand-in may be an older version of a preset's program."""
    return kind.removesuffix("_old").removesuffix("_mtp")


# ---- the stand-in ----


@dataclass
class Server:
    """The counters and the log of a simulated server."""

    kind: str
    log: Path
    started: float = field(default_factory=time.time)
    totals: Counter[str] = field(default_factory=Counter)
    last: dict[str, Any] | None = None
    running: int = 0
    late_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def say(self, *lines: str) -> None:
        """One write, as programs that print a block at a time."""
        with self.log.open("a") as log:
            log.write("".join(f"{line}\n" for line in lines))

    def finish(self, prompt: int, tokens: int, *, speculated: bool) -> tuple[dict[str, Any], list[str]]:
        """Count a request; what its answer holds beside the usage, and its lines."""
        cycles = max(1, tokens // 3)
        accepted, drafted = tokens - cycles, 4 * cycles
        with self.lock:
            self.totals.update(requests=1, prompt=prompt, generated=tokens)
            if speculated:
                self.totals.update(drafted=drafted, accepted=accepted, cycles=cycles, speculative=1)
            self.last = {
                "request_id": self.totals["requests"],
                "mode_used": "dflash" if speculated else "ar_fastpath",
                "prompt_tokens": prompt if speculated else None,
                "generated_tokens": tokens if speculated else None,
                "cycles": cycles if speculated else None,
                "acceptance_rate": accepted / tokens if speculated else None,
            }
        return self.answer(drafted, accepted, tokens, speculated), self.lines(
            prompt, tokens, cycles, accepted, drafted, speculated
        )

    def answer(self, drafted: int, accepted: int, tokens: int, speculated: bool) -> dict[str, Any]:
        if self.kind in ("llama_cpp", "mlx_vlm"):
            counts = {"draft_n": drafted, "draft_n_accepted": accepted} if speculated else {}
            return {"timings": {"predicted_n": tokens} | counts}
        if self.kind == "lm_studio" and speculated:
            return {"stats": {"total_draft_tokens_count": drafted, "accepted_draft_tokens_count": accepted}}
        return {}

    def lines(self, prompt: int, tokens: int, cycles: int, accepted: int, drafted: int, speculated: bool) -> list[str]:
        """The log lines that the server prints after a request."""
        share = accepted / tokens
        plain = {
            "dflash_mlx": [f"[dflash] fast-path AR | max_tokens={tokens} threshold=256"],
            "llama_cpp_old": [f"       eval time =  14.42 ms / {tokens:5d} tokens ( x ms per token)"],
        }
        spoken = {
            "llama_cpp": [f"draft acceptance = 0.6 ({accepted:5d} accepted / {drafted:5d} generated), mean x"],
            "llama_cpp_old": [
                f"prompt eval time = 120.29 ms / {prompt:5d} tokens ( x ms per token)",
                f"       eval time =  14.42 ms / {tokens:5d} tokens ( x ms per token)",
                f"      total time =  15.71 ms / {prompt + tokens:5d} tokens",
                f"draft acceptance rate = 0.57143 ({accepted:5d} accepted / {drafted:5d} generated)",
            ],
            "mlx_vlm": [
                f"Speculative decode: kind=dflash batch=1 tokens={tokens} accept=2.9 rounds={cycles} drafted={drafted}"
            ],
            "ollama": [
                f'level=DEBUG msg="speculative decode stats" iterations={cycles} drafted={drafted} accepted={accepted}'
                f" acceptance={share:.2f} avg_draft=4.00"
            ],
            "mlx_serve": [f"[spec-stats] mode=mtp attempts={cycles} accepts={accepted} avg_per_round=2 x=false"],
            "vllm": [f"SpecDecoding metrics: x, Accepted: {accepted} tokens, Drafted: {drafted} tokens, x"],
            "sglang": [f"Decode batch. #running-req: 1, #token: {prompt + tokens}, token usage: 0, accept len: 2.9, x"],
            "omlx": [f"DFlash generation complete: {tokens} tokens, 38 tok/s, acceptance={share:.1%}, cycles={cycles}"],
            "omlx_mtp": [
                f"MTP[{self.totals['requests']}] finish=length tokens={tokens} cycles={cycles}"
                f" accept={accepted}/{max(accepted, cycles)} (x%) x"
            ],
            "dflash_mlx": [
                f"[dflash] decode 98.1 tok/s | {share * 100:.1f}% accepted | {tokens} tokens | 0.1s"
                f" | prompt: {prompt} tokens"
            ],
        }
        spoken["mlx_vlm_old"] = spoken["mlx_vlm"]
        return (spoken if speculated else plain).get(self.kind, [])

    def figures(self, path: str) -> str:
        """The response body of a path."""
        totals, name = self.totals, self.kind
        if path == "/v1/models":
            return json.dumps({"data": [{"id": "m"}]})
        if name == "dflash_mlx" and path == "/metrics":
            return json.dumps({"last_request": self.last, "current_request": {"state": "x"} if self.running else None})
        if name == "omlx" and path == "/admin/api/stats":
            speculation = {
                "requests": totals["speculative"],
                "cycles": totals["cycles"],
                "accepted_draft_tokens": totals["accepted"],
                "fallback_requests": 0,
            }
            model = {"id": "m", "dflash": {"speculation": {"last": {}, "totals": speculation}}}
            whole = {"total_requests": totals["requests"], "total_completion_tokens": totals["generated"]}
            return json.dumps(whole | {"active_models": {"models": [model]}})
        if name in ("vllm", "sglang") and path == "/metrics":
            served = {"vllm": "request_success_total", "sglang": "num_requests_total"}[name]
            busy = {"vllm": "num_requests_running", "sglang": "num_running_reqs"}[name]
            counted = {"generation_tokens_total": totals["generated"], served: totals["requests"], busy: self.running}
            if name == "vllm":
                counted |= {
                    "prompt_tokens_total": totals["prompt"],
                    "spec_decode_num_draft_tokens_total": totals["drafted"],
                    "spec_decode_num_accepted_tokens_total": totals["accepted"],
                    "spec_decode_num_drafts_total": totals["cycles"],
                }
            text = "".join(f'{name}:{key}{{engine="0"}} {value}\n' for key, value in counted.items())
            return f"{text}process_start_time_seconds {self.started}\n"
        return ""


def serve(kind: str, port: int, log: str) -> None:
    """Run the stand-in until it is killed."""
    server = Server(kind=kind, log=Path(log))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            text = server.figures(self.path)
            self.reply(text.encode(), 200 if text else 404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            orders = json.loads(body.get("user", "{}"))
            tokens, speculated = body["max_tokens"], orders.get("speculate", True)
            prompt = orders.get("prompt", PROMPT_TOKENS)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            if "signal" in orders:
                Path(orders["signal"]).touch()
            if jump := orders.get("jump"):  # figures as after a restart: others, and another start
                server.totals.update(jump["totals"])
                server.started = time.time() if jump["restarted"] else server.started
            server.running += 1
            for _ in range(tokens):
                time.sleep(TOKEN_S / 2 if speculated else TOKEN_S)
                self.event({"choices": [{"index": 0, "delta": {"content": " a"}}]})
            more, lines = server.finish(prompt, tokens, speculated=speculated)
            server.running -= 1
            self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]} | more)
            usage = {"prompt_tokens": prompt, "completion_tokens": tokens}
            self.event({"choices": [], "usage": usage})
            late_s = orders.get("late_s", 0.0)
            if late_s:
                threading.Timer(late_s, server.say, lines).start()
            else:
                server.say(*lines)
            self.wfile.write(b"data: [DONE]\n\n")

        def event(self, body: Mapping[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps(body)}\n\n".encode())
            self.wfile.flush()

        def reply(self, data: bytes, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    ThreadingHTTPServer((HOST, port), Handler).serve_forever()


def be_client() -> None:
    """The second client: for each line of stdin one request, of (url, tokens, prompt, delay in seconds)."""
    for line in sys.stdin:
        url, tokens, prompt, delay_s = json.loads(line)
        time.sleep(delay_s)
        ask(url, tokens, {"prompt": prompt})
        print("done", flush=True)


def ask(url: str, tokens: int, orders: Mapping[str, Any]) -> None:
    """One request, read to its end."""
    body = {"model": "m", "messages": [], "max_tokens": tokens, "user": json.dumps(orders)}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


# ---- the sabotage ----


@dataclass
class Stage:
    """One stand-in with its log, our engine, and the second client."""

    kind: str
    port: int
    log: Path
    luck: random.Random
    process: "subprocess.Popen[bytes]"
    client: "subprocess.Popen[str]"
    engine: OpenaiHttp | None = None
    waiting: int = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def ours(
        self, tokens: int, *, speculate: bool, meanwhile: Callable[[], None] | None = None, **orders: Any
    ) -> bool | None:
        """Send a request as an arm does, and return the result of its evidence.

        Args:
            meanwhile: called once the server has our request.
            orders: what else the stand-in is to do with it: `late_s`, `jump`.
        """
        engine = self.engine or self.attach()
        signal = self.log.with_suffix(".signal")
        signal.unlink(missing_ok=True)
        body = {"user": json.dumps({"speculate": speculate, "signal": str(signal)} | orders)}
        helper = threading.Thread(target=lambda: self._once(signal, meanwhile))
        engine.own = replace(engine.own, body=body)
        engine.start_conversation()
        messages = [{"role": "user", "content": PROMPT}]
        engine.prepare(TurnRequest(messages=messages, turn=0, max_tokens=tokens, seed=0))
        helper.start()
        Stopwatch(engine.clock).time(engine.answer)
        found = engine.finish().evidence[0].engaged
        helper.join()
        return found

    def _once(self, signal: Path, act: Callable[[], None] | None) -> None:
        deadline = time.monotonic() + 5.0
        while act is not None and time.monotonic() < deadline:
            if signal.exists():
                act()
                return
            time.sleep(0.001)

    def attach(self) -> OpenaiHttp:
        settings = {
            "url": self.url,
            "preset": preset_of(self.kind),
            "mechanism": MECHANISMS.get(self.kind, "draft_model"),
            "log_file": str(self.log),
        }
        checkpoint = {"name": "m", "source": "hub", "hub_id": "a/b"}
        self.engine = OpenaiHttp(settings=settings, checkpoint=checkpoint, draft=None, sampling={"name": "greedy"})
        self.engine.load()
        return self.engine

    def other(self, tokens: int, prompt: int) -> None:
        """Let the second client send a request, a moment from now."""
        assert self.client.stdin is not None
        self.client.stdin.write(json.dumps([self.url, tokens, prompt, self.luck.uniform(0, 0.02)]) + "\n")
        self.client.stdin.flush()
        self.waiting += 1

    def settle(self) -> None:
        """Wait for the second client's requests."""
        assert self.client.stdout is not None
        for _ in range(self.waiting):
            self.client.stdout.readline()
        self.waiting = 0

    def restart(self) -> None:
        """Start another process on the same port, with a new log."""
        self.process.kill()
        self.process.wait()
        self.process = launch(self.kind, self.port, self.log)


def launch(kind: str, port: int, log: Path) -> "subprocess.Popen[bytes]":
    log.write_text("started\n" * 50)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        process = subprocess.Popen([sys.executable, __file__, "--serve", kind, str(port), str(log)])
        while process.poll() is None and time.monotonic() < deadline:
            if port_is_open(port):
                return process
            time.sleep(0.02)
        process.kill()
        process.wait()
        time.sleep(0.5)  # the port may be in use for a moment by a connection that is ending
    raise SystemExit(f"the stand-in of {kind} does not start on port {port}")


def size(luck: random.Random) -> int:
    return luck.randint(6, 24)


def lonely(stage: Stage) -> bool | None:
    return stage.ours(size(stage.luck), speculate=False)


def second_client(stage: Stage) -> bool | None:
    theirs, prompt = size(stage.luck), stage.luck.choice([PROMPT_TOKENS, 40])
    return stage.ours(25 + size(stage.luck), speculate=False, meanwhile=lambda: stage.other(theirs, prompt))


def twin(stage: Stage) -> bool | None:
    tokens = size(stage.luck)
    return stage.ours(tokens, speculate=False, meanwhile=lambda: stage.other(tokens, PROMPT_TOKENS))


def late(stage: Stage) -> bool | None:
    tokens = size(stage.luck)
    stage.ours(tokens, speculate=True, late_s=WAIT_S + stage.luck.uniform(0.0, 0.1))
    return stage.ours(tokens, speculate=False)


def rotated(stage: Stage) -> bool | None:
    """Older lines in another file, or in the same one written anew; of our own size as well."""
    tokens = size(stage.luck)
    old = Server(kind=stage.kind, log=stage.log).finish(PROMPT_TOKENS, tokens, speculated=True)[1]

    def act() -> None:
        if stage.luck.random() < 0.5:
            stage.log.rename(stage.log.with_suffix(".1"))
        filler = "older\n" * stage.luck.choice([0, 2000])
        stage.log.write_text("".join(f"{line}\n" for line in old) + filler)

    return stage.ours(tokens, speculate=False, meanwhile=act)


def jumped(stage: Stage) -> bool | None:
    """Counters as of another process, which warmed up with speculation, read between before and after."""
    tokens = size(stage.luck)
    warm = {"requests": 1, "prompt": 9, "generated": tokens + 5, "drafted": 40, "accepted": 9, "cycles": 5}
    jump = {"totals": warm, "restarted": stage.luck.random() < 0.5}
    return stage.ours(tokens, speculate=False, jump=jump)


def restarted(stage: Stage) -> bool | None:
    stage.restart()
    ask(stage.url, size(stage.luck), {})  # warmed up by somebody
    return stage.ours(size(stage.luck), speculate=False)


def honest(stage: Stage) -> bool | None:
    return stage.ours(size(stage.luck), speculate=True)


WRONG: dict[str, Callable[[Stage], bool | None]] = {
    "alone": lonely,
    "second client": second_client,
    "twin": twin,
    "late line": late,
    "log rotated": rotated,
    "counters jumped": jumped,
    "restarted": restarted,
}


@contextmanager
def staged(kind: str, folder: Path, seed: int) -> Iterator[Stage]:
    port, log = free_port(), folder / f"{kind}.log"
    client = subprocess.Popen(
        [sys.executable, __file__, "--client"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    stage = Stage(
        kind=kind, port=port, log=log, luck=random.Random(seed), process=launch(kind, port, log), client=client
    )
    try:
        stage.other(6, PROMPT_TOKENS)
        stage.settle()
        yield stage
    finally:
        if stage.engine is not None:
            stage.engine.close()
        for process in (stage.process, client):
            process.kill()
            process.wait()


def trial(stage: Stage, act: Callable[[Stage], bool | None]) -> str:
    """The outcome of one generation."""
    try:
        found = act(stage)
    except (EngineError, OSError):
        return "refused"
    finally:
        stage.settle()
    return {True: "engaged", False: "not engaged", None: "unknown"}[found]


def run(presets: tuple[str, ...], generations: int, seed: int) -> tuple[Counter[str], Counter[str]]:
    """Run every scenario on every preset; count the outcomes of wrong and honest generations by preset and kind."""
    openai_http.load_preset = lambda name: replace(load(name), wait_s=WAIT_S)  # type: ignore[attr-defined]
    each = -(-generations // (len(presets) * len(WRONG)))
    admitted: Counter[str] = Counter()
    told: Counter[str] = Counter()
    print(f"{'preset':14} {'scenario':16} {'n':>4} {'engaged':>8} {'unknown':>8} {'not engaged':>12} {'refused':>8}")
    with tempfile.TemporaryDirectory(prefix="sabotage-") as folder:
        for number, kind in enumerate(presets):
            with staged(kind, Path(folder), seed + number) as stage:
                for name, act in {"honest": honest, **WRONG}.items():
                    found = Counter(trial(stage, act) for _ in range(each))
                    (told if name == "honest" else admitted).update({name: found["engaged"], f"n {name}": each})
                    shown = [found[word] for word in ("engaged", "unknown", "not engaged", "refused")]
                    print(
                        f"{kind:14} {name:16} {each:4d} {shown[0]:8d} {shown[1]:8d} {shown[2]:12d} {shown[3]:8d}",
                        flush=True,
                    )
    return admitted, told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=1000, help="wrong ones, over all presets and scenarios")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--presets", default=",".join(PRESETS))
    parser.add_argument("--serve", nargs=3, metavar=("KIND", "PORT", "LOG"), help=argparse.SUPPRESS)
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve[0], int(given.serve[1]), given.serve[2])
    elif given.client:
        be_client()
    else:
        admitted, told = run(tuple(given.presets.split(",")), given.generations, given.seed)
        for name in WRONG:
            print(f"{name}: {admitted[name]} of {admitted[f'n {name}']} wrong generations counted as engaged")
        total = sum(admitted[f"n {name}"] for name in WRONG)
        print(f"wrong: {sum(admitted[name] for name in WRONG)} of {total}")
        print(f"honest: {told['honest']} of {told['n honest']} counted")


if __name__ == "__main__":
    main()
