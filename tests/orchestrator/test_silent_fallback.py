"""The article's failure, end to end with real processes: DFlash fails to start, the server answers 200 all night.

interlace says so before the night begins, within seconds, in the server's own words.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from db import models
from db.engine import Database
from db.session import read_only
from orchestrator.errors import InputError
from orchestrator.plan import Arm, Plan
from orchestrator.planning.weights import find_weights
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.recorder import Recorder, create_run
from tests.workers import tiny
from workers.machine.host import read_host

from .plans import OPEN_GATE, SAMPLING, plan, prompt

SERVER = Path(__file__).parent.parent / "workers" / "engines" / "scripted_server.py"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tiny.build(tmp_path_factory.mktemp("target") / "tiny") | {"bits": None, "draft": None}


def omlx(name: str, checkpoint: dict[str, Any], script: str, *, dflash: bool) -> Arm:
    target = "workers.engines.omlx_dflash.OmlxDflash" if dflash else "workers.engines.omlx.Omlx"
    engine = {"_target_": target, "name": "omlx", "command": f"{sys.executable} {SERVER} {script}", "ready_s": 20.0}
    return Arm(
        name=name,
        checkpoint=checkpoint,
        engine=engine,
        sampling=SAMPLING,
        draft=checkpoint if dflash else None,
    )


def start(database: Database, planned: Plan, tmp_path: Path) -> Recorder:
    planned = replace(planned, gate=OPEN_GATE)
    return create_run(database, planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path)


def test_the_night_does_not_start_and_the_reason_is_the_servers(
    database: Database, checkpoint: dict[str, Any], tmp_path: Path
) -> None:
    arms = (
        omlx("plain", checkpoint, "good", dflash=False),
        omlx("fast", checkpoint, "start_failed", dflash=True),
    )
    recorder = start(database, plan(*arms, prompts=(prompt(),), rounds=2), tmp_path)
    with pytest.raises(InputError) as refused:
        run_recorded(recorder, observer=Observer())
    message = str(refused.value)
    assert message.startswith("arm fast failed its preflight: not_engaged: DFlash start failed for tiny: ")
    assert "Received 23 parameters not in model" in message
    assert "\n" not in message
    with read_only(database) as session:
        measured = session.scalars(select(models.Trial).filter_by(kind="measured")).all()
    assert measured == []


def test_an_eviction_in_the_night_makes_its_trials_invalid(
    database: Database, checkpoint: dict[str, Any], tmp_path: Path
) -> None:
    """The mechanism shows itself in preflight and is lost later: no trial after that enters a comparison."""
    arms = (
        omlx("plain", checkpoint, "good", dflash=False),
        omlx("fast", checkpoint, "evicted", dflash=True),
    )
    planned = plan(*arms, prompts=(prompt(),), rounds=2, aa=False, bracket=False, warmups=0)
    recorder = start(database, planned, tmp_path)
    run_recorded(recorder, observer=Observer())
    with read_only(database) as session:
        trials = session.scalars(select(models.Trial).filter_by(kind="measured", arm_id=recorder.arm_ids["fast"])).all()
        generations = session.scalars(select(models.Generation)).all()
    assert {trial.status for trial in trials} == {"invalid"}
    assert {trial.error_kind for trial in trials} == {"not_engaged"}
    assert all("evicting dflash models" in str(trial.error_message) for trial in trials)
    assert {generation.completion_tokens for generation in generations} == {16}
