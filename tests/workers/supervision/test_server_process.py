"""A launched server: its log, its port, and its end, whoever dies first."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.workers import tiny
from tests.workers.supervision.processes import DEADLINES, spec
from workers.catalogue.binding import log_fault
from workers.codec import encode
from workers.errors import EngineError, FaultKind, WorkerFault
from workers.machine.process_identity import port_of
from workers.masking import KNOWN
from workers.protocol import Generate, Load
from workers.supervision.journal import read_journal
from workers.supervision.server_process import (
    ServerLog,
    ServerProcess,
    ServerSpec,
    free_port,
    listeners,
    path_of_descriptor,
    port_is_open,
)
from workers.supervision.worker_process import WorkerProcess

SCRIPT = Path(__file__).parents[1] / "engines" / "scripted_server.py"


def until(condition: Callable[[], bool], timeout_s: float = 15.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def http_server(port: int) -> ServerSpec:
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    return ServerSpec(title="the server", command=command, port=port)


# ---- the log ----


def test_lines_belong_to_the_request_during_which_they_were_printed(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "log")
    assert (log.mark(), log.lines_since(0), log.tail()) == (0, [], "")
    log.path.write_bytes(b"of the load\n")
    mark = log.mark()
    with log.path.open("ab") as file:
        file.write(b"one\ntwo \xff\nhalf a li")
    assert [line.strip() for line in log.lines_since(mark)] == ["one", "two \ufffd"]
    with log.path.open("ab") as file:
        file.write(b"ne\n")
    assert len(log.lines_since(mark)) == 3
    log.path.write_bytes(b"anew\n")  # truncated: all of it is newer than the mark
    assert log.lines_since(mark) == ["anew\n"]
    assert log.tail() == "anew"


def test_a_line_that_began_before_the_mark_is_none_of_the_request(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "log")
    log.path.write_bytes(b"whole\nthe earlier request's summ")
    mark = log.mark()
    with log.path.open("ab") as file:
        file.write(b"ary\nours\n")
    assert log.lines_since(mark) == ["ours\n"]


def test_a_log_that_shrank_was_replaced_or_rewritten_is_another(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "log")
    assert log.identify() is None
    log.path.write_bytes(b"one\n" * 900)
    before = log.identify()
    assert before is not None
    with log.path.open("ab") as file:
        file.write(b"two\n")
    assert log_fault(before, log.identify(mark=before.size)) is None
    log.path.write_bytes(b"other\n" * 900)  # truncated, and grown beyond the mark since
    assert "rewritten" in str(log_fault(before, log.identify(mark=before.size)))
    log.path.write_bytes(b"one\n")
    assert "shrank" in str(log_fault(before, log.identify(mark=before.size)))
    log.path.rename(tmp_path / "log.1")
    assert "went away" in str(log_fault(before, log.identify(mark=before.size)))
    log.path.write_bytes(b"one\n" * 900)
    assert "replaced" in str(log_fault(before, log.identify(mark=before.size)))


def test_a_descriptor_that_writes_to_a_file_reports_its_path(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        assert path_of_descriptor(file.fileno()) == path
        path.unlink()
        assert path_of_descriptor(file.fileno()) is None
    read, write = os.pipe()
    assert path_of_descriptor(write) is None
    os.close(read)
    os.close(write)


# ---- the port ----


def test_the_one_that_listens_is_the_one_that_was_launched() -> None:
    port = free_port()
    server = ServerProcess(http_server(port))
    try:
        assert until(server.listens)
        assert server.require_listener() == server.pid
        assert listeners(port, among=[psutil.Process()]) == []
    finally:
        server.stop()
    assert not port_is_open(port)
    server.stop()


def test_somebody_else_on_the_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        spec = ServerSpec(title="the server", command=[sys.executable, "-c", "import time; time.sleep(60)"], port=port)
        server = ServerProcess(spec)
        try:
            with pytest.raises(EngineError, match=f"is answered by process {os.getpid()} "):
                server.require_listener()
        finally:
            with pytest.raises(EngineError, match=f"process {os.getpid()} listens on its port"):
                server.stop()


def test_a_port_that_stays_open_is_reported_though_nobody_can_be_seen_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where another user's process has taken it."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = ServerProcess(ServerSpec(title="the server", command=[sys.executable, "-c", ""], port=port))
        monkeypatch.setattr("workers.supervision.server_process.listeners", lambda *_, **__: [])
        with pytest.raises(EngineError, match=f"the server is gone, but its port {port} is still open"):
            server.stop()


def test_nobody_on_the_port_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.supervision.server_process._ENDING_S", 0.0)
    server = ServerProcess(
        ServerSpec(title="the server", command=[sys.executable, "-c", "import time; time.sleep(60)"], port=free_port())
    )
    try:
        with pytest.raises(EngineError, match="no process of it listens"):
            server.require_listener()
    finally:
        server.stop()


def test_what_cannot_be_started_is_an_error_of_the_load() -> None:
    with pytest.raises(EngineError, match="cannot start the server") as failed:
        ServerProcess(ServerSpec(title="the server", command=["/no/such/program"], port=1))
    assert failed.value.kind is FaultKind.load_failed


def test_its_end_is_reported_with_its_last_words() -> None:
    command = [sys.executable, "-c", "import sys; print('[metal::malloc] no room'); sys.exit(7)"]
    server = ServerProcess(ServerSpec(title="the server", command=command, port=1))
    assert until(lambda: server._popen.poll() is not None)  # noqa: SLF001 - there is nothing else to wait for
    with pytest.raises(EngineError, match=r"exit status 7.*no room") as failed:
        server.require_alive()
    assert failed.value.kind is FaultKind.out_of_memory
    server.stop()


# ---- secrets ----

KEY = "sk-very-secret-key-of-somebody"
# Prints the key in two writes, then on request in a last line without an end.
TELLS_THE_KEY = f"""
import sys, time
sys.stdout.write("key: {KEY[:9]}"); sys.stdout.flush()
time.sleep(0.2)
sys.stdout.write("{KEY[9:]}!\\n"); sys.stdout.flush()
sys.stderr.write("bar {KEY}\\r"); sys.stderr.flush()
while not __import__("os").path.exists(sys.argv[1]):
    time.sleep(0.02)
sys.stdout.write("at the end {KEY}"); sys.stdout.flush()
"""


def test_what_a_server_prints_reaches_the_log_without_secrets(tmp_path: Path) -> None:
    KNOWN.add(KEY)
    command = [sys.executable, "-c", TELLS_THE_KEY, str(tmp_path / "end")]
    server = ServerProcess(ServerSpec(title="the server", command=command, port=free_port()))
    seen: list[bytes] = []

    def grown() -> bool:
        seen.append(server.log.path.read_bytes()[server.log_start :])
        return b"bar <redacted>\r" in seen[-1]

    assert until(grown)
    assert "key: <redacted>!\n" in server.log.lines_since(server.log_start)
    (tmp_path / "end").touch()
    assert until(lambda: server._popen.poll() is not None)  # noqa: SLF001 - there is nothing else to wait for
    with pytest.raises(EngineError, match="exit status 0"):
        server.require_alive()
    grown()
    assert seen[-1].endswith(b"at the end <redacted>")
    assert not any(KEY[:9].encode() in each for each in seen)
    server.stop()


# ---- whoever dies first ----


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    checkpoint = tiny.build(tmp_path_factory.mktemp("target") / "tiny")
    settings: dict[str, Any] = {"command": f"{sys.executable} {SCRIPT} good", "ready_s": 20.0}
    return Load(
        target="workers.engines.omlx_dflash.OmlxDflash",
        settings=settings,
        checkpoint=checkpoint,
        draft=checkpoint,
        sampling={"name": "greedy"},
    )


ASK = Generate(request_id="1", turns=[[{"role": "user", "content": "hello"}]], max_tokens=8, seed=0)


def server_of(worker: WorkerProcess) -> psutil.Process:
    assert worker.pid is not None
    (server,) = psutil.Process(worker.pid).children()
    return server


def test_the_servers_words_are_in_the_runs_log_and_it_is_in_the_journal(load: Load, tmp_path: Path) -> None:
    with WorkerProcess(spec(tmp_path)) as worker:
        worker.load(load, DEADLINES)
        server = server_of(worker)
        (answer,) = worker.generate(ASK, DEADLINES)
        assert answer.evidence[0].engaged is True
        assert answer.tokens == 8
        assert answer.first_visible_us is not None
        assert "DFlashEngine loaded" in (tmp_path / "a.log").read_text()
        ports = {entry.pid: entry.port for entry in read_journal(tmp_path / "workers.jsonl")}
        # A short-lived program that asks for the server's versions may stand there as well, until it is seen gone.
        assert ports.items() >= {worker.pid: None, server.pid: port_of(server)}.items()
        assert port_is_open(ports[server.pid] or 0)
        report = worker.stop(10.0)
    assert (report.returncode, report.signals, report.survivors, report.open_ports) == (0, (), (), ())
    assert not port_is_open(ports[server.pid] or 0)
    assert not server.is_running()
    assert read_journal(tmp_path / "workers.jsonl") == []


def test_the_run_says_whose_port_is_still_answered_after_the_end(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = WorkerProcess(spec(tmp_path))
    worker.load(load, DEADLINES)
    port = port_of(server_of(worker))
    assert port is not None
    monkeypatch.setattr("workers.supervision.child.port_is_open", lambda asked: asked == port)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerFault, match=rf"ports \({port},\) of its servers are still answered"):
        worker.generate(ASK, DEADLINES)
    assert worker.stop(10.0).open_ports == (port,)


def test_a_killed_worker_takes_its_server_with_it(load: Load, tmp_path: Path) -> None:
    worker = WorkerProcess(spec(tmp_path))
    worker.load(load, DEADLINES)
    server = server_of(worker)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerFault):
        worker.generate(ASK, DEADLINES)
    assert until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.slow
def test_a_killed_run_takes_worker_and_server_with_it(load: Load, tmp_path: Path) -> None:
    """The worker's channel ends with the run; then it stops its server and ends."""
    code = f"""
import os, time
from pathlib import Path
from tests.workers.supervision.processes import DEADLINES, spec
from workers.supervision.worker_process import WorkerProcess
from workers.codec import decode
worker = WorkerProcess(spec(Path({str(tmp_path)!r})))
worker.load(decode({encode(load)!r}), DEADLINES)
print(worker.pid, flush=True)
time.sleep(60)
"""
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root) as run:
        assert run.stdout is not None
        worker = psutil.Process(int(run.stdout.readline()))
        (server,) = worker.children()
        run.kill()
    assert until(lambda: not server.is_running())
    assert until(lambda: not worker.is_running())


def test_a_free_port_that_connects_to_itself_is_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    port, connect = free_port(), socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda to, timeout: connect(to, timeout, source_address=to))
    with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
        assert connection.getsockname() == connection.getpeername()
    assert not port_is_open(port)
