"""An arm's memory compared with its plan: reported once, stored with the arm, and kept when it loads again."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from db import models
from db.engine import Database
from db.session import read_only
from orchestrator.running import monitor
from orchestrator.running.crew import Member
from orchestrator.running.monitor import Footprints, planned_footprints
from orchestrator.running.recorder import note_memory, spoil_newest_trial
from orchestrator.running.trial import Fault, Outcome
from tests.orchestrator.plans import arm, plan
from tests.orchestrator.running.trials import recorder_of, rows, run

GB = 10**9


def member(*, active_gb: float | None = None, held_gb: float | None = 9, simulated: bool = False) -> Member:
    loaded = SimpleNamespace(simulated=simulated, active_memory_bytes=None if active_gb is None else active_gb * GB)
    held = None if held_gb is None else int(held_gb * GB)
    return cast(Member, SimpleNamespace(loaded=loaded, process=SimpleNamespace(pid=4711, held_bytes=lambda: held)))


def outcome(*peaks_gb: float | None) -> Outcome:
    pairs = [(None, SimpleNamespace(peak_memory_bytes=None if gb is None else int(gb * GB))) for gb in peaks_gb]
    return cast(Outcome, SimpleNamespace(generations=pairs))


class Told:
    """Footprints of one arm, and what they said and stored."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, tree_gb: float | None = None) -> None:
        monkeypatch.setattr(monitor, "tree_peak_bytes", lambda pid: None if tree_gb is None else int(tree_gb * GB))
        self.notes: list[str] = []
        self.stored: list[tuple[str, str]] = []
        self.kept = Footprints(
            weights_bytes={"a": 8 * GB},
            total_bytes={"a": 10 * GB},
            note=self.notes.append,
            store=lambda arm, text: self.stored.append((arm, text)),
        )


PEAK = "up to 13.00 GB were held while it ran, +30% against the 10.00 GB that were planned"
HELD = "GB after loading, against planned weights of 8.00 GB and up to 1.2 GB beside them"
LOAD = "10.00 GB are in use after loading, +25% against the planned weights of 8.00 GB"


@pytest.mark.parametrize(
    ("held_gb", "told"),
    [
        (
            6.0,
            f"its processes hold 6.00 {HELD}",
        ),
        (8.0, None),
        (9.2, None),  # two processes: the worker's and the server's
        (
            12.0,
            f"its processes hold 12.00 {HELD}",
        ),
        (None, None),
    ],
)
def test_a_servers_memory_is_that_of_its_processes(
    monkeypatch: pytest.MonkeyPatch, held_gb: float | None, told: str | None
) -> None:
    """It reports no model sizes to the worker."""
    kept = Told(monkeypatch)
    found = kept.kept.after_load("a", member(held_gb=held_gb))
    assert found.note == told
    assert found.footprint_bytes == (None if held_gb is None else int(held_gb * GB))


def test_a_server_that_ran_already_holds_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    told.kept.total_bytes = {"a": 0}
    assert told.kept.after_load("a", member(held_gb=0.2)).note is None


def test_a_peak_that_comes_after_the_load_is_reported_once_and_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    for peaks in ((9.0, None), (10.5, 13.0), (14.0,)):
        told.kept.after_trial("a", member(), outcome(*peaks))
    assert told.notes == [f"a: {PEAK}"]
    assert told.stored == [("a", PEAK)]


def test_so_is_what_the_process_and_its_children_held_beside_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's memory is in no figure of ours but its processes' own."""
    told = Told(monkeypatch, tree_gb=13.0)
    told.kept.after_trial("a", member(), outcome(None))
    assert told.notes == [f"a: {PEAK}"]


def test_an_arm_that_loads_again_keeps_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    first = told.kept.after_load("a", member(active_gb=10))
    assert (first.planned_bytes, first.footprint_bytes, first.note) == (8 * GB, 9 * GB, LOAD)
    told.kept.after_trial("a", member(), outcome(13.0))
    assert told.kept.after_load("a", member(active_gb=10)).note == f"{LOAD}; {PEAK}"
    assert told.notes == [f"a: {LOAD}", f"a: {PEAK}"]


def test_simulated_and_unplanned_arms_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, tree_gb=99.0)
    told.kept.after_trial("a", member(simulated=True), outcome(99.0))
    told.kept.after_trial("b", member(), outcome(99.0))
    assert told.notes == []
    assert told.kept.after_load("a", member(simulated=True)).footprint_bytes is None


# ---- stored ----


def test_it_is_stored_with_its_arm(database: Database, tmp_path: Path) -> None:
    planned = plan(arm("a"), arm("b"))
    recorder = recorder_of(database, planned, tmp_path)
    planned_footprints(planned, recorder, weights_bytes={}, note=print).store("b", PEAK)
    note_memory(database, arm_id=recorder.arm_ids["a"], text=LOAD)
    with read_only(database) as session:
        notes = {name: session.get_one(models.Arm, key).memory_note for name, key in recorder.arm_ids.items()}
    assert notes == {"a": LOAD, "b": PEAK}


def test_only_a_trial_that_counts_is_taken_back(database: Database, tmp_path: Path) -> None:
    recorder = run(database, plan(arm("a"), arm("b"), rounds=2, bracket=False), tmp_path)
    fault = Fault(kind="teardown_hang", message="arm b: did not stop")
    key = recorder.arm_ids["b"]
    assert spoil_newest_trial(database, run_id=recorder.run_id, arm_id=key, fault=fault)
    assert not spoil_newest_trial(database, run_id=recorder.run_id, arm_id=key, fault=fault)  # it is invalid by now
    found = [(trial.status, trial.error_kind) for trial in rows(database, recorder.run_id, kind="measured", arm_id=key)]
    assert found == [("done", None), ("invalid", "teardown_hang")]
    assert {trial.status for trial in rows(database, recorder.run_id, arm_id=recorder.arm_ids["a"])} == {"done"}
