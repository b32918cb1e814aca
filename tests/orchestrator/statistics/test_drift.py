"""The drift profiles have the shapes their names say, on every machine the same."""

import ast
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.statistics.drift import STANDARD_SIZES, Setting, drift_rows, noise_rows, standard
from workers.machine import drift
from workers.machine.drift import PROFILES, factor


def series(profile: str, size: float, seed: int = 0, trials: int = 400) -> list[float]:
    return [factor(profile, trial / trials, size=size, seed=seed) for trial in range(trials + 1)]


@given(st.sampled_from(PROFILES), st.floats(0, 1), st.floats(-0.9, 2.0), st.integers())
def test_a_factor_is_a_speed(profile: str, fraction: float, size: float, seed: int) -> None:
    value = factor(profile, fraction, size=size, seed=seed)
    assert math.isfinite(value)
    assert value > 0
    assert value == factor(profile, fraction, size=size, seed=seed)


def test_shapes_from_start_to_end() -> None:
    assert series("none", -0.34) == [1.0] * 401
    linear = series("linear", -0.34)
    assert (linear[0], linear[-1]) == pytest.approx((1.0, 0.66))
    assert np.diff(linear) == pytest.approx(-0.34 / 400)
    saturating = series("saturating", -0.34)
    assert (saturating[0], saturating[-1]) == pytest.approx((1.0, 0.66))
    assert saturating[80] == pytest.approx(1 - 0.34 * (1 - math.exp(-1)) / (1 - math.exp(-5)))
    assert all(np.diff(saturating) < 0)


def test_a_step_comes_once_and_where_the_seed_says() -> None:
    places = set()
    for seed in range(20):
        values = np.array(series("step", -0.2, seed))
        assert sorted(set(values.round(12))) == [0.8, 1.0]
        (place,) = np.flatnonzero(np.diff(values))
        places.add(place)
        assert 0.1 <= place / 400 <= 0.9
    assert len(places) > 15


def test_bursts_are_short_and_the_duty_cycle_is_half() -> None:
    burst = np.mean([np.mean(np.array(series("bursts", -0.2, seed)) < 0.9) for seed in range(50)])
    assert 0.08 < burst < 0.13
    duty = np.array(series("duty_cycle", -0.2, 3))
    assert 0.4 < np.mean(duty < 0.9) < 0.6
    assert 5 <= np.count_nonzero(np.diff(duty)) <= 8


def test_the_random_walk_has_the_spread_it_is_given() -> None:
    ends = np.log([factor("random_walk", 1.0, size=0.16, seed=seed) for seed in range(300)])
    assert abs(ends.mean()) < 0.03
    assert ends.std() == pytest.approx(0.16, rel=0.12)


def test_golden_values() -> None:
    found = [round(factor(profile, 0.5, size=-0.2, seed=7), 9) for profile in PROFILES]
    assert found == [1.0, 0.9, 0.815171636, 0.8, 0.929374301, 1.0, 0.8]


def test_outside_the_run_is_its_nearest_end() -> None:
    assert factor("linear", 2.0, size=-0.5, seed=0) == pytest.approx(0.5)
    assert factor("linear", -1.0, size=-0.5, seed=0) == 1.0


def test_what_is_no_drift_is_refused() -> None:
    with pytest.raises(ValueError, match="'sudden': unknown; choose one of none, linear"):
        factor("sudden", 0.5, size=-0.1, seed=0)
    for size in (-1.0, math.nan):
        with pytest.raises(ValueError, match="above -1"):
            factor("linear", 0.5, size=size, seed=0)


def test_simulated_rows() -> None:
    rows = drift_rows(Setting(profile="linear", size=-0.5), 10, [1, 2, 3])
    assert rows.shape == (3, 10)
    assert np.exp(rows[0]) == pytest.approx(1 - 0.05 * np.arange(10))
    noise = noise_rows(standard("none", 16), 16, 2000, np.random.default_rng(0))
    assert np.median(np.abs(noise)) == pytest.approx(0.0074, rel=0.03)
    assert standard("random_walk", 100).size == pytest.approx(0.4)
    assert set(STANDARD_SIZES) == set(PROFILES)


def test_the_profiles_need_the_standard_library_only() -> None:
    tree = ast.parse(Path(drift.__file__).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert all(name.name in sys.stdlib_module_names for name in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.module in sys.stdlib_module_names
