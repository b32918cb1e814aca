"""Processes that outlive their run: found whatever they call themselves, ended only when they are proven to be ours."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.workers.supervision.processes import is_gone
from workers.machine.process_identity import OWNER_MARK, owner_mark, started_s, this_boot
from workers.protocol import PROTOCOL_VERSION
from workers.supervision.journal import Journal, Spawned, describe, read_journal
from workers.supervision.orphans import Leftovers, Orphan, end_orphans, find_leftovers

HELD_BYTES = 150_000_000
PATIENCE_S = 60.0
LARGE = 10**12  # nothing is abandoned and that large

# A server that an engine launches: renames itself, holds memory, ignores SIGTERM, and tells when it is ready.
SERVER = f"""
import signal, sys, time
import setproctitle
setproctitle.setproctitle("harmless: idle")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = bytearray({HELD_BYTES})
for place in range(0, len(held), 4096):
    held[place] = 1
open(sys.argv[1], "w").close()
time.sleep(600)
"""
# A worker that launches it while it loads, and then waits for ever. Plays the protocol by hand.
WORKER = """
import json, os, subprocess, sys, time
out = int(sys.argv[sys.argv.index("--record-fd") + 1])
def say(**message): os.write(out, json.dumps(message).encode() + b"\\n")
say(kind="hello", protocol=PROTOCOL_VERSION, pid=os.getpid(), python="3", versions={})
environment = {name: value for name, value in os.environ.items() if name not in os.environ["WITHOUT"].split()}
options = {"start_new_session": True} if "apart" in os.environ["HOW"] else {}
child = subprocess.Popen([sys.executable, "-c", os.environ["SERVER"], os.environ["READY"]], env=environment, **options)
while not os.path.exists(os.environ["READY"]):
    time.sleep(0.01)
    if "seen" in os.environ["HOW"]:
        say(kind="heartbeat", phase="load", tokens=0)
say(kind="loaded", load_s=1.0, active_memory_bytes=None, peak_memory_bytes=None, simulated=True,
    drafted_per_step=None, verify_width=1)
open(os.environ["READY"] + ".pid", "w").write(str(child.pid))
time.sleep(600)
"""
RUN = """
import os, sys, time
from pathlib import Path
from orchestrator.plan import Deadlines
from workers.supervision.worker_process import WorkerProcess, WorkerSpec
from workers.protocol import Load
folder = Path(sys.argv[1])
worker = WorkerProcess(WorkerSpec(run_id="run-1", arm="arm-1", log_path=folder / "log",
    journal_path=folder / "journal", python=str(folder / "python")))
if "unseen" in os.environ["HOW"]:
    from workers.supervision.child import Child
    Child.snapshot = lambda self: None
worker.load(Load(target="workers.engines.x.X", settings={}, checkpoint={}, draft=None, sampling={}), Deadlines())
print(worker.pid, flush=True)
time.sleep(600)
"""


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_gone(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_gone(pid)


def left_behind(folder: Path, *, how: str, without: str = "") -> int:
    """The pid of a renamed server whose run and worker died by SIGKILL."""
    python = folder / "python"
    python.write_text(f"#!{sys.executable}\n{WORKER}".replace("PROTOCOL_VERSION", str(PROTOCOL_VERSION)))
    python.chmod(0o755)
    ready = folder / "ready"
    extra = {"SERVER": SERVER, "READY": str(ready), "HOW": how, "WITHOUT": without}
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder)], env=os.environ | extra, stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        worker = int(run.stdout.readline())
        told = folder / "ready.pid"
        while not (told.exists() and told.read_text()):  # it is there before its words are
            time.sleep(0.01)
        run.kill()
    os.kill(worker, signal.SIGKILL)
    wait_until_gone(worker)
    return int((folder / "ready.pid").read_text())


@pytest.fixture
def doomed() -> Iterator[list[int]]:
    """Pids to kill at the test's end, whatever became of it."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)


def ours(found: Leftovers, pid: int) -> Orphan:
    (orphan,) = (each for each in found.orphans if each.pid == pid)
    return orphan


# Journaled with its mark; journaled, with argv and environ gone; marked, in a session of its own, in no journal.
@pytest.mark.parametrize(
    ("how", "without", "proof"),
    [("seen apart", "", "journal"), ("seen", f"SPT_NOENV {OWNER_MARK}", "journal"), ("unseen apart", "", "mark")],
)
def test_a_server_that_renamed_itself_is_found_with_its_memory_and_ended(
    tmp_path: Path, doomed: list[int], how: str, without: str, proof: str
) -> None:
    pid = left_behind(tmp_path, how=how, without=without)
    doomed.append(pid)
    assert psutil.Process(pid).cmdline()[0].startswith("harmless")
    assert (psutil.Process(pid).environ().get("SPT_NOENV") is None) == bool(without)
    orphan = ours(find_leftovers(tmp_path / "journal", large_bytes=LARGE), pid)
    assert (orphan.title, orphan.run_id, orphan.arm, orphan.proof) == ("harmless: idle", "run-1", "arm-1", proof)
    assert orphan.memory_bytes is not None
    assert orphan.memory_bytes > HELD_BYTES
    assert end_orphans([orphan], grace_s=0.3, journal=tmp_path / "journal") == ()  # it ignores SIGTERM
    assert is_gone(pid)
    assert read_journal(tmp_path / "journal") == []


def test_without_journal_and_mark_it_is_only_reported(tmp_path: Path, doomed: list[int]) -> None:
    pid = left_behind(tmp_path, how="unseen", without=f"SPT_NOENV {OWNER_MARK}")
    doomed.append(pid)
    found = find_leftovers(tmp_path / "journal", large_bytes=LARGE)
    assert pid not in {orphan.pid for orphan in found.orphans}
    (suspect,) = (each for each in found.suspects if each.pid == pid)
    assert suspect.why == "in the session of arm arm-1 of run run-1, which has ended"
    assert suspect.memory_bytes is not None
    assert suspect.memory_bytes > HELD_BYTES
    assert not is_gone(pid)


def test_sessions_without_a_visible_leader_are_not_taken_for_one(
    tmp_path: Path, doomed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every process whose session leader is outside the PID namespace has the session number 0."""
    pid = left_behind(tmp_path, how="unseen", without=f"SPT_NOENV {OWNER_MARK}")
    doomed.append(pid)
    (entry,) = read_journal(tmp_path / "journal")
    Journal(tmp_path / "journal").gone(entry)
    Journal(tmp_path / "journal").spawned(replace(entry, sid=0))
    monkeypatch.setattr(os, "getsid", lambda pid: 0)
    found = find_leftovers(tmp_path / "journal", large_bytes=1 << 50)
    assert pid not in {suspect.pid for suspect in found.suspects}


def test_the_processes_of_a_run_that_lives_are_left_alone(tmp_path: Path) -> None:
    mark = {OWNER_MARK: owner_mark(), "INTERLACE_RUN": "run-1"}
    code = "print(1, flush=True); import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], env=os.environ | mark, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        Journal(tmp_path / "journal").spawned(describe(psutil.Process(child.pid), run_id="run-1", arm="arm-1"))
        found = find_leftovers(tmp_path / "journal", large_bytes=0)
        child.kill()
    assert child.pid not in {each.pid for each in (*found.orphans, *found.suspects)}


def test_an_abandoned_process_of_our_interpreter_is_a_suspect_by_its_size(tmp_path: Path, doomed: list[int]) -> None:
    """All traces lost: no journal, no mark, no session. Its parent ends, so that init takes it over."""
    code = "import time; held = b'x' * 50_000_000; print(1, flush=True); time.sleep(600)"
    parent = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {code!r}], stdout=subprocess.PIPE,"
        " stderr=subprocess.DEVNULL, start_new_session=True)\n"
        "child.stdout.readline(); print(child.pid, flush=True)"
    )
    environment = {name: value for name, value in os.environ.items() if name != OWNER_MARK}
    done = subprocess.run([sys.executable, "-c", parent], env=environment, capture_output=True, check=True)
    pid = int(done.stdout)
    doomed.append(pid)
    journal = tmp_path / "journal"
    assert pid in {each.pid for each in find_leftovers(journal, large_bytes=50_000_000).suspects}
    assert pid not in {each.pid for each in find_leftovers(journal, large_bytes=LARGE).suspects}


def test_a_listener_on_a_port_of_ours_is_a_suspect(tmp_path: Path) -> None:
    """An old server that would answer instead of the one that is about to be launched."""
    code = (
        "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True);"
        " time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        found = find_leftovers(tmp_path / "journal", large_bytes=LARGE, ports=[port])
        server.kill()
    assert [(each.pid, each.why) for each in found.suspects if each.pid == server.pid] == [
        (server.pid, f"listens on port {port}")
    ]


def test_a_pid_that_is_anothers_by_now_is_not_signalled(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        orphan = Orphan(
            pid=child.pid,
            create_time=started_s(psutil.Process(child.pid)) - 60,
            title="",
            memory_bytes=None,
            run_id="run-1",
            arm="arm-1",
            proof="journal",
        )
        assert end_orphans([orphan], grace_s=0.1, journal=tmp_path / "journal") == ()
        assert child.poll() is None
        child.kill()


@contextmanager
def sleeping(**mark: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, with these variables."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INTERLACE")} | mark
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(["cat"], env=environment, start_new_session=True, bufsize=0, **pipes) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"\n")
        child.stdout.read(1)  # it has become its program; before, its environment can be empty
        try:
            yield child
        finally:
            child.kill()


def mark_of(process: psutil.Process) -> str:
    return f"{process.pid}:{started_s(process)!r}:{this_boot() or ''}"


def ended_process() -> psutil.Process:
    """A process object whose pid is free again."""
    with subprocess.Popen(["true"]) as child:
        process = psutil.Process(child.pid)
    return process


def test_a_leftover_of_this_run_is_one_of_its_own_owner_whose_arm_is_not_in_use(tmp_path: Path) -> None:
    other_run = mark_of(psutil.Process(os.getppid()))  # lives, and is not this one
    with (
        sleeping(**{OWNER_MARK: owner_mark(), "INTERLACE_ARM": "ended"}) as stray,
        sleeping(**{OWNER_MARK: owner_mark(), "INTERLACE_ARM": "used"}) as used,
        sleeping(**{OWNER_MARK: other_run, "INTERLACE_ARM": "ended"}) as others,
    ):
        pids = {stray.pid, used.pid, others.pid}

        def found(arms_in_use: set[str] | None) -> set[int]:
            leftovers = find_leftovers(tmp_path / "journal", large_bytes=LARGE, arms_in_use=arms_in_use)
            return pids & {orphan.pid for orphan in leftovers.orphans}

        assert found({"used"}) == {stray.pid}
        assert found(set()) == {stray.pid, used.pid}
        assert found(None) == set()


INNER = """
import os, subprocess, sys
from workers.machine.process_identity import OWNER_MARK, owner_mark
child = subprocess.Popen(["sleep", "600"], env={OWNER_MARK: owner_mark(), "INTERLACE_ARM": "a"})
print(os.getpid(), flush=True)
sys.stdin.read()
child.kill()
"""


def test_a_live_worker_in_a_container_is_no_orphan(tmp_path: Path) -> None:
    """Its owner's pid means something in the container alone; outside, nobody or another process bears it."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", INNER]
    if not shutil.which("unshare") or subprocess.run([*command[:4], "true"], capture_output=True).returncode:
        pytest.skip("needs a PID namespace of its own")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as container:
        assert container.stdout is not None
        container.stdout.readline()
        inside = {each.pid for each in psutil.Process(container.pid).children(recursive=True)}
        found = find_leftovers(tmp_path / "journal", large_bytes=LARGE)
        container.communicate()
    assert len(inside) == 2
    assert not inside & {each.pid for each in (*found.orphans, *found.suspects)}


def test_a_process_is_in_a_workers_session_only_if_it_is_the_younger_one(tmp_path: Path) -> None:
    """A session's number is used again as a pid is: what started before the worker cannot come of it."""
    gone = ended_process()
    with sleeping() as child:
        start = started_s(psutil.Process(child.pid))
        entry = replace(
            describe(psutil.Process(), run_id="run-1", arm="arm-1"),
            pid=gone.pid,
            sid=child.pid,
            parent_pid=gone.pid,
            create_time=start,
            parent_create_time=start - 1,
        )

        def why(entry: Spawned) -> list[str]:
            journal = tmp_path / f"journal-{entry.create_time}-{entry.parent_pid}-{entry.sid}"
            Journal(journal).spawned(entry)
            suspects = find_leftovers(journal, large_bytes=LARGE).suspects
            return [suspect.why for suspect in suspects if suspect.pid == child.pid]

        assert why(entry) == ["in the session of arm arm-1 of run run-1, which has ended"]
        assert why(replace(entry, create_time=start + 60)) == []
        assert why(replace(entry, sid=child.pid + 1)) == []
        own = psutil.Process()
        assert why(replace(entry, parent_pid=own.pid, parent_create_time=started_s(own))) == []
        assert why(replace(entry, pid=own.pid, create_time=start - 60)) == []  # its number is another's by now


LISTENER = (
    "import socket, sys, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True);"
    " time.sleep(600)"
)


@pytest.mark.parametrize("known_by", ["mark", "journal", ""])
def test_a_listener_of_a_run_that_lives_is_no_suspect(tmp_path: Path, known_by: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INTERLACE")}
    if known_by == "mark":
        environment[OWNER_MARK] = owner_mark()
    with subprocess.Popen([sys.executable, "-SEc", LISTENER], env=environment, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        if known_by == "journal":
            Journal(tmp_path / "journal").spawned(describe(psutil.Process(server.pid), run_id="run-1", arm="arm-1"))
        found = find_leftovers(tmp_path / "journal", large_bytes=LARGE, ports=[port])
        elsewhere = find_leftovers(tmp_path / "journal", large_bytes=LARGE, ports=[port + 1])
        server.kill()
    suspects = [suspect.why for suspect in found.suspects if suspect.pid == server.pid]
    assert suspects == ([] if known_by else [f"listens on port {port}"])
    assert server.pid not in {suspect.pid for suspect in elsewhere.suspects}


def test_a_listener_is_a_suspect_although_another_process_of_the_journal_lives(tmp_path: Path) -> None:
    """Only its own entry shows that a process is in use. Its title is its command line."""
    Journal(tmp_path / "journal").spawned(replace(describe(psutil.Process(), run_id="run-1", arm="arm-1"), exe=None))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INTERLACE")}
    with subprocess.Popen([sys.executable, "-SEc", LISTENER], env=environment, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        found = find_leftovers(tmp_path / "journal", large_bytes=LARGE, ports=[port])
        server.kill()
    (suspect,) = [suspect for suspect in found.suspects if suspect.pid == server.pid]
    assert suspect.why == f"listens on port {port}"
    assert suspect.title.startswith(f"{sys.executable} -SEc import socket")


def test_a_client_of_a_port_of_ours_is_no_listener(tmp_path: Path) -> None:
    """Its own end of the connection may have the number of a port that a run is about to use."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INTERLACE")}
    code = (
        "import socket, sys, time; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
        " print(s.getsockname()[1], flush=True); time.sleep(600)"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-SEc", code, str(server.getsockname()[1])]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            port = int(client.stdout.readline())
            found = find_leftovers(tmp_path / "journal", large_bytes=LARGE, ports=[port])
            client.kill()
    assert client.pid not in {suspect.pid for suspect in found.suspects}


def test_a_large_abandoned_process_of_another_program_is_nobodys(tmp_path: Path, doomed: list[int]) -> None:
    parent = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    environment = {name: value for name, value in os.environ.items() if name != OWNER_MARK}
    with subprocess.Popen([sys.executable, "-c", parent], env=environment, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
    doomed.append(pid)
    assert pid not in {suspect.pid for suspect in find_leftovers(tmp_path / "journal", large_bytes=0).suspects}
