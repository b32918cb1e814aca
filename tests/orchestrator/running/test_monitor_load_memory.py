"""An arm's memory after loading, compared with its plan; and memory that settles between swapped arms."""

from pathlib import Path

import pytest

from db import models
from db.engine import Database
from db.session import read_only
from orchestrator.plan import Arm
from orchestrator.planning.memory import load_note
from orchestrator.planning.weights import Weights
from orchestrator.running.crew import Crew
from orchestrator.running.monitor import Footprints
from orchestrator.running.trial import LoadMemory
from tests.orchestrator.plans import DEADLINES, arm, plan
from tests.orchestrator.running.trials import recorder_of, run
from workers.protocol import Generate, Heartbeat
from workers.supervision.worker_process import StopReport

GB = 10**9


@pytest.mark.parametrize(
    ("planned", "measured", "note"),
    [
        (10 * GB, 10 * GB, None),
        (10 * GB, 11 * GB, None),
        (10 * GB, 9 * GB, None),
        (10 * GB, 12 * GB, "12.00 GB are in use after loading, +20% against the planned weights of 10.00 GB"),
        (10 * GB, 7 * GB, "7.00 GB are in use after loading, -30% against the planned weights of 10.00 GB"),
        (None, 7 * GB, None),
        (0, 7 * GB, None),
        (10 * GB, None, None),
    ],
)
def test_a_difference_of_more_than_a_tenth_is_reported(
    planned: int | None, measured: int | None, note: str | None
) -> None:
    assert load_note(planned_bytes=planned, measured_bytes=measured) == note


def test_it_is_stored_with_the_arm(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = LoadMemory(planned_bytes=10 * GB, footprint_bytes=13 * GB, note="12.00 GB are in use")
    monkeypatch.setattr(Footprints, "after_load", lambda *_: memory)
    recorder = run(database, plan(arm("a"), arm("b"), rounds=2), tmp_path)
    with read_only(database) as session:
        row = session.get_one(models.Arm, recorder.arm_ids["a"])
        assert (row.planned_weights_bytes, row.footprint_bytes, row.memory_note) == (
            10 * GB,
            13 * GB,
            "12.00 GB are in use",
        )


def test_memory_settles_between_one_arms_end_and_the_next_ones_load(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan(arm("a"), arm("b"), residency="swap")
    recorder = recorder_of(database, planned, tmp_path)
    seen: list[int] = []
    crew = Crew(
        run_id=recorder.run_id,
        log_dir=tmp_path,
        deadlines=planned.design.deadlines,
        swap=True,
        weights={},
        journal_path=tmp_path / "journal",
        settle=lambda: seen.append(len(crew.members)),
    )
    monkeypatch.setattr(Crew, "_load", lambda crew, arm: FakeMember())
    for each in (planned.arms[0], planned.arms[1], planned.arms[1], planned.arms[0]):
        crew.member(each, on_load=lambda member: None)
    assert seen == [0, 0]  # not before the first load, and nobody is loaded while it is waited
    crew.members.clear()


def test_a_server_s_port_that_is_still_answered_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan(arm("a"))
    notes: list[str] = []
    crew = Crew(
        run_id="run-1",
        log_dir=tmp_path,
        deadlines=planned.design.deadlines,
        swap=False,
        weights={},
        journal_path=tmp_path / "journal",
        note=notes.append,
    )
    monkeypatch.setattr(Crew, "_load", lambda crew, arm: FakeMember())
    monkeypatch.setattr(FakeMember, "open_ports", (8123,))
    crew.member(planned.arms[0], on_load=lambda member: None)
    crew.close()
    assert notes == ["a: ended, but there still is an answer on ports (8123,) of its servers"]


@pytest.mark.parametrize(
    ("available_gb", "compressed_gb", "unreturned_gb", "says"),
    [
        ((10, 29), (0, 0), 0, None),
        ((10, 12), (0, 0), 18, "a: ended, but 18.00 of the 20.00 GB that it held are not available again"),
        ((10, 12), (18, 1), 0, None),  # 17 GB of the footprint were compressed: 3 GB of it took room
        ((10, 12), (18, 12), 12, "a: ended, but 12.00 of the 14.00 GB that it held are not available again"),
    ],
)
def test_a_swapped_arm_s_memory_has_to_come_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    available_gb: tuple[int, int],
    compressed_gb: tuple[int, int],
    unreturned_gb: int,
    says: str | None,
) -> None:
    """On a Mac what a killed process had wired may stay so; it is told, and stored with the trials that follow."""
    planned = plan(arm("a"), arm("b"), residency="swap")
    notes: list[str] = []
    available, compressed = iter(available_gb), iter(compressed_gb)
    crew = Crew(
        run_id="run-1",
        log_dir=tmp_path,
        deadlines=planned.design.deadlines,
        swap=True,
        weights={},
        journal_path=tmp_path / "journal",
        note=notes.append,
        settle=lambda: None,
        available_bytes=lambda: next(available) * GB,
        compressed_bytes=lambda: next(compressed) * GB,
    )
    monkeypatch.setattr(Crew, "_load", lambda crew, arm: FakeMember())
    monkeypatch.setattr(FakeMember, "held_bytes", 20 * GB)
    crew.member(planned.arms[0], on_load=lambda member: None)
    assert crew.memory_reading().reason == "no arm has been swapped out yet"
    crew.member(planned.arms[1], on_load=lambda member: None)
    assert crew.memory_reading().value == unreturned_gb * GB
    assert [note.partition(";")[0] for note in notes] == ([] if says is None else [says])
    crew.members.clear()


def test_a_worker_that_is_interrupted_in_a_request_left_nothing_behind(tmp_path: Path) -> None:
    """Ctrl-C during a trial: the signal that ends the worker itself is no news; one that ends what it left is."""
    endless = arm("a", fault="endless")
    notes: list[str] = []
    crew = crew_of_one(endless, tmp_path, notes)

    def interrupt(_: Heartbeat) -> None:
        raise KeyboardInterrupt

    member = crew.member(endless, on_load=lambda member: None)
    request = Generate(request_id="1", turns=[[{"role": "user", "content": "go on"}]], max_tokens=4, seed=0)
    with pytest.raises(KeyboardInterrupt):
        member.process.generate(request, member.deadlines, interrupt)
    crew.close()
    assert notes == []


@pytest.mark.parametrize(("returncode", "signals"), [(0, ("SIGTERM",)), (-9, ("SIGTERM", "SIGKILL"))])
def test_what_a_worker_left_behind_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returncode: int, signals: tuple[str, ...]
) -> None:
    notes: list[str] = []
    crew = crew_of_one(arm("a"), tmp_path, notes)
    report = StopReport(returncode=returncode, signals=signals, survivors=())
    monkeypatch.setattr(Crew, "_load", lambda crew, arm: FakeMember())
    monkeypatch.setattr(FakeMember, "stop", lambda self, teardown_s: report)
    crew.member(arm("a"), on_load=lambda member: None)
    crew.close()
    assert notes == [f"a: left processes behind, ended by {signals[-1]}"]


def crew_of_one(chosen: Arm, folder: Path, notes: list[str]) -> Crew:
    return Crew(
        run_id="run-1",
        log_dir=folder,
        deadlines=DEADLINES,
        swap=False,
        weights={chosen.name: Weights(checkpoint=chosen.checkpoint, draft=None)},
        journal_path=folder / "journal",
        note=notes.append,
    )


class FakeMember:
    """A worker that ends at once."""

    @property
    def process(self) -> "FakeMember":
        return self

    def stop(self, teardown_s: float) -> "FakeMember":
        return self

    survivors = ()
    open_ports: tuple[int, ...] = ()
    signals = ()
    hung = False
    held_bytes: int | None = None
