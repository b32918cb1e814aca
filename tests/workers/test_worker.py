"""The worker's side of the protocol, spoken to in raw lines as its parent would."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from workers.codec import decode, encode
from workers.errors import EngineError, FaultKind
from workers.protocol import (
    PROTOCOL_VERSION,
    Done,
    Failure,
    Generate,
    Generation,
    Heartbeat,
    Hello,
    Load,
    Loaded,
    Message,
    Stop,
)
from workers.worker import engine_class

SIMULATED = "workers.engines.simulated.Simulated"
PATIENCE_S = 30.0  # far more than any of it takes; only a bug reaches it
M = TypeVar("M")


class Line:
    """A raw line to a worker process."""

    def __init__(self, log: Path, *, heartbeat_s: float = 1.0) -> None:
        request_read, self.request_fd = os.pipe()
        self.record_fd, record_write = os.pipe()
        fds = ["--request-fd", str(request_read), "--record-fd", str(record_write)]
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "workers", *fds, "--heartbeat-s", str(heartbeat_s)],
                pass_fds=(request_read, record_write),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        os.close(request_read)
        os.close(record_write)
        self.requests = os.fdopen(self.request_fd, "wb", buffering=0)
        self.records = os.fdopen(self.record_fd, "rb")

    def send(self, *messages: Message) -> None:
        self.requests.write(b"".join(map(encode, messages)))

    def next(self) -> Message:
        return decode(self.records.readline())

    def expect(self, kind: type[M]) -> M:
        """The next record that is no heartbeat."""
        while isinstance(message := self.next(), Heartbeat):
            pass
        assert isinstance(message, kind), message
        return message

    def ended(self) -> int:
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.requests.close()
        self.records.close()


@contextmanager
def line_to_worker(tmp_path: Path, *, heartbeat_s: float = 1.0) -> Iterator[Line]:
    line = Line(tmp_path / "log", heartbeat_s=heartbeat_s)
    try:
        yield line
    finally:
        line.close()


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with line_to_worker(tmp_path) as line:
        yield line


def load(target: str = SIMULATED, **settings: Any) -> Load:
    return Load(target=target, settings=settings, checkpoint={}, draft=None, sampling={})


def generate(*prompts: str, request_id: str = "r1", max_tokens: int = 6) -> Generate:
    turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
    return Generate(request_id=request_id, turns=turns, max_tokens=max_tokens, seed=1)


def test_it_says_hello_at_once_with_the_versions_of_its_interpreter(line: Line) -> None:
    hello = line.expect(Hello)
    assert hello.protocol == PROTOCOL_VERSION
    assert hello.pid == line.process.pid
    assert hello.python == ".".join(map(str, sys.version_info[:3]))
    assert hello.versions["mlx-lm"]
    assert "mlx" in hello.versions


def test_a_request_goes_through_load_generate_stop(line: Line) -> None:
    line.send(load(acceptance=0.5), generate("one", "two"), Stop())
    line.expect(Hello)
    loaded = line.expect(Loaded)
    assert (loaded.simulated, loaded.drafted_per_step, loaded.verify_width) == (True, 3, 4)
    assert loaded.load_s == 1.0  # of the engine's clock, as every duration
    first, second = line.expect(Generation), line.expect(Generation)
    assert [(g.request_id, g.turn, len(g.token_ids)) for g in (first, second)] == [("r1", 0, 6), ("r1", 1, 6)]
    assert first.started_at.endswith("+00:00")
    assert line.expect(Done) == Done(request_id="r1")
    assert line.ended() == 0


def test_the_answers_are_kept_between_the_turns_of_one_conversation(line: Line) -> None:
    line.send(load(), generate("one", "two"), generate("one", "two", request_id="r2"))
    line.expect(Hello), line.expect(Loaded)
    first, second = line.expect(Generation), line.expect(Generation)
    assert second.cached_tokens == first.prompt_tokens + len(first.token_ids)
    line.expect(Done)
    again = line.expect(Generation)
    assert (again.prompt_sha256, again.cached_tokens) == (first.prompt_sha256, 0)


def test_the_orchestrators_own_keys_are_no_settings(line: Line) -> None:
    line.send(load(_target_=SIMULATED, name="simulated", draft=None))
    line.expect(Hello), line.expect(Loaded)


@pytest.mark.parametrize(
    ("request_to_load", "kind", "words"),
    [
        (load(fault="load_error"), FaultKind.load_failed, "simulated fault load_error"),
        (load(blok_size=4), FaultKind.unsupported_setting, "does not know blok_size"),
        (load("os.system"), FaultKind.unsupported_setting, "must lie below workers.engines."),
        (load("workers.engines.nowhere.Engine"), FaultKind.load_failed, "No module named"),
        (load("workers.engines.simulated.Settings"), FaultKind.unsupported_setting, "is not an engine"),
    ],
)
def test_a_load_that_fails_is_reported_and_ends_the_process(
    line: Line, request_to_load: Load, kind: FaultKind, words: str
) -> None:
    line.send(request_to_load)
    line.expect(Hello)
    failure = line.expect(Failure)
    assert failure.error_kind == kind
    assert words in failure.message
    assert "\n" not in failure.message
    assert "Traceback" in failure.detail
    assert line.ended() == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("error", FaultKind.generation_failed),
        ("oom", FaultKind.out_of_memory),
        ("zero_tokens", FaultKind.zero_tokens),
    ],
)
def test_a_generation_that_fails_is_reported_and_the_next_one_runs(line: Line, fault: str, kind: FaultKind) -> None:
    line.send(load(fault=fault), generate("one"), generate("one", request_id="r2"))
    line.expect(Hello), line.expect(Loaded)
    failure = line.expect(Failure)
    assert (failure.request_id, failure.error_kind) == ("r1", kind)
    assert line.expect(Generation).request_id == "r2"
    assert line.expect(Done).request_id == "r2"


@pytest.mark.parametrize(
    "lines",
    [
        b"{}\n",
        b"\xff\xfe\n",
        encode(generate("before anything is loaded")),
        encode(load()) + encode(load()),
        encode(load()) + encode(Done(request_id="a record, not a request")),
        encode(load())[:-1],  # cut short by the parent's death
    ],
)
def test_garbage_is_reported_and_ends_the_process(line: Line, lines: bytes) -> None:
    line.requests.write(lines)
    line.requests.close()
    line.expect(Hello)
    message = line.next()
    if isinstance(message, Loaded):
        message = line.next()
    assert isinstance(message, Failure)
    assert message.error_kind == FaultKind.garbage
    assert line.ended() == 2


def test_the_end_of_the_channel_ends_an_idle_worker(line: Line) -> None:
    line.send(load())
    line.expect(Hello), line.expect(Loaded)
    line.requests.close()
    assert line.ended() == 0


def test_the_parents_death_ends_a_worker_that_is_busy(tmp_path: Path) -> None:
    with line_to_worker(tmp_path, heartbeat_s=0.05) as line:
        line.send(load(fault="endless"), generate("one"))
        line.expect(Hello), line.expect(Loaded)
        line.records.close()
        line.requests.close()
        assert line.ended() == 3


def test_heartbeats_report_the_phase_and_grow_with_the_tokens(tmp_path: Path) -> None:
    with line_to_worker(tmp_path, heartbeat_s=0.05) as line:
        line.send(load(fault="endless"), generate("one"))
        line.expect(Hello), line.expect(Loaded)
        beats = [line.next() for _ in range(4)]
        tokens = [beat.tokens for beat in beats if isinstance(beat, Heartbeat) and beat.phase == "decode"]
        assert len(tokens) >= 3
        assert tokens == sorted(set(tokens))


@pytest.mark.parametrize(("fault", "phase"), [("hang_load", "load"), ("hang_first", "prefill")])
def test_heartbeats_go_on_while_nothing_comes(tmp_path: Path, fault: str, phase: str) -> None:
    with line_to_worker(tmp_path, heartbeat_s=0.05) as line:
        line.send(load(fault=fault))
        line.expect(Hello)
        if fault != "hang_load":
            line.expect(Loaded)
            line.send(generate("one"))
        assert [line.next() for _ in range(3)] == [Heartbeat(phase=phase, tokens=0)] * 3


def test_an_idle_worker_is_silent(tmp_path: Path) -> None:
    """Its parent does not read between the requests: a full pipe would stop the worker."""
    with line_to_worker(tmp_path, heartbeat_s=0.01) as line:
        line.send(load())
        line.expect(Hello), line.expect(Loaded)
        time.sleep(0.3)
        line.send(generate("one"))
        beats = 0
        while isinstance(line.next(), Heartbeat):
            beats += 1
        assert beats < 10  # of the request itself, not the 30 of the pause


def test_a_crash_leaves_its_stack_in_the_log(line: Line, tmp_path: Path) -> None:
    line.send(load(fault="segfault"), generate("one"))
    assert line.ended() == -signal.SIGSEGV
    assert "simulated.py" in (tmp_path / "log").read_text()


def test_an_engines_class_is_found_only_below_the_engines() -> None:
    assert engine_class(SIMULATED).__name__ == "Simulated"
    with pytest.raises(EngineError, match="must lie below"):
        engine_class("workers.enginesX.simulated.Simulated")
