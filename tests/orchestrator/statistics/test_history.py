import datetime as dt
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.judge_tables import wandering
from orchestrator.statistics.history import FALSE_ALARMS, MIN_POINTS, Point, change_points, neighbours_correlation

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def points(values: Sequence[float], versions: Sequence[dict[str, str]] | None = None) -> list[Point]:
    return [
        Point(
            run_id=f"run-{index}",
            at=START + dt.timedelta(days=index),
            value=float(value),
            versions={} if versions is None else versions[index],
        )
        for index, value in enumerate(values)
    ]


def noisy(levels: Sequence[float], seed: int = 1, noise: float = 0.01) -> list[float]:
    draw = np.random.default_rng(seed)
    return list(np.asarray(levels) * np.exp(draw.normal(0, noise, len(levels))))


def mlx(*counts: tuple[str, int]) -> list[dict[str, str]]:
    return [{"mlx": version, "os_build": "24F74"} for version, count in counts for _ in range(count)]


def test_a_change_with_a_version_is_named() -> None:
    values = noisy([15.0] * 12 + [29.0] * 12)
    (change,) = change_points(points(values, mlx(("0.31", 12), ("0.32", 12))))
    assert (change.before, change.after) == ("run-11", "run-12")
    assert change.ratio == pytest.approx(29 / 15, rel=0.02)
    assert change.verdict == "changed_with"
    assert "changed with mlx 0.31 -> 0.32" in change.words


def test_two_things_changed_at_once_are_confounded() -> None:
    versions = mlx(("0.31", 12)) + [{"mlx": "0.32", "os_build": "24G84"} for _ in range(12)]
    (change,) = change_points(points(noisy([69.0] * 12 + [38.0] * 12), versions))
    assert change.verdict == "confounded"
    assert "mlx 0.31 -> 0.32" in change.words
    assert "os_build 24F74 -> 24G84" in change.words


def test_a_change_without_a_version_is_unexplained() -> None:
    (change,) = change_points(points(noisy([10.0] * 12 + [9.0] * 12), mlx(("0.31", 24))))
    assert change.verdict == "unexplained"


def test_several_changes_are_found_in_order() -> None:
    levels = [10.0] * 15 + [12.0] * 15 + [9.0] * 15
    changes = change_points(points(noisy(levels)))
    assert [change.after for change in changes] == ["run-15", "run-30"]
    assert [round(change.ratio, 1) for change in changes] == [1.2, 0.8]


def test_fewer_than_ten_points_a_side_are_no_change() -> None:
    assert change_points(points([10.0] * (MIN_POINTS - 1) + [20.0] * MIN_POINTS)) == ()
    assert change_points([]) == ()


def test_points_are_taken_in_time_order() -> None:
    values = points(noisy([15.0] * 12 + [29.0] * 12))
    assert change_points(values[::-1]) == change_points(values)


def test_one_odd_run_is_no_change_of_level() -> None:
    values = noisy([10.0] * 30)
    values[14] = 20.0
    assert change_points(points(values)) == ()


@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.8])
def test_the_correlation_of_neighbours_is_found_whatever_changed(correlation: float) -> None:
    y = np.log(wandering(420, correlation, seed=3))
    for changed in (y, y + 0.5 * (np.arange(420) >= 140) - 0.3 * (np.arange(420) >= 300)):
        assert neighbours_correlation(changed) == pytest.approx(correlation + 420**-0.5, abs=0.1)


def test_a_change_in_a_wandering_history_is_found() -> None:
    values = np.asarray(wandering(90, 0.4, seed=1)) * np.where(np.arange(90) < 45, 1.0, 1.1)
    (change,) = change_points(points(values))
    assert abs(int(change.after.removeprefix("run-")) - 45) <= 2


def test_a_history_that_wanders_without_a_change_seldom_has_one() -> None:
    """Orders of the points themselves, as if they were independent, find a change in sixteen of these forty."""
    found = [change_points(points(wandering(90, 0.6, seed)), seed=seed) for seed in range(40)]
    assert sum(bool(each) for each in found) <= 2


# Three standard errors above what is promised.
def most(promised: float, histories: int) -> float:
    return promised + 3 * float(np.sqrt(promised * (1 - promised) / histories))


@pytest.mark.nightly
@pytest.mark.parametrize("length", [20, 90])
def test_noise_alone_raises_at_most_one_false_alarm_in_a_hundred(length: int) -> None:
    histories = 300
    alarms = sum(bool(change_points(points(noisy([10.0] * length, seed=seed)), seed=seed)) for seed in range(histories))
    assert alarms / histories <= most(FALSE_ALARMS, histories)


@pytest.mark.nightly
@pytest.mark.parametrize(("correlation", "length"), [(0.4, 90), (0.4, 420), (0.6, 420)])
def test_evenings_that_resemble_each_other_are_no_change(correlation: float, length: int) -> None:
    histories = 120
    found = [change_points(points(wandering(length, correlation, seed)), seed=seed) for seed in range(histories)]
    assert sum(bool(each) for each in found) / histories <= most(0.025, histories)
