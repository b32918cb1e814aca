"""The parent's handle: every way in which a worker can fail ends in its own kind of fault, and in no process left."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.plan import Deadlines
from tests.workers.supervision.processes import is_gone
from workers.codec import encode
from workers.errors import FaultKind, WorkerFault
from workers.protocol import PROTOCOL_VERSION, Failure, Generate, Heartbeat, Hello, Load, Loaded
from workers.supervision import worker_process
from workers.supervision.journal import read_journal
from workers.supervision.worker_process import WorkerProcess, WorkerSpec

AMPLE = Deadlines(load_s=60, first_token_s=60, inter_token_s=60, total_s=60, teardown_s=10)
Make = Callable[..., WorkerProcess]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes worker handles; whatever they started is gone at the test's end."""
    made: list[WorkerProcess] = []

    def make(**fields: Any) -> WorkerProcess:
        spec: dict[str, Any] = {
            "run_id": "run-1",
            "arm": "arm-1",
            "log_path": tmp_path / "logs" / "worker.log",
            "journal_path": tmp_path / "journal.jsonl",
        }
        made.append(WorkerProcess(WorkerSpec(**(spec | fields))))
        return made[-1]

    yield make
    for worker in made:
        worker.stop(1)


def load(**settings: Any) -> Load:
    target = "workers.engines.simulated.Simulated"
    return Load(target=target, settings=settings, checkpoint={}, draft=None, sampling={})


def generate(*prompts: str, request_id: str = "r1") -> Generate:
    turns = [[{"role": "user", "content": prompt}] for prompt in prompts or ("one",)]
    return Generate(request_id=request_id, turns=turns, max_tokens=8, seed=1)


def journal(worker: WorkerProcess) -> list[int]:
    return [entry.pid for entry in read_journal(worker.spec.journal_path)]


def test_a_worker_loads_answers_and_stops(make: Make) -> None:
    worker = make()
    assert not worker.alive
    loaded = worker.load(load(), AMPLE)
    assert loaded.simulated
    assert worker.loaded == loaded
    assert worker.hello is not None
    assert worker.hello.pid == worker.pid
    answers = worker.generate(generate("one", "two"), AMPLE)
    assert [answer.turn for answer in answers] == [0, 1]
    assert len(worker.generate(generate(request_id="r2"), AMPLE)) == 1
    assert worker.alive
    report = worker.stop(10)
    assert (report.returncode, report.signals, report.survivors) == (0, (), ())
    assert not worker.alive
    assert worker.stop(10) == report


def test_the_process_is_journaled_marked_and_in_a_session_of_its_own(make: Make) -> None:
    worker = make(environment={"LD_PRELOAD_SAMPLE": "1"})
    worker.load(load(), AMPLE)
    assert worker.pid is not None
    assert journal(worker) == [worker.pid]
    assert os.getsid(worker.pid) == os.getpgid(worker.pid) == worker.pid
    environment = psutil.Process(worker.pid).environ()
    assert environment["INTERLACE_RUN"] == "run-1"
    assert environment["INTERLACE_ARM"] == "arm-1"
    assert environment["SPT_NOENV"] == "1"
    assert environment["LD_PRELOAD_SAMPLE"] == "1"
    worker.stop(10)
    assert journal(worker) == []


def test_leaving_the_context_stops_the_worker(make: Make) -> None:
    with make() as worker:
        worker.load(load(), AMPLE)
        pid = worker.pid
        assert pid is not None
    assert is_gone(pid)


@pytest.mark.parametrize(
    ("fault", "kind", "words", "deadlines"),
    [
        ("crash", FaultKind.crashed, "signal 9 (SIGKILL)", {}),
        ("segfault", FaultKind.crashed, "signal 11 (SIGSEGV)", {}),
        ("exit0", FaultKind.exited_without_record, "exit status 0", {}),
        ("garbage", FaultKind.garbage, "is this json?", {}),
        ("hang_first", FaultKind.hung_first_token, "no first token within 0.5 s", {"first_token_s": 0.5}),
        ("hang_between", FaultKind.hung_inter_token, "nothing for 0.5 s after 1 tokens", {"inter_token_s": 0.5}),
        ("endless", FaultKind.too_long, "more than 0.8 s", {"total_s": 0.8}),
    ],
)
def test_each_fault_has_its_kind_and_leaves_no_process(
    make: Make, fault: str, kind: FaultKind, words: str, deadlines: dict[str, float]
) -> None:
    worker = make()
    worker.load(load(fault=fault), AMPLE)
    pid = worker.pid
    assert pid is not None
    with pytest.raises(WorkerFault) as raised:
        worker.generate(generate(), Deadlines(**deadlines))
    assert raised.value.kind is kind
    assert words in str(raised.value)
    assert "arm arm-1" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not raised.value.alive
    assert not worker.alive
    assert is_gone(pid)
    assert journal(worker) == []


def test_a_record_without_an_end_is_garbage(make: Make) -> None:
    worker = make(heartbeat_s=60)  # no heartbeat may end the line
    worker.load(load(fault="flood"), AMPLE)
    with pytest.raises(WorkerFault, match="a record of more than 67108864 bytes") as raised:
        worker.generate(generate(), Deadlines(first_token_s=900, inter_token_s=900))
    assert raised.value.kind is FaultKind.garbage
    assert not worker.alive


@pytest.mark.parametrize(("fault", "kind"), [("crash", FaultKind.crashed), ("hang_first", FaultKind.hung_first_token)])
def test_the_turns_before_a_fault_are_kept(make: Make, fault: str, kind: FaultKind) -> None:
    worker = make()
    worker.load(load(fault=fault, fault_at=1), AMPLE)
    with pytest.raises(WorkerFault) as raised:
        worker.generate(generate("one", "two"), Deadlines(first_token_s=1))
    assert raised.value.kind is kind
    assert [generation.turn for generation in raised.value.generations] == [0]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("error", FaultKind.generation_failed),
        ("oom", FaultKind.out_of_memory),
        ("zero_tokens", FaultKind.zero_tokens),
    ],
)
def test_an_orderly_failure_ends_the_request_only(make: Make, fault: str, kind: FaultKind) -> None:
    worker = make()
    worker.load(load(fault=fault), AMPLE)
    with pytest.raises(WorkerFault) as raised:
        worker.generate(generate(), AMPLE)
    assert raised.value.kind is kind
    assert raised.value.alive
    assert "Traceback" in raised.value.detail
    assert len(worker.generate(generate(request_id="r2"), AMPLE)) == 1
    assert worker.stop(10).signals == ()


def test_a_load_that_fails_says_why(make: Make) -> None:
    worker = make()
    with pytest.raises(WorkerFault, match="does not know blok_size; it has effect") as raised:
        worker.load(load(blok_size=2), AMPLE)
    assert raised.value.kind is FaultKind.unsupported_setting
    assert not worker.alive


def test_a_load_that_hangs_is_ended(make: Make) -> None:
    worker = make()
    with pytest.raises(WorkerFault, match=r"not loaded within 1\.5 s") as raised:
        worker.load(load(fault="hang_load"), Deadlines(load_s=1.5))
    assert raised.value.kind is FaultKind.hung_load
    assert not worker.alive


def test_a_worker_that_ignores_every_request_to_stop_is_killed(make: Make) -> None:
    worker = make()
    worker.load(load(fault="slow_stop"), AMPLE)
    pid = worker.pid
    assert pid is not None
    report = worker.stop(0.3)
    assert report.signals == ("SIGTERM", "SIGKILL")
    assert report.hung
    assert (report.held_bytes or 0) > 10_000_000
    assert report.survivors == ()
    assert is_gone(pid)
    assert journal(worker) == []


def test_a_worker_in_the_middle_of_a_request_is_not_asked_but_ended(make: Make) -> None:
    """An interrupt in the parent comes at any moment; the request to stop would only be read after the request."""
    worker = make(heartbeat_s=0.05)
    worker.load(load(fault="endless"), AMPLE)

    def interrupt(_: Heartbeat) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.generate(generate(), AMPLE, interrupt)
    report = worker.stop(60)
    assert (report.signals, report.hung) == (("SIGTERM",), False)  # no minute was spent on a polite request


def test_heartbeats_are_passed_on(make: Make) -> None:
    worker = make()
    worker.load(load(fault="endless"), Deadlines(load_s=60, first_token_s=0.4))
    beats: list[Heartbeat] = []
    with pytest.raises(WorkerFault):
        worker.generate(generate(), Deadlines(total_s=3), beats.append)
    assert len(beats) >= 3  # four within the shortest deadline, though once a second was asked for
    assert beats[-1].tokens > beats[0].tokens


def test_tokens_that_come_slowly_but_come_are_no_hang(make: Make) -> None:
    worker = make()
    deadlines = Deadlines(load_s=60, first_token_s=60, inter_token_s=1, total_s=2.2)
    worker.load(load(fault="endless"), deadlines)
    with pytest.raises(WorkerFault) as raised:
        worker.generate(generate(), deadlines)
    assert raised.value.kind is FaultKind.too_long


def test_the_log_holds_what_the_worker_printed_and_the_fault_its_tail(make: Make) -> None:
    worker = make()
    worker.load(load(fault="segfault"), AMPLE)
    with pytest.raises(WorkerFault) as raised:
        worker.generate(generate(), AMPLE)
    assert "Segmentation fault" in raised.value.log_tail
    assert raised.value.log_tail in worker.spec.log_path.read_text()


def fake_worker(folder: Path, script: str) -> str:
    """An interpreter that plays a worker: it runs the script, with `record` writing to the channel."""
    path = folder / "python"
    prelude = """
import os, sys, time
def record(line): os.write(int(sys.argv[sys.argv.index("--record-fd") + 1]), line)
"""
    path.write_text(f"#!{sys.executable}\n{prelude}{script}")
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("sys.exit('no module named workers')", FaultKind.crashed, "exit status 1"),
        ("record(b'hello?\\n'); time.sleep(60)", FaultKind.garbage, "not a message"),
        (
            'record(b\'{"kind":"done","request_id":"1"}\\n\'); time.sleep(60)',
            FaultKind.garbage,
            "no greeting of protocol",
        ),
        ("record(b'{\"kind\":')", FaultKind.exited_without_record, "exit status 0"),
        (
            "sys.exit('[METAL] Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)')",
            FaultKind.out_of_memory,
            "exit status 1",
        ),
        (
            "os.close(int(sys.argv[sys.argv.index('--record-fd') + 1])); time.sleep(60)",
            FaultKind.exited_without_record,
            "closed its channel",
        ),
    ],
)
def test_a_process_that_is_no_worker_is_found_out(
    make: Make, tmp_path: Path, script: str, kind: FaultKind, words: str
) -> None:
    worker = make(python=fake_worker(tmp_path, script))
    with pytest.raises(WorkerFault, match="arm-1") as raised:
        worker.load(load(), AMPLE)
    assert raised.value.kind is kind
    assert words in str(raised.value)
    assert not worker.alive


def test_records_of_another_protocol_version_are_refused(make: Make, tmp_path: Path) -> None:
    hello = json.dumps({"kind": "hello", "protocol": 99, "pid": 1, "python": "3", "versions": {}})
    worker = make(python=fake_worker(tmp_path, f"record({hello!r}.encode() + b'\\n'); time.sleep(60)"))
    with pytest.raises(WorkerFault, match="no greeting of protocol"):
        worker.load(load(), AMPLE)


HELLO = encode(Hello(protocol=PROTOCOL_VERSION, pid=1, python="3", versions={}))
LOADED = encode(
    Loaded(
        load_s=0.0,
        active_memory_bytes=None,
        peak_memory_bytes=None,
        simulated=True,
        drafted_per_step=None,
        verify_width=1,
    )
)
LONG = "x" * 200_000  # more than a pipe holds: the worker has ended before the request is written


def last_words(kind: FaultKind) -> bytes:
    return encode(Failure(request_id=None, error_kind=str(kind), message="the last words"))


@pytest.mark.parametrize("kind", [FaultKind.checkpoint_corrupt, FaultKind.disk_full])
def test_a_worker_that_ends_before_it_takes_the_request_has_stated_why(
    make: Make, tmp_path: Path, kind: FaultKind
) -> None:
    worker = make(python=fake_worker(tmp_path, f"record({HELLO + last_words(kind)!r})"))
    with pytest.raises(WorkerFault, match="the last words") as raised:
        worker.load(load(unread=LONG), AMPLE)
    assert raised.value.kind is kind


def test_so_has_one_that_ends_between_two_requests(make: Make, tmp_path: Path) -> None:
    script = f"""
record({HELLO!r})
open(int(sys.argv[sys.argv.index("--request-fd") + 1]), "rb").readline()
record({LOADED + last_words(FaultKind.out_of_memory)!r})
"""
    worker = make(python=fake_worker(tmp_path, script))
    worker.load(load(), AMPLE)
    with pytest.raises(WorkerFault, match="the last words") as raised:
        worker.generate(generate(LONG), AMPLE)
    assert raised.value.kind is FaultKind.out_of_memory


def test_a_worker_that_only_closes_its_requests_is_not_waited_for(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "EXIT_GRACE_S", 0.1)
    closes = 'os.close(int(sys.argv[sys.argv.index("--request-fd") + 1])); time.sleep(3600)'
    worker = make(python=fake_worker(tmp_path, f"record({HELLO!r}); {closes}"))
    with pytest.raises(WorkerFault, match="closed its channel without an answer") as raised:
        worker.load(load(unread=LONG), Deadlines(load_s=3600))
    assert raised.value.kind is FaultKind.exited_without_record


SIGN = "kIOGPUCommandBufferCallbackErrorOutOfMemory"


def test_an_old_error_in_the_log_is_not_taken_for_a_failed_starts_cause(make: Make, tmp_path: Path) -> None:
    worker = make(python=fake_worker(tmp_path, "sys.exit(1)"))
    worker.spec.log_path.parent.mkdir()
    worker.spec.log_path.write_text(f"{SIGN}\n")
    with pytest.raises(WorkerFault) as raised:
        worker.load(load(), AMPLE)
    assert raised.value.kind is FaultKind.crashed
    assert raised.value.log_tail == ""


def test_an_old_error_in_the_log_is_not_taken_for_a_later_requests_cause(make: Make) -> None:
    worker = make()
    worker.load(load(fault="crash"), AMPLE)
    with worker.spec.log_path.open("a") as log:
        log.write(f"{SIGN}\n")
    with pytest.raises(WorkerFault) as raised:
        worker.generate(generate(), AMPLE)
    assert raised.value.kind is FaultKind.crashed


def test_an_interpreter_that_is_not_there_is_a_fault(make: Make) -> None:
    worker = make(python="/nowhere/python")
    with pytest.raises(WorkerFault, match=r"cannot start the worker: .*/nowhere/python") as raised:
        worker.load(load(), AMPLE)
    assert raised.value.kind is FaultKind.load_failed


def test_a_journal_that_cannot_be_written_leaves_no_process(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    others = set(psutil.Process().children())  # of other tests of this process, such as a tracker of shared memory
    worker = make(journal_path=tmp_path / "file" / "journal")
    with pytest.raises(WorkerFault, match="cannot start the worker") as raised:
        worker.load(load(), AMPLE)
    assert raised.value.kind is FaultKind.load_failed
    assert not set(psutil.Process().children()) - others


def test_a_handle_is_used_in_order(make: Make) -> None:
    worker = make()
    with pytest.raises(RuntimeError, match="not loaded"):
        worker.generate(generate(), AMPLE)
    worker.load(load(), AMPLE)
    with pytest.raises(RuntimeError, match="loads once"):
        worker.load(load(), AMPLE)
    worker.stop(10)
    with pytest.raises(RuntimeError, match="has ended"):
        worker.generate(generate(), AMPLE)


def test_a_long_prompt_passes_the_pipe(make: Make) -> None:
    worker = make()
    worker.load(load(), AMPLE)
    (answer,) = worker.generate(generate("word " * 200_000), AMPLE)
    assert answer.prompt_tokens > 200_000


def test_a_request_that_a_stopped_process_does_not_take_is_a_hang(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "SIGNAL_GRACE_S", 0.3)
    worker = make()
    worker.load(load(), AMPLE)
    assert worker.pid is not None
    psutil.Process(worker.pid).suspend()
    with pytest.raises(WorkerFault, match="was not taken") as raised:
        worker.generate(generate("word " * 200_000), Deadlines(first_token_s=0.5))
    assert raised.value.kind is FaultKind.hung_first_token
    assert not worker.alive


def test_the_parent_never_imports_mlx() -> None:
    script = (
        "import sys, workers.supervision.worker_process;"
        "sys.exit(any(name.split('.')[0] == 'mlx' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
