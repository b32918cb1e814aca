"""The shipped nights, as they are typed, on tiny models of their architectures: recurrent layers, DFlash 2, MTP heads.

A folder of one's own gives the shipped names other weights; everything else is what a night on a Mac would run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workers import tiny_drafts
from tests.workers.environments import elsewhere

pytestmark = pytest.mark.nightly

SHORT = ["gate=none", "design.rounds=6", "design.interleave_by=prompt", "design.bracket=false", "workload=quick"]
SHORT += ["workload.max_tokens=6", "design.probe_budget_s=1", "--quiet"]
DRAFT = "qwen3.8-27b-dflash2"
# A script with oMLX's files, log and counters: a process for each arm, which shows every request.
SERVER = Path(__file__).parents[1] / "workers" / "engines" / "scripted_server.py"
OMLX = f"engine.command='{sys.executable} {SERVER} good'"


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A folder whose checkpoints have the shipped names."""
    models = tmp_path / "models"
    shipped = {
        "qwen3.8-27b-4bit": (tiny_drafts.build_hybrid(models / "four"), DRAFT),
        "qwen3.8-27b-8bit": (tiny_drafts.build_hybrid(models / "eight", seed=1), DRAFT),
        "qwen3.8-27b-mtplx": (tiny_drafts.build_hybrid(models / "heads", heads=True), None),
        DRAFT: (tiny_drafts.build_draft(models / "draft", version=2), None),
        "qwen3.6-35b-a3b-4bit": (tiny_drafts.build_hybrid(models / "sparse"), DRAFT),
        "qwen3.6-35b-a3b-mtp-4bit": (tiny_drafts.build_hybrid(models / "sparse_heads", heads=True), None),
    }
    (tmp_path / "checkpoint").mkdir()
    for name, (built, draft) in shipped.items():
        lines = ["defaults: [/schema/checkpoint@_here_, _self_]", "source: local", f"path: {built['path']}"]
        lines += [] if draft is None else [f"draft: {draft}"]
        (tmp_path / "checkpoint" / f"{name}.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def night(lab: Path, *overrides: str, engine: str = "") -> dict[str, list[dict[str, Any]]]:
    """The measured generations of a run, by arm.

    Args:
        engine: where the engine is, as an override; the interpreter of the second environment if not given.
    """
    environment = os.environ | {"INTERLACE_DB": str(lab / "night.db"), "COLUMNS": "80"}
    interlace = [sys.executable, "-m", "orchestrator"]
    where = engine or f"engine.python={elsewhere()}"
    command = [*interlace, "run", *overrides, *SHORT, where, "--config-dir", str(lab)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=lab, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    query = [*interlace, "query", "SELECT * FROM trial_flat WHERE kind = 'measured' AND NOT is_aa", "--format", "json"]
    told = subprocess.run(query, capture_output=True, text=True, env=environment, cwd=lab, check=True)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(told.stdout):
        found.setdefault(row["arm"], []).append(row)
    return found


def shows(rows: list[dict[str, Any]], *, speculative: bool) -> bool:
    """Return whether each generation of an arm counts and shows what the arm asks for."""
    return all(
        row["status"] == "done" and bool(row["requested"]) is speculative and bool(row["engaged"]) is speculative
        for row in rows
    )


def test_dflash_2_by_block_size_and_bits(lab: Path) -> None:
    arms = night(lab, "sweep=dflash2_27b_in_process")
    assert len(arms) == 12
    for name, rows in arms.items():
        assert len(rows) == 6, name
        assert shows(rows, speculative="dflash" in name), name
    widths = {rows[0]["block_size"] for name, rows in arms.items() if "dflash" in name}
    assert widths == {3, 4, 5, 8, 12}


def test_dflash_2_through_omlx(lab: Path) -> None:
    arms = night(lab, "sweep=dflash2_27b_omlx", "checkpoint=qwen3.8-27b-8bit", engine=OMLX)
    assert len(arms) == 5
    for name, rows in arms.items():
        assert len(rows) == 6, name
        assert shows(rows, speculative="dflash" in name), name
    assert {rows[0]["block_size"] for name, rows in arms.items() if "dflash" in name} == {4, 5, 8, 12}


def test_dflash_against_mtp_through_omlx(lab: Path) -> None:
    arms = night(lab, "sweep=dflash_mtp_35b", engine=OMLX)
    assert {rows[0]["engine"] for rows in arms.values()} == {"omlx", "omlx_mtp", "omlx_dflash"}
    for name, rows in arms.items():
        assert len(rows) == 6, name
        assert shows(rows, speculative=rows[0]["engine"] != "omlx"), name


def test_the_bits_of_the_draft(lab: Path) -> None:
    arms = night(lab, "sweep=dflash2_27b_draft_bits")
    assert len(arms) == 8
    for name, rows in arms.items():
        assert shows(rows, speculative="dflash" in name), name


def test_the_model_s_own_heads(lab: Path) -> None:
    arms = night(lab, "checkpoint=qwen3.8-27b-mtplx", "engine=mlx_lm,mtp")
    assert len(arms) == 2
    for name, rows in arms.items():
        assert shows(rows, speculative="mtp" in name), name
