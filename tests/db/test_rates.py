"""Rates come from finished trials of the same configuration on the same host, and from nothing else."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from db.rates import measured_rates
from db.session import open_database
from orchestrator.plan import Plan
from orchestrator.planning.hosts import known_rates, own_host_ids
from orchestrator.planning.weights import find_weights
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.recorder import create_run
from tests.orchestrator.plans import arm, plan
from workers.machine.host import read_host


@pytest.fixture
def planned() -> Plan:
    return plan(arm("slow", decode_tps=50.0), arm("fast", decode_tps=200.0))


@pytest.fixture
def url(tmp_path: Path, planned: Plan) -> str:
    found = f"sqlite:///{tmp_path / 'rates.db'}"
    recorder = create_run(
        open_database(found), planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path
    )
    run_recorded(recorder, observer=Observer())
    return found


def test_medians_by_configuration(url: str, planned: Plan) -> None:
    engine: Engine = open_database(url)
    slow, fast = (arm.config_sha256 for arm in planned.arms)
    here = own_host_ids(engine, read_host())
    rates = measured_rates(engine, [slow, fast], host_ids=here)
    assert rates[slow].decode_tps == pytest.approx(50, rel=0.05)
    assert rates[fast].decode_tps == pytest.approx(200, rel=0.05)
    assert measured_rates(engine, [slow], host_ids=["another"]) == {}
    assert measured_rates(engine, ["0" * 64], host_ids=here) == {}


def test_simulated_arms_need_no_rates(url: str, planned: Plan) -> None:
    assert known_rates(planned, url) == {}


def test_no_database_is_no_rates(planned: Plan, tmp_path: Path) -> None:
    assert known_rates(planned, f"sqlite:///{tmp_path / 'absent.db'}") == {}
