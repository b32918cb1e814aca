"""Every way in which a worker can fail, through a whole run with real processes: one invalid trial with its kind, and
the run goes on."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine as Database

from db.session import open_database
from orchestrator.plan import Arm, Deadlines
from orchestrator.running.crew import Crew, Member
from orchestrator.running.readiness import journal_beside
from tests.orchestrator.plans import arm, plan
from tests.orchestrator.running.test_runner import Witness, rows, run
from workers import process
from workers.journal import read_journal

ROUNDS = 4
THIRD_TRIAL = 4  # of the process's generations: preflight, warm-up and two trials come before it
TIGHT = Deadlines(load_s=20, first_token_s=1, inter_token_s=1, total_s=1.5, teardown_s=5)
DESIGN = {"rounds": ROUNDS, "aa": False, "bracket": False, "deadlines": TIGHT}


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return open_database(f"sqlite:///{tmp_path / 'test.db'}")


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
    monkeypatch.setattr(process, "MAX_PRINTED_BYTES", 2**20)
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
    """The log of the arm `bad` lies on a disk that takes nothing."""
    load = Crew._load  # noqa: SLF001 - no public place lets one arm's log lie elsewhere

    def with_full_log(crew: Crew, arm: Arm) -> Member:
        log = crew.log_dir / f"{arm.name}.log"
        if arm.name == "bad" and not log.is_symlink():
            log.symlink_to("/dev/full")
        return load(crew, arm)

    monkeypatch.setattr(Crew, "_load", with_full_log)


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


def test_a_stop_that_never_returns_costs_a_note_and_no_result(database: Database, tmp_path: Path) -> None:
    witness = Witness()
    deadlines = Deadlines(load_s=20, first_token_s=5, inter_token_s=5, total_s=10, teardown_s=0.3)
    planned = plan(arm("a"), arm("bad", fault="slow_stop"), **(DESIGN | {"residency": "swap", "deadlines": deadlines}))
    recorder = run(database, planned, tmp_path, witness)
    measured = rows(database, recorder.run_id, kind="measured")
    assert len(measured) == 2 * ROUNDS
    assert {trial.status for trial in measured} == {"done"}
    assert "bad: did not stop within 0.3 s, ended by SIGKILL" in witness.notes
    assert read_journal(journal_beside(tmp_path / "test.db")) == []


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
