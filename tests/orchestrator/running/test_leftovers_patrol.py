"""Leftovers looked for before each trial: what is ours is ended, what may be stands in the way, and it costs little."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from orchestrator.plan import Gate
from orchestrator.running import leftovers
from orchestrator.running.gate import ORPHAN
from orchestrator.running.leftovers import Patrol
from workers.machine.process_identity import OWNER_MARK, owner_mark
from workers.supervision.journal import Journal, Spawned, describe
from workers.supervision.orphans import Leftovers, Suspect

GATE = Gate(orphan_bytes=1e15)  # only what is named here is found
IDLE = "print(1, flush=True); import time; time.sleep(600)"
SUSPECT = Suspect(pid=4711, title="python serve.py", memory_bytes=2 * 10**9, why="listens on port 8080")


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Beat:
    """A patrol on a fake clock, and what it said."""

    journal: Path
    gate: Gate = GATE
    clock: Clock = field(default_factory=Clock)
    notes: list[str] = field(default_factory=list)

    def patrol(self, **options: object) -> Patrol:
        made = Patrol(journal=self.journal, gate=self.gate, note=self.notes.append, clock=self.clock, grace_s=0.3)
        for name, value in options.items():
            setattr(made, name, value)
        return made


@pytest.fixture
def beat(tmp_path: Path) -> Beat:
    return Beat(journal=tmp_path / "journal")


Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts idle processes with an environment; whatever became of them, they are gone at the test's end."""
    made = []

    def spawn(**environment: str) -> "subprocess.Popen[bytes]":
        clean = {name: value for name, value in os.environ.items() if name != OWNER_MARK}
        process = subprocess.Popen(
            [sys.executable, "-c", IDLE], env=clean | environment, stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        made.append(process)
        return process

    yield spawn
    for process in made:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def journaled(process: "subprocess.Popen[bytes]", *, dead_run: bool) -> Spawned:
    entry = describe(psutil.Process(process.pid), run_id="run-1", arm="arm-1")
    return replace(entry, parent_pid=2**22 + 1, parent_create_time=0.0) if dead_run else entry


def test_a_quiet_machine_costs_no_scan_until_the_interval_is_over(beat: Beat) -> None:
    watch = beat.patrol()
    for now_s in (0.0, 30.0, 59.0):
        beat.clock.now_s = now_s
        assert watch.look().problem is None
    assert watch.scans == 0
    beat.clock.now_s = 60.0
    watch.look()
    beat.clock.now_s = 61.0
    assert watch.look().kind == ORPHAN
    assert watch.scans == 1


def test_what_the_journal_proves_is_ended_at_the_next_trial_and_noted(beat: Beat, spawn: Spawn) -> None:
    watch, process = beat.patrol(), spawn()
    Journal(beat.journal).spawned(journaled(process, dead_run=True))
    assert watch.look().problem is None
    assert process.wait(10) < 0
    (note,) = beat.notes
    assert note.startswith(f"ended a leftover: process {process.pid} (")
    assert "arm arm-1 of run run-1, held 0.0" in note
    assert watch.scans == 1


def test_the_workers_of_the_run_itself_are_left_alone(beat: Beat, spawn: Spawn) -> None:
    process = spawn(**{OWNER_MARK: owner_mark(), "INTERLACE_ARM": "a", "INTERLACE_RUN": "run-2"})
    sampler = spawn(**{OWNER_MARK: owner_mark(), "INTERLACE_ARM": "sampler"})
    Journal(beat.journal).spawned(journaled(process, dead_run=False))
    beat.clock.now_s = 0.0
    watch = beat.patrol(arms_in_use=lambda: ["a"])
    beat.clock.now_s = 60.0
    assert watch.look().problem is None
    assert (process.poll(), sampler.poll(), beat.notes) == (None, None, [])


def test_what_an_ended_arm_of_this_run_left_behind_is_ended(beat: Beat, spawn: Spawn) -> None:
    """A server that made a session of its own outlives its worker, while the run itself lives on."""
    stray = spawn(**{OWNER_MARK: owner_mark(), "INTERLACE_ARM": "former", "INTERLACE_RUN": "run-2"})
    watch = beat.patrol(arms_in_use=lambda: ["a"])
    beat.clock.now_s = 60.0
    assert watch.look().problem is None
    assert stray.wait(10) < 0
    assert "arm former of run run-2" in beat.notes[0]


def found_by(monkeypatch: pytest.MonkeyPatch, *suspects: Suspect) -> list[int]:
    looks: list[int] = []

    def find(*_: object, **__: object) -> Leftovers:
        looks.append(1)
        return Leftovers(orphans=(), suspects=suspects)

    monkeypatch.setattr(leftovers, "find_leftovers", find)
    return looks


def test_a_suspect_stands_in_the_way_until_it_is_gone(beat: Beat, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = found_by(monkeypatch, SUSPECT)
    watch = beat.patrol()
    beat.clock.now_s = 60.0
    assert watch.look().problem == (
        "process 4711 (python serve.py) listens on port 8080, holds 2.00 GB; end it if it is a leftover"
    )
    beat.clock.now_s = 61.0
    assert watch.look().problem is not None
    assert len(looks) == 2  # while it is there every look asks anew
    found_by(monkeypatch)
    assert watch.look().problem is None


def test_or_is_reported_once_by_choice(beat: Beat, monkeypatch: pytest.MonkeyPatch) -> None:
    found_by(monkeypatch, SUSPECT)
    beat.gate = replace(GATE, orphans="report")
    watch = beat.patrol()
    for now_s in (60.0, 120.0, 180.0):
        beat.clock.now_s = now_s
        assert watch.look().problem is None
    assert beat.notes == ["may be a leftover: process 4711 (python serve.py) listens on port 8080, holds 2.00 GB"]
    assert watch.scans == 3


def test_a_worker_that_no_signal_ended_stands_in_the_way(
    beat: Beat, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one whose pid is another's by now does not."""
    process, reused = psutil.Process(spawn().pid), psutil.Process()
    monkeypatch.setattr(reused, "_ident", (reused.pid, 0.0))
    watch = beat.patrol(survivors=lambda: [process, reused])
    assert watch.look().problem == f"process {process.pid} of an arm that was ended survives SIGKILL"
    process.kill()
    process.wait()
    assert watch.look().problem is None
