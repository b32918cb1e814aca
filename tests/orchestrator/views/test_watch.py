"""Watching a run: what is shown, and how little is read for it."""

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from db.live import Life, Problem
from orchestrator import judging
from orchestrator.queue.clock_times import spoken
from orchestrator.queue.entry_run import run_entry
from orchestrator.queue.machine_lock import MachineLock
from orchestrator.running.events import Observer
from orchestrator.schedule import ScheduledTrial
from orchestrator.stored_run import StoredRun
from orchestrator.views.watch import Watch, live_run, watch
from orchestrator.views.watch_view import at_line, watched
from tests.orchestrator.queue.nights import TWO, database_of, queued, small
from tests.orchestrator.statistics.comparisons import comparison

NOW = dt.datetime(2026, 11, 30, 22, 0, tzinfo=dt.UTC)
RUNNING = {
    "state": "running",
    "label": "b",
    "kind": "measured",
    "round": 6,
    "attempt": 1,
    "done": 21,
    "total": 902,
    "ends_at": (NOW + dt.timedelta(minutes=15)).isoformat(),
}


def life_at(current: dict[str, Any] | None, **values: Any) -> Life:
    settings: dict[str, Any] = {
        "run_id": "01a2",
        "experiment": "blocks",
        "status": "running",
        "rounds": 300,
        "simulated": False,
        "heartbeat_at": NOW,
        "runner_pid": 7,
        "runner_started_at": 1.0,
        "boot_id": None,
        "note": None,
    }
    return Life(current=current, **(settings | values))


def picture(found: Life, problems: list[Problem], verdicts: str = "") -> str:
    out = Console(width=80)
    with out.capture() as capture:
        out.print(watched(found, problems, verdicts, now=NOW))
    return capture.get()


def test_a_line_says_what_the_run_is_at() -> None:
    line = at_line(life_at(RUNNING), now=NOW)
    assert line.startswith("b: running; round 7 of 300; attempt 2; 21 of 902 trials; about 15 min left, ends about ")
    waiting = RUNNING | {"state": "gate", "waiting": "hot: 1 (for 12 s)"}
    assert at_line(life_at(waiting), now=NOW).startswith("b: waiting for hot: 1 (for 12 s); round 7")
    assert at_line(life_at({"state": "preflight", "label": "b"}), now=NOW) == "preflight of b"
    assert at_line(life_at(None), now=NOW) == "not started yet"


def test_no_end_is_foretold_in_the_past() -> None:
    late = RUNNING | {"ends_at": (NOW - dt.timedelta(hours=1)).isoformat()}
    now = spoken(NOW, now=NOW)
    assert at_line(life_at(late), now=NOW).endswith(f"left, ends about {now}")


@pytest.mark.parametrize(
    ("status", "note", "line"),
    [
        ("done", None, "done; interlace audit 01a2"),
        ("failed", "the disk is full", "failed: the disk is full; interlace resume 01a2"),
        ("interrupted", None, "interrupted; interlace resume 01a2"),
    ],
)
def test_what_has_ended_says_why_and_what_to_type_next(status: str, note: str | None, line: str) -> None:
    text = picture(life_at(None, status=status, note=note, heartbeat_at=NOW - dt.timedelta(hours=1)), [])
    assert text.splitlines()[1] == line
    assert "heartbeat" not in text


def test_problems_dropped_arms_and_silence_are_shown() -> None:
    problems = [Problem(arm="c", round=None, what="dropped", why="3 faults in a row")]
    text = picture(
        life_at(RUNNING, heartbeat_at=NOW - dt.timedelta(minutes=5)), problems, "b against a: could be drift."
    )
    assert "dropped c: 3 faults in a row" in text
    assert "process 7 has sent no heartbeat for about 5 min" in text
    assert "interim, not final: b against a: could be drift." in text
    assert "SIMULATED" in picture(life_at(RUNNING, simulated=True), [])


class Looks(Observer):
    """Watches the run from within, after each of its trials."""

    def __init__(self, view: Watch) -> None:
        self.view = view
        self.alive: list[bool] = []

    def measuring(self, trial: ScheduledTrial) -> None:
        self.view.look()
        self.alive.append(live_run(self.view.database) is not None)


def test_statistics_are_made_once_a_round_and_problems_read_once_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = database_of(tmp_path)
    run_id = queued(database, small(*TWO, rounds=3), tmp_path)
    judged: list[str] = []
    monkeypatch.setattr(StoredRun, "trials", property(lambda run: judged.append(run.run_id)))
    monkeypatch.setattr(judging, "judge", lambda frame, plan: pytest.fail("nothing to judge") if frame else Said())
    watcher = Looks(Watch(database, run_id))
    run_entry(database, run_id, lock=MachineLock("test"), observer=watcher)
    assert len(watcher.alive) == 6
    assert all(watcher.alive)
    assert judged == [run_id] * 2  # after the first round and after the second
    assert watcher.view.verdicts == "b against a: supported.\nb: 1.20\u00d7 (1.18 to 1.22) of a"
    assert live_run(database) is None


class Said:
    summary = "b against a: supported."
    comparisons = (comparison(),)


def test_without_a_terminal_one_state_is_shown_at_the_lowest_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = database_of(tmp_path)
    run_id = queued(database, small(*TWO), tmp_path)
    niced: list[int] = []
    monkeypatch.setattr(os, "nice", niced.append)
    out = Console(width=80, force_terminal=False)
    with out.capture() as capture:
        watch(database, run_id, out)
    assert run_id in capture.get()
    assert niced == [19]


def test_a_watcher_ends_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = database_of(tmp_path)
    run_id = queued(database, small(*TWO), tmp_path)
    monkeypatch.setattr(os, "nice", lambda increment: 19)
    with (tmp_path / "screen").open("w") as screen:
        watch(database, run_id, Console(width=80, force_terminal=True, file=screen))
    assert run_id in (tmp_path / "screen").read_text()
