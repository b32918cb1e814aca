"""Every speculative engine in one run, end to end on tiny models: preflight, trials, evidence, audit, database."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workers import tiny_drafts
from tests.workers.environments import elsewhere

HEAD = """\
overrides: [workload=prompts, "workload.file=prompts.jsonl", workload.max_tokens=12, gate=none, design.rounds=6]
arms:
  - [checkpoint=target, engine=mlx_lm]
"""
HERE = """\
  - [checkpoint=target, engine=mlx_lm_draft, engine.draft=target]
  - [checkpoint=target, engine=dflash, engine.draft=v1, "engine.backend=mlx-dspark,dflash-mlx", engine.block_size=4]
  - [checkpoint=target, engine=dflash, engine.draft=v2, engine.block_size=4]
  - [checkpoint=target, engine=prompt_lookup]
"""
ELSEWHERE = """\
  - [checkpoint=target, engine=dflash, engine.draft=v2, engine.backend=dflash, "engine.python={python}"]
  - [checkpoint=hybrid, engine=mlx_lm]
  - [checkpoint=hybrid, engine=mtp, engine.depth=2, "engine.python={python}"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with tiny checkpoints, a prompt and a sweep."""
    built = {
        "target": tiny_drafts.build_target(tmp_path / "models" / "target"),
        "hybrid": tiny_drafts.build_hybrid(tmp_path / "models" / "hybrid", heads=True),
        "v1": tiny_drafts.build_draft(tmp_path / "models" / "v1"),
        "v2": tiny_drafts.build_draft(tmp_path / "models" / "v2", version=2),
    }
    for name, checkpoint in built.items():
        write(tmp_path / "checkpoint" / f"{name}.yaml", f"source: local\npath: {checkpoint['path']}\n")
    prompt = {"messages": [{"role": "user", "content": "Name three fruits."}]}
    write(tmp_path / "prompts.jsonl", json.dumps(prompt) + "\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def interlace(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"INTERLACE_DB": str(folder / "run.db"), "HOME": str(folder), "COLUMNS": "200"}
    command = [sys.executable, "-m", "orchestrator", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)


def ask(folder: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(interlace(folder, "query", sql, "--format", "json").stdout)
    return found


def run(folder: Path, sweep: str) -> dict[str, dict[str, Any]]:
    """The last measured generation of each arm."""
    write(folder / "sweep" / "all.yaml", sweep)
    done = interlace(folder, "run", "sweep=all", "--config-dir", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = ask(folder, "SELECT * FROM trial_flat WHERE kind = 'measured' ORDER BY started_at")
    assert {(row["status"], row["excluded_reason"]) for row in rows} == {("done", None)}
    return {row["arm"]: row for row in rows}


@pytest.mark.nightly
def test_every_engine_of_this_environment_engages_in_one_run(folder: Path) -> None:
    arms = run(folder, HEAD + HERE)
    assert len(arms) == 6
    speculative = {name: row for name, row in arms.items() if row["engine"] != "mlx_lm"}
    assert all(row["requested"] and row["engaged"] for row in speculative.values()), speculative
    tokens = {row["completion_tokens"] for row in arms.values()}
    assert tokens == {12}
    for name, row in speculative.items():
        assert row["accept_length"] >= 1, name
        assert "of" in row["evidence"], name
    plain = next(row for row in arms.values() if row["engine"] == "mlx_lm")
    assert not plain["requested"]
    assert not plain["engaged"]


@pytest.mark.nightly
def test_arms_of_two_environments_share_a_run(folder: Path) -> None:
    arms = run(folder, HEAD + ELSEWHERE.format(python=elsewhere()))
    versions = {row["engine_version"]: row["mlx_lm_version"] for row in arms.values()}
    assert versions["dflash 0.1.0"] == versions["2.12.2"] == "0.31.3"
    (here,) = {row["mlx_lm_version"] for row in arms.values() if row["engine"] == "mlx_lm"}
    assert here not in (None, "0.31.3")
    assert all(row["engaged"] for row in arms.values() if row["requested"])


@pytest.mark.nightly
def test_a_draft_that_the_package_does_not_know_stops_the_run_in_preflight(folder: Path) -> None:
    """The article's failure: never a slow night on the plain engine."""
    write(
        folder / "sweep" / "all.yaml",
        "overrides: [workload=prompts, workload.file=prompts.jsonl, workload.max_tokens=4, gate=none]\n"
        "arms:\n"
        "  - [checkpoint=target, engine=mlx_lm]\n"
        "  - [checkpoint=target, engine=dflash, engine.draft=v2, engine.backend=dflash-mlx]\n",
    )
    done = interlace(folder, "run", "sweep=all", "--config-dir", str(folder))
    assert done.returncode != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert "does not know 23 of the 81 parameters of the draft v2 (a DFlash 2 draft)" in said
    assert "set engine.backend to one that reads it: mlx-dspark, dflash" in said
    assert not ask(folder, "SELECT 1 FROM trial_flat WHERE kind = 'measured'")
