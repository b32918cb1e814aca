"""Every way in which a worker can fail, through a whole run with real processes: one invalid trial with its kind, and
the run goes on."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from db.engine import Database
from orchestrator.plan import Arm, Deadlines
from orchestrator.running.crew import Crew, Member
from orchestrator.running.leftovers import journal_beside
from tests.orchestrator.plans import arm, plan
from tests.orchestrator.running.trials import Witness, rows, run
from workers.files.private import open_private
from workers.supervision import worker_process
from workers.supervision.journal import read_journal

ROUNDS = 4
THIRD_TRIAL = 4  # of the process's generations: preflight, warm-up and two trials come before it
TIGHT = Deadlines(load_s=20, first_token_s=1, inter_token_s=1, total_s=1.5, teardown_s=5)
DESIGN = {"rounds": ROUNDS, "aa": False, "bracket": False, "deadlines": TIGHT}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("crash", "crashed"),
        ("segfault", "crashed"),
        ("exit0", "exited_without_record"),
        ("garbage", "garbage"),
        ("flood", "garbage"),
        ("oom", "out_of_memory"),
        ("error", "generation_failed"),
        ("zero_tokens", "zero_tokens"),
        ("hang_first", "hung_first_token"),
        ("hang_between", "hung_inter_token"),
        ("endless", "too_long"),
        ("print_flood", "log_flood"),
        ("print", "disk_full"),
    ],
)
@pytest.mark.slow
def test_each_fault_is_one_invalid_trial_with_its_kind(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, kind: str
) -> None:
    monkeypatch.setattr(worker_process, "MAX_PRINTED_BYTES", 2**20)
    if fault == "print":
        full_disk(monkeypatch)
    recorder = run(database, plan(arm("a"), arm("bad", fault=fault, fault_at=THIRD_TRIAL), **DESIGN), tmp_path)
    measured = rows(database, recorder.run_id, kind="measured")
    assert len(measured) == 2 * ROUNDS
    (invalid,) = (trial for trial in measured if trial.status != "done")
    assert (invalid.status, invalid.error_kind) == ("invalid", kind)
    assert invalid.arm_id == recorder.arm_ids["bad"]
    assert "arm bad" in (invalid.error_message or "")
    assert read_journal(journal_beside(tmp_path / "test.db")) == []


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of the arm `bad` lies on a disk that has no room."""

    def opened(path: Path, flags: int) -> int:
        descriptor = open_private(path, flags)
        if path.name != "bad.log":
            return descriptor
        os.close(descriptor)
        return os.open("/dev/full", os.O_WRONLY)

    monkeypatch.setattr("workers.supervision.child.open_private", opened)


def failing_load(monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], *, which: Callable[[int], bool]) -> None:
    """Some loads of the arm `bad`, counted from 0, get these settings: a load that worked once may fail later."""
    load = Crew._load  # noqa: SLF001 - a fault in a later load only
    loads = {"bad": 0}

    def sometimes(crew: Crew, arm: Arm) -> Member:
        if arm.name != "bad":
            return load(crew, arm)
        loads["bad"] += 1
        engine = arm.engine | settings if which(loads["bad"] - 1) else arm.engine
        return load(crew, Arm(name="bad", checkpoint=arm.checkpoint, engine=engine, sampling=arm.sampling, draft=None))

    monkeypatch.setattr(Crew, "_load", sometimes)


@pytest.mark.parametrize(("fault", "kind"), [("hang_load", "hung_load"), ("load_error", "load_failed")])
def test_a_load_that_fails_in_the_middle_of_the_night(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, kind: str
) -> None:
    failing_load(monkeypatch, {"fault": fault}, which=lambda number: number == 1)
    deadlines = Deadlines(load_s=3, first_token_s=5, inter_token_s=5, total_s=10, teardown_s=5)
    planned = plan(arm("a"), arm("bad"), **(DESIGN | {"residency": "swap", "deadlines": deadlines}))
    recorder = run(database, planned, tmp_path)
    measured = rows(database, recorder.run_id, kind="measured")
    assert len(measured) == 2 * ROUNDS
    assert [trial.error_kind for trial in measured if trial.status == "invalid"] == [kind]


HASTY = Deadlines(load_s=20, first_token_s=5, inter_token_s=5, total_s=10, teardown_s=2)
SWAP = DESIGN | {"residency": "swap", "deadlines": HASTY}


def test_a_stop_that_never_returns_is_one_invalid_trial_where_it_makes_room_for_the_next_arm(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial that the worker ran before: it was stored as done, and is taken back by what the process did."""
    failing_load(monkeypatch, {"fault": "slow_stop"}, which=lambda number: number == 2)
    witness = Witness()
    recorder = run(database, plan(arm("a"), arm("bad"), **SWAP), tmp_path, witness)
    measured = rows(database, recorder.run_id, kind="measured")
    assert len(measured) == 2 * ROUNDS
    (invalid,) = (trial for trial in measured if trial.status != "done")
    assert (invalid.status, invalid.error_kind) == ("invalid", "teardown_hang")
    assert invalid.arm_id == recorder.arm_ids["bad"]
    assert invalid.error_message == "arm bad: did not stop within 2 s, ended by SIGKILL"
    assert "bad: did not stop within 2 s, ended by SIGKILL" in witness.notes
    assert read_journal(journal_beside(tmp_path / "test.db")) == []


def test_three_of_them_in_a_row_park_the_arm(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_load(monkeypatch, {"fault": "slow_stop"}, which=lambda number: number >= 1)
    witness = Witness()
    # An order in which the arm never comes twice in succession: then it would stay loaded in between.
    planned = plan(arm("a"), arm("bad"), arm("c"), **(SWAP | {"seed": 3}))
    recorder = run(database, planned, tmp_path, witness)
    assert witness.dropped == {"bad": "3 faults in a row; the last: arm bad: did not stop within 2 s, ended by SIGKILL"}
    bad = rows(database, recorder.run_id, kind="measured", arm_id=recorder.arm_ids["bad"])
    assert [trial.error_kind for trial in bad] == ["teardown_hang"] * 3
    assert len(rows(database, recorder.run_id, kind="measured", arm_id=recorder.arm_ids["a"])) == ROUNDS


def test_one_that_hangs_at_once_is_found_in_the_preflight(database: Database, tmp_path: Path) -> None:
    """A fault that would cost every trial of the night is found before it."""
    witness = Witness()
    planned = plan(arm("a"), arm("bad", fault="slow_stop"), **(SWAP | {"on_preflight_failure": "drop"}))
    recorder = run(database, planned, tmp_path, witness)
    assert witness.problems["bad"] == "teardown_hang: did not stop within 2 s, ended by SIGKILL"
    assert rows(database, recorder.run_id, kind="measured", arm_id=recorder.arm_ids["bad"]) == []


@pytest.mark.slow
def test_after_the_last_trial_of_a_resident_arm_it_costs_a_note(database: Database, tmp_path: Path) -> None:
    """Nothing waits for the room by then: its trials were over long before, and count."""
    witness = Witness()
    planned = plan(arm("a"), arm("bad", fault="slow_stop"), **(DESIGN | {"deadlines": HASTY}))
    recorder = run(database, planned, tmp_path, witness)
    assert {trial.status for trial in rows(database, recorder.run_id, kind="measured")} == {"done"}
    assert "bad: did not stop within 2 s, ended by SIGKILL" in witness.notes


def test_three_loads_in_a_row_that_fail_park_the_arm_with_a_note(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_load(monkeypatch, {"fault": "load_error"}, which=lambda number: number >= 1)
    witness = Witness()
    planned = plan(arm("a"), arm("bad"), arm("c"), **(DESIGN | {"residency": "swap", "rounds": 6}))
    recorder = run(database, planned, tmp_path, witness)
    assert "3 faults in a row; the last: " in witness.dropped["bad"]
    assert len(rows(database, recorder.run_id, kind="measured", arm_id=recorder.arm_ids["bad"])) == 3
    assert len(rows(database, recorder.run_id, kind="measured", arm_id=recorder.arm_ids["a"])) == 6
