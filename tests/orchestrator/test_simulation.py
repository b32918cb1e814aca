"""The method errs as rarely, and sees as much, as docs/method.md says. Fixed seeds."""

import pytest

from orchestrator.drift import PROFILES, standard
from orchestrator.simulate import judge

RUNS = 1000


@pytest.mark.parametrize("profile", PROFILES)
def test_false_positives_at_eight_rounds(profile: str) -> None:
    found = judge(standard(profile, 16), runs=RUNS)
    assert 0.03 <= found.rejected <= 0.07


@pytest.mark.parametrize("profile", ["none", "linear", "saturating", "step"])
def test_power_for_five_percent_at_eight_rounds(profile: str) -> None:
    found = judge(standard(profile, 16), effect=1.05, runs=RUNS)
    assert found.rejected >= {"none": 0.98, "linear": 0.98, "saturating": 0.95, "step": 0.9}[profile]
    assert 0.93 <= found.covered <= 0.97
