"""One run over the package in process and two real servers, mlx_lm.server and dflash serve, which it launches."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import select

from db import models
from db.session import open_database, read_only
from orchestrator.plan import Arm, Deadlines
from orchestrator.planning.weights import find_weights
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.recorder import create_run
from tests.workers import tiny_drafts
from tests.workers.environments import lent_package
from workers.machine.host import read_host

from .plans import OPEN_GATE, SAMPLING, plan, prompt

DEADLINES = Deadlines(load_s=120, first_token_s=60, inter_token_s=30, total_s=120, teardown_s=15)


def arm(name: str, target: str, checkpoint: dict[str, Any], draft: dict[str, Any] | None, **settings: Any) -> Arm:
    engine = {"_target_": f"workers.engines.{target}", "name": name} | settings
    return Arm(name=name, checkpoint=checkpoint, engine=engine, sampling=SAMPLING, draft=draft)


@pytest.mark.nightly
def test_servers_are_arms_like_any_other(tmp_path: Path) -> None:
    target = tiny_drafts.build_target(tmp_path / "target") | {"bits": None}
    draft = tiny_drafts.build_draft(tmp_path / "draft") | {"bits": None}
    database = open_database(f"sqlite:///{tmp_path / 'test.db'}")
    with lent_package(tmp_path) as python:
        arms = (
            arm("mlx_lm", "mlx_lm.MlxLm", target, None),
            arm("mlx_lm_server", "mlx_lm_server.MlxLmServer", target, None),
            arm("dflash_server", "dflash_server.DflashServer", target, draft, server_python=python, copy_drafts=False),
        )
        two_turns = (prompt(turns=2),)
        planned = plan(*arms, prompts=two_turns, rounds=2, aa=False, bracket=False, warmups=0, deadlines=DEADLINES)
        planned = replace(planned, gate=OPEN_GATE)
        recorder = create_run(
            database, planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path / "logs"
        )
        run_recorded(recorder, observer=Observer())
    with read_only(database) as session:
        trials = session.scalars(select(models.Trial).filter_by(kind="measured")).all()
        assert [trial.error_message for trial in trials if trial.status == "invalid"] == []
        for name, arm_id in recorder.arm_ids.items():
            rows = session.scalars(
                select(models.Generation).join(models.Trial).where(models.Trial.arm_id == arm_id)
            ).all()
            assert len(rows) == 2 * 2
            served = name != "mlx_lm"
            assert {row.stamps_of for row in rows} == {"chunk" if served else "token"}
            assert all((row.first_visible_s is not None) is served for row in rows)
            assert {row.completion_tokens for row in rows} == {16}
            assert {row.engaged for row in rows} == {name == "dflash_server"}
            assert all(row.token_ids_sha256.startswith("text:") is served for row in rows)
        prompts = session.scalars(select(models.Generation.prompt_sha256).filter_by(turn=0)).all()
        assert len(set(prompts)) == 1  # the same prompt, token by token, in process and over HTTP
        versions = {row.name: row.engine_version for row in session.scalars(select(models.Arm))}
        assert versions["mlx_lm_server"] == versions["mlx_lm"]
    assert not [each for each in psutil.Process().children(recursive=True) if "server" in " ".join(each.cmdline())]
