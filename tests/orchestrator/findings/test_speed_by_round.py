"""Each arm's speed over the rounds."""

import numpy as np
import pytest

from orchestrator.findings.speed_by_round import speed_by_round
from tests.orchestrator.flat import FlatRun, changed


@pytest.mark.parametrize("by_prompt", [False, True])
def test_a_drift_shows_in_all_arms_alike_and_no_arm_or_prompt_does(by_prompt: bool) -> None:
    effects: dict[str, float] = {"plain": 1.0, "spec": 2.5}
    frame = FlatRun(effects=effects, rounds=20, drift=-0.3, noise=0.001, by_prompt=by_prompt).frame()
    found = speed_by_round(frame, control="plain", metric="end_to_end_tps")
    assert [line.label for line in found] == ["plain", "A/A", "spec"]
    for line in found:
        values = np.array(line.values, dtype=np.float64)
        assert len(values) == 20
        assert np.median(values) == pytest.approx(1.0, abs=0.002)
        if not by_prompt:  # by prompt the levels of four rounds a prompt take some of the drift with them
            assert values[0] / values[-1] == pytest.approx(1.35, abs=0.08)
        assert max(values) / min(values) < 1.6


def test_of_a_time_the_speed_is_its_inverse() -> None:
    frame = FlatRun(effects={"plain": 1.0}, rounds=8, drift=-0.3, noise=0.001).frame()
    line = speed_by_round(frame, control="plain", metric="ttft_s")[0].values
    assert line[0] is not None
    assert line[-1] is not None
    assert line[0] > line[-1]


def test_a_round_that_does_not_count_is_a_gap() -> None:
    frame = FlatRun(effects={"plain": 1.0, "spec": 1.0}, rounds=8).frame()
    where = (frame["round"] == 3) & (frame["arm"] == "spec")
    found = speed_by_round(changed(frame, where, status="invalid"), control="plain", metric="end_to_end_tps")
    assert [place for place, value in enumerate(found[-1].values) if value is None] == [3]


def test_nothing_measured_is_nothing_to_show() -> None:
    frame = FlatRun(effects={"plain": 1.0}).frame()
    assert speed_by_round(frame.assign(status="invalid"), control="plain", metric="decode_tps") == ()
