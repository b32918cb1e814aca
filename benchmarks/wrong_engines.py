"""Real servers under a second client: count the generations that are taken for what they were not.

    python benchmarks/wrong_engines.py [--generations 100] [--seed 0] | cat

The pipe matters: where the output is a file, launched servers print into that file.

The real `dflash serve`, as interlace launches it and attached by its address and log, and the real `mlx_lm.server`,
attached; each attached one is also restarted between two requests and while one runs, with its log rotated. The models
are tiny. Of `dflash serve`, requests of up to 32 tokens decode plainly: ours do, and the second client's, which are
longer, are drafted at the same time, by the same server, into the same log and figures. Wrong: a request of ours that
decoded plainly counts as engaged. Honest: a long one of ours, alone, counts. `mlx_lm.server` has no draft at all, and
the settings claim one. `sabotaged_servers.py` does the same with stand-ins of all presets.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.workers import tiny_drafts
from tests.workers.environments import lent_package
from workers.engines.base import Engine, TurnRequest
from workers.engines.dflash_server import DflashServer
from workers.engines.mlx_lm_server import MlxLmServer
from workers.engines.openai_http import OpenaiHttp
from workers.engines.server_launch import LaunchedEngine
from workers.errors import EngineError
from workers.stopwatch import Stopwatch
from workers.supervision.server_process import free_port

GREEDY: dict[str, Any] = {"name": "greedy", "temperature": 0.0}
PLAIN_TOKENS = 32  # of a request, at most, that is decoded plainly
PROMPT = "Write down what a linked list is."


@dataclass
class Stage:
    """A real server with its log, the engine that asks it, and who else does."""

    engine: Engine
    url: str
    log: Path
    luck: random.Random
    server: "Restartable | None" = None  # if the server is ours to restart

    def ours(self, tokens: int) -> bool | None:
        """One conversation of one turn; what the evidence says of it."""
        self.engine.start_conversation()
        messages = [{"role": "user", "content": PROMPT}]
        request = TurnRequest(messages=messages, turn=0, max_tokens=tokens, seed=3, sequence=0, sequence_total=1)
        self.engine.prepare(request)
        Stopwatch(self.engine.clock).time(self.engine.answer)
        found = self.engine.finish().evidence[0]  # of the mechanism; others tell of parts of it
        self.engine.settle()
        return found.engaged

    def ours_plain(self) -> bool | None:
        return self.ours(self.luck.randint(8, PLAIN_TOKENS))

    def theirs(self) -> None:
        """The second client's request, read to its end."""
        tokens = self.luck.randint(PLAIN_TOKENS + 1, 64)
        body = {"model": "default_model", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": tokens}
        asked = urllib.request.Request(f"{self.url}/v1/chat/completions", json.dumps(body | {"stream": True}).encode())
        asked.add_header("Content-Type", "application/json")
        with suppress(OSError), urllib.request.urlopen(asked, timeout=60) as found:
            found.read()


def alone(stage: Stage) -> bool | None:
    return stage.ours_plain()


def after_theirs(stage: Stage) -> bool | None:
    """Wait for the server's lines and figures, which may come late."""
    stage.theirs()
    return stage.ours_plain()


def during_theirs(stage: Stage) -> bool | None:
    client = threading.Thread(target=stage.theirs)
    client.start()
    try:
        return stage.ours_plain()
    finally:
        client.join()


def theirs_meanwhile(stage: Stage) -> bool | None:
    client = threading.Timer(stage.luck.uniform(0, 0.05), stage.theirs)
    client.start()
    try:
        return stage.ours_plain()
    finally:
        client.join()


def log_rewritten(stage: Stage) -> bool | None:
    """The log begins anew with its own older lines while our request runs."""
    older = stage.log.read_bytes()
    writer = threading.Timer(stage.luck.uniform(0, 0.05), stage.log.write_bytes, (older,))
    writer.start()
    try:
        return stage.ours_plain()
    finally:
        writer.join()


def log_truncated(stage: Stage) -> bool | None:
    """The log is emptied while our request runs, after a drafted one of theirs."""
    stage.theirs()
    writer = threading.Timer(stage.luck.uniform(0, 0.05), os.truncate, (stage.log, 0))
    writer.start()
    try:
        return stage.ours_plain()
    finally:
        writer.join()


def late_lines(stage: Stage) -> bool | None:
    """The lines of an earlier request come while ours runs."""
    before = stage.log.stat().st_size
    stage.theirs()
    time.sleep(0.3)
    lines = stage.log.read_bytes()[before:]

    def append() -> None:
        with stage.log.open("ab") as log:
            log.write(lines)

    writer = threading.Timer(stage.luck.uniform(0, 0.1), append)
    writer.start()
    try:
        return stage.ours_plain()
    finally:
        writer.join()


def restarted(stage: Stage) -> bool | None:
    """Another process stands behind the port, and its figures begin anew."""
    if stage.server is not None:
        stage.server.restart()
    return stage.ours_plain()


def restarted_and_used(stage: Stage) -> bool | None:
    """As before; the second client has made its figures higher than they were."""
    if stage.server is not None:
        stage.server.restart()
    for _ in range(3):
        stage.theirs()
    return stage.ours_plain()


def restarted_meanwhile(stage: Stage) -> bool | None:
    """The restart meets our request: it fails, or the new process answers it beside theirs."""
    restart = threading.Timer(stage.luck.uniform(0, 0.1), stage.server.restart if stage.server else stage.theirs)
    restart.start()
    try:
        return during_theirs(stage)
    finally:
        restart.join()


def restarted_with_a_rotated_log(stage: Stage) -> bool | None:
    """The old log moves away, and the new process writes another file of its name."""
    if stage.server is not None:
        stage.server.restart(rotate=True)
    stage.theirs()
    return stage.ours_plain()


def honest(stage: Stage) -> bool | None:
    return stage.ours(PLAIN_TOKENS + 16)


WRONG: dict[str, Callable[[Stage], bool | None]] = {
    "alone": alone,
    "after theirs": after_theirs,
    "during theirs": during_theirs,
    "theirs meanwhile": theirs_meanwhile,
    "log rewritten": log_rewritten,
    "log truncated": log_truncated,
    "late lines": late_lines,
}
RESTARTS: dict[str, Callable[[Stage], bool | None]] = {
    "restarted": restarted,
    "restarted, used": restarted_and_used,
    "restarted meanwhile": restarted_meanwhile,
    "restarted, log rotated": restarted_with_a_rotated_log,
    "after theirs": after_theirs,
    "during theirs": during_theirs,
    "log truncated": log_truncated,
    "late lines": late_lines,
}


class Restartable:
    """A real server as a user starts it: on its own, at a fixed port, with a log file."""

    def __init__(self, launched: LaunchedEngine, folder: Path) -> None:
        folder.mkdir()
        port = free_port()
        self._spec = launched._command(port, folder)  # noqa: SLF001 - those of a real launch
        self.url, self.log = f"http://127.0.0.1:{port}", folder / "server.log"
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            environment = os.environ | dict(self._spec.environment)
            self._popen = subprocess.Popen(
                list(self._spec.command), stdout=log, stderr=log, env=environment, cwd=self._spec.folder
            )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/v1/models", timeout=5):
                return
            time.sleep(0.05)
        raise TimeoutError("the server did not come back")

    def restart(self, *, rotate: bool = False) -> None:
        self.stop()
        if rotate:
            self.log.rename(self.log.with_suffix(f".{time.monotonic_ns()}"))
        self.start()

    def stop(self) -> None:
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()


@contextmanager
def loaded(engine: Engine) -> Iterator[Engine]:
    engine.load()
    try:
        yield engine
    finally:
        engine.close()


def attached(launched: LaunchedEngine, checkpoint: dict[str, Any], *, preset: str, mechanism: str) -> OpenaiHttp:
    return _attached(*place_of(launched), checkpoint, preset=preset, mechanism=mechanism)


def _attached(url: str, log: Path, checkpoint: dict[str, Any], *, preset: str, mechanism: str) -> OpenaiHttp:
    settings = {"url": url, "preset": preset, "mechanism": mechanism, "log_file": str(log), "model": "default_model"}
    return OpenaiHttp(settings=settings, checkpoint=checkpoint, draft=None, sampling=GREEDY)


def place_of(launched: LaunchedEngine) -> tuple[str, Path]:
    """The URL of a launched server, and the file of its output."""
    process = launched.process
    assert process is not None
    return f"http://127.0.0.1:{process.spec.port}", process.log.path


def stages(folder: Path, luck: random.Random) -> Iterator[tuple[str, Stage]]:
    """Each server in turn, with what is asked of it."""
    target, draft = tiny_drafts.build_target(folder / "target"), tiny_drafts.build_draft(folder / "draft")
    with lent_package(folder) as python:
        settings = {"server_python": python, "prefix_cache": False, "fastpath_max_tokens": PLAIN_TOKENS}
        server = DflashServer(settings=settings, checkpoint=target, draft=draft, sampling=GREEDY)
        with loaded(server):
            url, log = place_of(server)
            yield "dflash serve, launched", Stage(server, url, log, luck)
            with loaded(attached(server, target, preset="dflash_mlx", mechanism="dflash")) as engine:
                yield "dflash serve, attached", Stage(engine, url, log, luck)
            own = Restartable(server, folder / "dflash")
        own.start()
        try:
            engine = _attached(own.url, own.log, target, preset="dflash_mlx", mechanism="dflash")
            with loaded(engine):
                yield "dflash serve, restarted", Stage(engine, own.url, own.log, luck, own)
        finally:
            own.stop()
    plain = MlxLmServer(settings={}, checkpoint=target, draft=None, sampling=GREEDY)
    with loaded(plain):
        url, log = place_of(plain)
        with loaded(attached(plain, target, preset="mlx_lm_server", mechanism="draft_model")) as engine:
            yield "mlx_lm.server, attached", Stage(engine, url, log, luck)
        own = Restartable(plain, folder / "mlx_lm")
    own.start()
    try:
        with loaded(_attached(own.url, own.log, target, preset="mlx_lm_server", mechanism="draft_model")) as engine:
            yield "mlx_lm.server, restarted", Stage(engine, own.url, own.log, luck, own)
    finally:
        own.stop()


def become_of(stage: Stage, act: Callable[[Stage], bool | None]) -> str:
    try:
        found = act(stage)
    except EngineError:
        return "refused"
    return {True: "engaged", False: "not engaged", None: "unknown"}[found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=100, help="wrong ones, over all servers and scenarios")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    each = -(-asked.generations // (3 * len(WRONG) + 2 * len(RESTARTS)))
    admitted = total = 0
    print(f"{'server':26}{'scenario':24}{'n':>5}{'engaged':>9}{'unknown':>9}{'not engaged':>13}{'refused':>9}")
    with tempfile.TemporaryDirectory(prefix="wrong-") as folder:
        for title, stage in stages(Path(folder), random.Random(asked.seed)):
            for name, act in {"honest": honest, **(WRONG if stage.server is None else RESTARTS)}.items():
                found = Counter(become_of(stage, act) for _ in range(each))
                admitted += found["engaged"] if name != "honest" else 0
                total += each if name != "honest" else 0
                shown = [found[word] for word in ("engaged", "unknown", "not engaged", "refused")]
                print(f"{title:26}{name:24}{each:5}{shown[0]:9}{shown[1]:9}{shown[2]:13}{shown[3]:9}", flush=True)
    print(f"wrong generations that count as engaged: {admitted} of {total}")
    return 1 if admitted else 0


if __name__ == "__main__":
    sys.exit(main())
