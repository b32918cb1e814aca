"""Designs and runs that are too small for any statistics: every command answers in words."""

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from db.session import open_database
from orchestrator.cli import cli
from orchestrator.configuration.compose import make_plan
from orchestrator.errors import InterlaceError
from orchestrator.planning.weights import find_weights
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.recorder import create_run
from workers.machine.host import read_host

ONE_ARM = ["engine=simulated", "checkpoint=dummy-tiny"]
TWO_ARMS = ["engine=simulated", "checkpoint=dummy-tiny", "engine.effect=1,1.1"]
DESIGN = ["design=quick", "design.rounds=6", "design.warmups=0", "design.bracket=false"]
SMALL = ["workload=quick_64", *DESIGN, "gate=none"]
ALONE = ["design.aa=false"]
EVERY = 1000  # rounds


def ask(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, list(words), env={"INTERLACE_DB": str(folder / "x.db"), "COLUMNS": "80"})


def said(result: Result) -> str:
    """Return the output of a command; a traceback fails the test."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        if getattr(result.exception, "exit_code", None) is None:
            raise result.exception
        return f"{result.output}{result.exception}"
    return result.output


def make_run(folder: Path, lines: list[str], *, rounds: int = EVERY) -> str:
    """A run that was stopped after so many rounds."""
    plan = make_plan([*lines, *SMALL]).plan
    database = open_database(f"sqlite:///{folder / 'x.db'}")
    recorder = create_run(database, plan, host=read_host(), weights=find_weights(plan), log_root=folder / "logs")
    asked = itertools.count()
    try:
        run_recorded(recorder, observer=Observer(), should_stop=lambda: next(asked) >= rounds)
    except InterlaceError:
        recorder.finish("interrupted")
    else:
        recorder.finish("done")
    return recorder.run_id


RUNS: dict[str, tuple[list[str], int]] = {
    "one arm, no A/A": ([*ONE_ARM, *ALONE], EVERY),
    "one arm, no A/A, one round": ([*ONE_ARM, *ALONE], 1),
    "no round": (TWO_ARMS, 0),
    "one round": (TWO_ARMS, 1),
    "two rounds": ([*TWO_ARMS, "design.interleave_by=prompt"], 2),
    "some trials failed": ([*TWO_ARMS, "engine.fault=error", "engine.fault_at=1"], EVERY),
    "all trials failed": (TWO_ARMS, 2),
}


IN_EVERY_SUITE = ("one arm, no A/A", "one round", "all trials failed")
SLOW = pytest.mark.slow


@pytest.mark.parametrize("name", [pytest.param(each, marks=[] if each in IN_EVERY_SUITE else SLOW) for each in RUNS])
def test_every_command_answers_for_a_small_run(tmp_path: Path, name: str) -> None:
    lines, rounds = RUNS[name]
    run_id = make_run(tmp_path, lines, rounds=rounds)
    if name == "all trials failed":
        with closing(sqlite3.connect(tmp_path / "x.db")) as database:
            database.execute("UPDATE trial SET status = 'invalid', error_kind = 'crashed', error_message = 'x'")
            database.commit()
    for command in (
        ["audit", run_id],
        ["audit", run_id, "--format", "json"],
        ["audit", run_id, "--format", "markdown"],
        ["audit", run_id, "--against", "claims"],
        ["report", run_id, "-o", str(tmp_path / "r.html"), "--markdown", str(tmp_path / "r.md")],
        ["history", "--simulated"],
        ["compare", run_id, run_id[:-1]],
        ["status"],
        ["queue", "list"],
        ["db", "export", run_id, "-o", str(tmp_path / "x.interlace")],
    ):
        assert said(ask(tmp_path, *command)).strip(), command


@pytest.mark.parametrize("lines", [TWO_ARMS, [*TWO_ARMS, "design.aa=false"], [*TWO_ARMS, "workload.max_tokens=1"]])
def test_two_runs_of_one_round_are_compared_in_words(tmp_path: Path, lines: list[str]) -> None:
    first, second = make_run(tmp_path, lines, rounds=1), make_run(tmp_path, lines, rounds=1)
    answer = said(ask(tmp_path, "compare", first, second))
    assert "no treatment has an interval in both" in answer


def test_a_plan_with_one_entry_a_round_says_what_it_lacks(tmp_path: Path) -> None:
    alone = [*ONE_ARM, *SMALL, *ALONE]
    planned = " ".join(said(ask(tmp_path, "plan", *alone)).split())
    assert "one arm without an A/A control compares nothing: name a second arm, or set design.aa=true" in planned
    for words in (["simulate", *alone], ["plan", *ONE_ARM, *ALONE, "design.detect=5%"]):
        answer = ask(tmp_path, *words)
        assert getattr(answer.exception, "exit_code", None) == 2
        assert "name a second arm, or set design.aa=true" in said(answer)
