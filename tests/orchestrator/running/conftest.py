"""Fixtures of several modules: a run of two arms that was just created."""

from pathlib import Path

import pytest

from db.session import open_database
from orchestrator.planning.weights import find_weights
from orchestrator.running.recorder import Recorder, create_run
from tests.orchestrator.plans import arm, plan
from workers.machine.host import read_host


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    database, planned = open_database(f"sqlite:///{tmp_path / 'test.db'}"), plan(arm("a"), arm("b"))
    return create_run(database, planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path)
