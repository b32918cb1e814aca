"""A plan detects the effects that it promises to detect."""

import numpy as np
import pytest

from orchestrator.statistics.drift import ASSUMED, Setting
from orchestrator.statistics.observations import ScopeTrials
from orchestrator.statistics.power import observed_setting, rounds_for, smallest_effect
from orchestrator.statistics.simulate import simulated_runs


def test_more_rounds_and_less_noise_detect_less() -> None:
    effects = [smallest_effect(ASSUMED, arms=3, rounds=rounds).effect or 1.0 for rounds in (6, 8, 12, 20)]
    assert effects == sorted(effects, reverse=True)
    quiet = smallest_effect(Setting(profile="linear", size=-0.17, noise=0.002), arms=3, rounds=8, margin=0.002).effect
    assert quiet is not None
    assert quiet < effects[1] / 3


def test_too_few_rounds_detect_nothing() -> None:
    assert smallest_effect(ASSUMED, arms=3, rounds=5).effect is None
    assert smallest_effect(ASSUMED, arms=3, rounds=7, alpha=0.01).effect is None


def test_rounds_for_an_effect() -> None:
    rounds = rounds_for(ASSUMED, arms=3, effect=0.02)
    assert rounds is not None
    assert 11 <= rounds <= 18
    found = smallest_effect(ASSUMED, arms=3, rounds=rounds).effect
    assert found == pytest.approx(0.02, rel=0.07)
    assert rounds_for(ASSUMED, arms=3, effect=0.5) == 6
    assert rounds_for(Setting(profile="none", size=0.0, noise=0.3), arms=2, aa=False, effect=0.001) is None


def test_noise_and_drift_are_read_from_an_earlier_run() -> None:
    setting = Setting(profile="linear", size=-0.25, noise=0.008)
    found = []
    for run in simulated_runs(setting, arms=4, rounds=12, effects=(1.5, 0.8), runs=20, seed=2):
        labels = np.array(["c", "t", "u", "v"], dtype=object)[run.arms]
        found.append(observed_setting(ScopeTrials(y=run.y, rounds=run.rounds, labels=labels, prompts=None)))
    assert np.median([one.noise for one in found]) == pytest.approx(0.008, rel=0.15)
    assert np.median([one.size for one in found]) == pytest.approx(-0.21, abs=0.03)
