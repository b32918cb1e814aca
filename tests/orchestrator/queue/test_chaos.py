"""SIGKILL at two hundred random moments: nothing lost, nothing doubled, nothing mislabelled, the same audit."""

import random
import shutil
from pathlib import Path

import pytest

from benchmarks.chaos import Chaos, Report, check_run, finish, opened, planned, start_life, stored_run


@pytest.mark.nightly
def test_a_run_survives_two_hundred_kills(tmp_path: Path) -> None:
    report = Chaos(tmp_path, 200, 60, random.Random(0), lambda text: None).run()
    assert report.faults == {}
    assert report.kills >= 200
    assert report.worker_kills > 3
    assert report.interrupted > 5


@pytest.mark.nightly
def test_a_log_that_was_torn_by_a_power_cut_costs_the_last_trials_only(tmp_path: Path) -> None:
    """Data that had not reached the disk is missing; the rest is whole, and the run continues from there."""
    path, plan = tmp_path / "run.db", planned(6)
    with opened(path) as database:
        run_id = stored_run(database, plan, tmp_path)
    finish(start_life(path, run_id, dies_at_commit=(45, 0.0)))
    torn = tmp_path / "torn.db"
    shutil.copy(path, torn)
    log = path.with_name("run.db-wal").read_bytes()
    (tmp_path / "torn.db-wal").write_bytes(log[: len(log) * 2 // 3])  # in the middle of a page
    finish(start_life(torn, run_id))
    report = Report()
    with opened(torn) as database:
        check_run(database, run_id, plan, report)
    assert report.faults == {}
