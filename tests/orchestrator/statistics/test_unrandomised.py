"""A sequence without random order: the drift that would explain it, beside the drift that was seen."""

import pandas as pd
import pytest

from orchestrator.statistics.unrandomised import explain_by_drift


def runs(*rows: tuple[str, float, float]) -> pd.DataFrame:
    start = pd.Timestamp("2026-03-01T20:00:00Z")
    return pd.DataFrame(
        [(arm, start + pd.Timedelta(minutes=minutes), value) for arm, minutes, value in rows],
        columns=["arm", "started_at", "value"],
    )


def test_four_runs_of_which_the_last_restored_the_first_settings() -> None:
    # The article's case: the same settings gave 103.8 at the end where they had given more, so it was drift.
    four = runs(("first", 0, 137.0), ("second", 30, 126.0), ("third", 60, 113.0), ("first", 90, 103.8))
    second, third = explain_by_drift(four, control="first")
    assert second.seen_drift_per_hour == pytest.approx((103.8 / 137.0) ** (1 / 1.5) - 1)
    # Both lie on the way from the control's first run to its last.
    assert second.ratio == pytest.approx(126.0 / (137.0 * 103.8) ** 0.5)
    assert second.hours_apart == pytest.approx(-0.25)
    assert third.hours_apart == pytest.approx(0.25)
    assert "did not run in an order drawn at random" in third.text
    assert "first against itself shows -16.9% an hour" in third.text
    assert third.explaining_drift_per_hour == pytest.approx(second.explaining_drift_per_hour, abs=0.02)


def test_a_control_that_ran_once_knows_no_drift() -> None:
    (found,) = explain_by_drift(runs(("a", 0, 100.0), ("b", 30, 80.0)), control="a")
    assert found.seen_drift_per_hour is None
    assert found.explaining_drift_per_hour == pytest.approx(0.8**2 - 1)
    assert "ran once only" in found.text


def test_at_the_same_time_no_drift_explains() -> None:
    (found,) = explain_by_drift(runs(("a", 0, 100.0), ("b", 30, 80.0), ("a", 60, 100.0)), control="a")
    assert found.explaining_drift_per_hour is None
    assert found.seen_drift_per_hour == pytest.approx(0.0)


def test_what_is_no_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="columns missing"):
        explain_by_drift(runs(("a", 0, 1.0)).drop(columns="value"), control="a")
    with pytest.raises(ValueError, match="above 0"):
        explain_by_drift(runs(("a", 0, 0.0)), control="a")
    with pytest.raises(ValueError, match="no such arm"):
        explain_by_drift(runs(("a", 0, 1.0)), control="b")
