"""The method errs as rarely, and sees as much, as docs/method.md says. Fixed seeds."""

import dataclasses
import math

import pytest

from orchestrator.statistics.drift import PROFILES, Setting, standard
from orchestrator.statistics.simulate import judge, judge_verdicts

RUNS = 1000
ALPHA = 0.05


def attainable_level(rounds: int) -> float:
    """The largest level not above alpha that so few exchanges can have."""
    pairs = 2 ** (rounds - 1)
    return math.floor(ALPHA * pairs) / pairs if rounds <= 14 else ALPHA


@pytest.mark.parametrize("profile", PROFILES)
def test_false_positives_at_eight_rounds(profile: str) -> None:
    found = judge(standard(profile, 16), runs=RUNS)
    assert 0.03 <= found.rejected <= 0.07


@pytest.mark.parametrize(
    ("profile", "power"),
    [("none", 0.98), ("linear", 0.98), ("saturating", 0.95), ("step", 0.78)],
)
def test_power_for_five_percent_at_eight_rounds(profile: str, power: float) -> None:
    found = judge(standard(profile, 16), effect=1.05, runs=RUNS)
    assert found.rejected >= power
    assert 0.93 <= found.covered <= 0.97


@pytest.mark.nightly
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("rounds", [6, 8, 20, 40])
@pytest.mark.parametrize("arms", [2, 6])
def test_coverage_whatever_the_drift_the_arms_and_the_rounds(arms: int, rounds: int, profile: str) -> None:
    runs = 500
    found = judge(standard(profile, arms * rounds), arms=arms, rounds=rounds, effect=1.05, runs=runs, seed=50_000)
    level = attainable_level(rounds)
    assert abs(1 - found.covered - level) <= 3 * math.sqrt(level * (1 - level) / runs)


@pytest.mark.nightly
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("arms", [2, 6])
def test_heavy_tails_change_no_error_rate(arms: int, profile: str) -> None:
    setting = dataclasses.replace(standard(profile, arms * 8), tail=1.5)
    found = judge(setting, arms=arms, rounds=8, effect=1.05, runs=RUNS, seed=60_000)
    assert 0.93 <= found.covered <= 0.975


@pytest.mark.nightly
@pytest.mark.parametrize("arms", [2, 3, 6])
@pytest.mark.parametrize("profile", ["linear", "saturating"])
def test_power_for_two_percent_at_twenty_rounds(profile: str, arms: int) -> None:
    found = judge(Setting(profile=profile, size=-0.14), arms=arms, rounds=20, effect=1.02, runs=300)
    assert found.rejected >= 0.95


def test_other_arms_effects_cost_no_power() -> None:
    alone = judge(standard("linear", 32), arms=4, effect=1.05, runs=300)
    among = judge(standard("linear", 32), arms=4, effect=1.05, others=(2.0, 0.5), runs=300)
    assert among.rejected >= alone.rejected - 0.02


@pytest.mark.nightly
@pytest.mark.parametrize("profile", ["none", "linear", "saturating", "step"])
def test_the_verdict_sees_five_percent_and_hardly_ever_invents_it(profile: str) -> None:
    setting = standard(profile, 24)
    assert judge_verdicts(setting, effect=1.05, runs=150, seed=80_000).supported >= (
        0.86 if profile == "step" else 0.93
    )
    assert judge_verdicts(setting, runs=150, seed=80_000).supported <= 0.02


def test_verdicts_of_designs() -> None:
    few = judge_verdicts(standard("linear", 15), rounds=5, effect=2.0, runs=10)
    assert (few.underpowered, few.median_width) == (1.0, math.inf)
    many = judge_verdicts(standard("linear", 60), rounds=20, runs=20)
    assert many.no_difference >= 0.9
    assert many.median_width < 0.03
