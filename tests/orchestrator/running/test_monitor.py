"""The time span of the readings that a run keeps of its machine."""

from dataclasses import replace

import pytest

from orchestrator.plan import Gate
from orchestrator.running.monitor import KEPT_S, Lookout, watched
from tests.orchestrator.plans import arm, plan
from workers.machine.telemetry import Reading


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_what_is_older_than_it_keeps_is_forgotten_and_the_rest_is_there() -> None:
    clock = Clock()
    lookout = Lookout(readings=lambda: (Reading(field="level", value=clock.now_s),), clock=clock, kept_s=100.0)
    for clock.now_s in (1000.0, 1050.0, 1110.0, 1149.0):
        lookout.read()
    assert [sample.at_s for sample in lookout.recent()] == [1050.0, 1110.0, 1149.0, 1149.0]


@pytest.mark.parametrize(("hold_s", "kept_s"), [(30.0, KEPT_S), (120.0, 240.0)])
def test_a_run_looks_back_further_than_its_gate(hold_s: float, kept_s: float) -> None:
    engine = {"_target_": "workers.engines.mlx_lm.MlxLm", "name": "mlx_lm"}
    planned = plan(replace(arm("a"), engine=engine))
    real = replace(planned, gate=Gate(thermal_hold_s=hold_s, sampler=False))
    with watched(real, lambda text: None) as (lookout, keeper):
        assert keeper is not None
        assert lookout.kept_s == kept_s
