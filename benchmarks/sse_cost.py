"""Measure the client's cost per chunk of reading a stream: ours against the `openai` package's.

    python benchmarks/sse_cost.py [--chunks 3000] [--repeats 7]

A server in a process of its own sends the chunks as mlx_lm.server shapes them, each in a write of its own. The figure
is the reading process's CPU time over the chunks, the two readers in turn; the median of the repeats is shown. The
`openai` package is no dependency: without it only our own figure is shown. An environment for it:

    python -m venv /tmp/sse && /tmp/sse/bin/pip install openai httpx psutil
    /tmp/sse/bin/python benchmarks/sse_cost.py

Chunks come 300 us apart, so that each is a read of its own, as a model's are; with --gap-us 0 many share one.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from workers.http.answer import Answer
from workers.http.client import Client
from workers.http.reply import Reply


def chunk(text: str | None, finish: str | None = None) -> bytes:
    """One chunk of an answer."""
    body = {
        "id": "chatcmpl-0b2d3f2e-1c7a-4b67-9d6f-2f1f0d7f8e55",
        "system_fingerprint": "0.32.2-0.32.4-macOS-26.0-arm64-arm-64bit-applegpu_g16s",
        "object": "chat.completion.chunk",
        "model": "default_model",
        "created": 1767225600,
        "choices": [{"index": 0, "finish_reason": finish, "delta": {"role": "assistant", "content": text}}],
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def serve(chunks: int, gap_s: float) -> None:
    """Answer every request with so many chunks; the port goes to standard output."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            one = chunk(" word")
            for _ in range(chunks):
                self.wfile.write(one)
                self.wfile.flush()
                if gap_s:
                    time.sleep(gap_s)
            self.wfile.write(chunk(None, "length") + b"data: [DONE]\n\n")

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def read_ours(url: str) -> Callable[[], int]:
    """Our client; how many pieces of text it saw."""
    client = Client(url)

    def read() -> int:
        reply = Reply(answer=Answer())
        for _ in client.stream("/v1/chat/completions", b"{}", reply, time.perf_counter_ns):
            pass
        return sum(size > 0 for size in reply.answer.pieces)

    return read


def read_openai(url: str) -> Callable[[], int]:
    """The `openai` package's client."""
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")

    def read() -> int:
        stream = client.chat.completions.create(
            model="default_model", messages=[{"role": "user", "content": "hello"}], stream=True
        )
        stamps = []
        for each in stream:
            if each.choices and each.choices[0].delta.content:
                stamps.append(time.perf_counter_ns())
        return len(stamps)

    return read


def main() -> None:
    """Print both figures and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--gap-us", type=float, default=300.0)
    parser.add_argument("--serve", action="store_true", help="be the server")
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.chunks, arguments.gap_us / 1e6)
        return
    command = [sys.executable, __file__, "--serve", "--chunks", str(arguments.chunks)]
    command += ["--gap-us", str(arguments.gap_us)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = server.stdout.readline().strip() if server.stdout else ""
            compare(f"http://127.0.0.1:{port}", arguments.chunks, arguments.repeats)
        finally:
            server.terminate()


def compare(url: str, chunks: int, repeats: int) -> None:
    """Read in turn, so that what else the machine does meets both."""
    readers = {"interlace": read_ours(url)}
    if find_spec("openai") is None:
        print("openai is not installed here: only our own cost is shown (see the top of this file)")
    else:
        readers["openai"] = read_openai(url)
    costs: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(repeats + 1):  # the first one warms up
        for name, read in readers.items():
            before_s = time.process_time()
            seen = read()
            costs[name].append((time.process_time() - before_s) / chunks * 1e6)
            if seen != chunks:
                raise SystemExit(f"{name} saw {seen} of {chunks} chunks")
    medians = {name: statistics.median(found[1:]) for name, found in costs.items()}
    for name, found in costs.items():
        print(f"{name:10} {medians[name]:7.1f} us CPU a chunk (from {min(found[1:]):.1f} to {max(found[1:]):.1f})")
    if "openai" in medians:
        print(f"openai / interlace = {medians['openai'] / medians['interlace']:.2f}")


if __name__ == "__main__":
    main()
