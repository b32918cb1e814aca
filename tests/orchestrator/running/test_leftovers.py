"""Before a run: what an earlier one left is ended, whatever it calls itself; what nobody can know is refused."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.errors import RefusedError
from orchestrator.plan import Gate
from orchestrator.running.leftovers import clear_leftovers, hidden, journal_beside
from workers.machine.process_identity import OWNER_MARK
from workers.supervision.journal import Journal, describe
from workers.supervision.orphans import Leftovers, Suspect

HELD_BYTES = 120_000_000
SIMULATED = ["engine=simulated", "checkpoint=simulated", "workload=quick", "engine.effect=1.0,1.1", "design.rounds=6"]
# What the article describes: a server under another title that holds memory and does not listen to SIGTERM.
SERVER = f"""
import signal, sys, time
import setproctitle
setproctitle.setproctitle("harmless: idle")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = bytearray({HELD_BYTES})
for place in range(0, len(held), 4096):
    held[place] = 1
print("ready", flush=True)
time.sleep(600)
"""


def test_a_strangers_command_line_is_shown_without_its_keys() -> None:
    title = "vllm serve m --api-key SECRETSECRET --port 8000 http://u:SECRETSECRET@h"
    assert hidden(title) == "vllm serve m --api-key <redacted> --port 8000 http://<redacted>@h"


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[int]:
    """A renamed server with argv and environ gone, journaled by a run that is dead. Its pid."""
    environment = {key: value for key, value in os.environ.items() if key not in ("SPT_NOENV", OWNER_MARK)}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, env=environment, start_new_session=True
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        entry = describe(psutil.Process(server.pid), run_id="run-1", arm="arm-1")
        dead = {"parent_pid": 2**22 + 1, "parent_create_time": 0.0}
        journal = Journal(journal_beside(tmp_path / "test.db"))
        journal.spawned(type(entry)(**({name: getattr(entry, name) for name in entry.__slots__} | dead)))
        yield server.pid
        server.kill()


def command(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"INTERLACE_DB": str(folder / "test.db"), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
        timeout=120,
    )


def ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
def test_the_next_run_finds_it_says_what_it_holds_ends_it_and_runs(tmp_path: Path, orphan: int) -> None:
    done = command(tmp_path, "run", *SIMULATED, "--quiet")
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stderr.splitlines() if f"process {orphan} " in line)
    assert line.startswith("interlace: ended a leftover: ")
    assert "(harmless: idle), arm arm-1 of run run-1, held 0.1" in line
    assert line.endswith(" GB")
    assert ended(orphan)


def test_ending_one_that_ignores_sigterm(tmp_path: Path, orphan: int) -> None:
    said: list[str] = []
    clear_leftovers(journal_beside(tmp_path / "test.db"), Gate(orphan_bytes=1e15), said.append, grace_s=0.2)
    assert any(f"process {orphan} (harmless: idle)" in text for text in said)
    assert ended(orphan)


def suspecting(monkeypatch: pytest.MonkeyPatch) -> None:
    suspect = Suspect(pid=4711, title="python serve.py", memory_bytes=2 * 10**9, why="listens on port 8080")
    monkeypatch.setattr(
        "orchestrator.running.leftovers.find_leftovers", lambda *_, **__: Leftovers(orphans=(), suspects=(suspect,))
    )


def test_what_only_looks_like_one_blocks_with_pid_memory_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspecting(monkeypatch)
    with pytest.raises(RefusedError) as raised:
        clear_leftovers(tmp_path / "journal", Gate(), lambda text: None)
    assert str(raised.value) == (
        "process 4711 (python serve.py) listens on port 8080, holds 2.00 GB: end it (kill 4711) if it is a leftover,"
        " or set gate.orphans=report"
    )
    assert raised.value.exit_code == 4


REAL = ["checkpoint=dummy-tiny", "engine=mlx_lm", "workload=quick", "gate.power_source=any", "--quiet"]


@pytest.mark.slow
def test_the_command_refuses_with_exit_code_4_and_one_line(tmp_path: Path) -> None:
    """A process in the session of a worker whose run is dead: nothing proves that it is ours, so it is not ended."""
    ours = ("SPT_NOENV", OWNER_MARK)
    environment = {key: value for key, value in os.environ.items() if key not in ours}
    leader = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', CODE]).pid, flush=True)"
    code = "'import time; time.sleep(600)'"
    with subprocess.Popen(
        [sys.executable, "-c", leader.replace("CODE", code)],
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    ) as worker:
        assert worker.stdout is not None
        child = int(worker.stdout.readline())
        entry = describe(psutil.Process(worker.pid), run_id="run-1", arm="arm-1")
        dead = {"parent_pid": 2**22 + 1, "parent_create_time": 0.0}
        Journal(journal_beside(tmp_path / "test.db")).spawned(
            type(entry)(**({name: getattr(entry, name) for name in entry.__slots__} | dead))
        )
        worker.wait()
    try:
        done = command(tmp_path, "run", *REAL, "gate.orphan_bytes=1e15")
        assert done.returncode == 4
        (line,) = done.stderr.splitlines()
        assert f"process {child} (" in line
        assert "in the session of arm arm-1 of run run-1, which has ended, holds " in line
        assert f"end it (kill {child}) if it is a leftover, or set gate.orphans=report" in line
        assert not ended(child)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.slow
def test_so_it_does_where_the_memory_plan_does_not_fit(tmp_path: Path) -> None:
    """Two answers of a million tokens: the line says how long ones would fit, and plan shows it beforehand."""
    huge = [
        "checkpoint=dummy-llama-8b-8bit",
        "engine=mlx_lm",
        "workload=two_turns_small",
        "workload.max_tokens=1000000",
    ]
    done = command(tmp_path, "run", *huge, "--quiet")
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert line.startswith("interlace: arm dummy-llama-8b-8bit needs ")
    assert "KV cache" in line
    assert "it fits with " in line
    shown = command(tmp_path, "plan", *huge)
    assert shown.returncode == 0
    assert "refused" in shown.stdout


def test_or_is_reported_by_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suspecting(monkeypatch)
    said: list[str] = []
    clear_leftovers(tmp_path / "journal", Gate(orphans="report"), said.append)
    assert said == ["may be a leftover: process 4711 (python serve.py) listens on port 8080, holds 2.00 GB"]


def test_a_run_that_died_leaves_nothing_to_the_next_one(tmp_path: Path) -> None:
    """SIGKILL of a real run: its workers end by themselves or are ended by the next start."""
    environment = os.environ | {"INTERLACE_DB": str(tmp_path / "test.db")}
    long = [*SIMULATED[:-1], "design.rounds=400", "--quiet"]
    run = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "run", *long], env=environment, cwd=tmp_path, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not (workers := psutil.Process(run.pid).children()) and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.wait()
    clear_leftovers(journal_beside(tmp_path / "test.db"), Gate(orphan_bytes=1e15), lambda text: None)
    assert workers
    assert all(ended(worker.pid) for worker in workers)
