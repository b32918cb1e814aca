"""Trials in time order: the drift is found, prompts do not hide it, pauses are cut, many become few."""

import numpy as np
import pandas as pd
import pytest

from orchestrator.report.course import Course, course_of, thinned
from tests.orchestrator.flat import FlatRun, changed

ARMS = {"plain": 1.0, "fast": 1.3}


def rows(run: FlatRun, *, apart_s: float = 30.0) -> pd.DataFrame:
    """Return the rows with the other columns of the view: one trial after the other."""
    frame = run.frame()
    start = pd.Timestamp("2026-01-01", tz="UTC")
    return frame.assign(
        trial_id=frame["sequence"].astype("string"),
        started_at=start + pd.to_timedelta(frame["sequence"].astype("int64") * apart_s, unit="s"),
        wall_s=apart_s,
        gate_wait_s=0.0,
        thermal_max=pd.array([pd.NA] * len(frame), dtype="Int64"),
        thermal_reason="no sensor",
    )


def course(run: FlatRun) -> Course:
    return course_of(rows(run), control="plain", metric="end_to_end_tps")


@pytest.mark.parametrize("by_prompt", [False, True])
@pytest.mark.parametrize("drift", [-0.3, 0.0])
def test_the_control_shows_the_drift_whatever_the_prompts(drift: float, *, by_prompt: bool) -> None:
    found = course(FlatRun(effects=ARMS, rounds=15, drift=drift, by_prompt=by_prompt, noise=0.003))
    levels = [level for _, level in found.drift]
    assert levels[-1] / levels[0] - 1 == pytest.approx(drift, abs=0.04)


def test_an_arm_lies_at_its_ratio_to_the_drift() -> None:
    found = course(FlatRun(effects=ARMS, rounds=12, by_prompt=True, noise=0.003))
    at, level = np.array(found.drift).T
    fast = [spot for spot in found.spots if spot.label == "fast"]
    ratios = [spot.relative / np.interp(spot.at, at, level) for spot in fast if spot.relative]
    assert np.median(ratios) == pytest.approx(1.3, abs=0.02)


def test_a_long_pause_is_cut_out_and_reported() -> None:
    frame = rows(FlatRun(effects=ARMS))
    late = frame["sequence"] > 10
    frame["started_at"] = frame["started_at"] + pd.to_timedelta(np.where(late, 7 * 3600, 0), unit="s")
    found = course_of(frame, control="plain", metric="end_to_end_tps")
    ((_, seconds),) = found.pauses
    assert seconds == pytest.approx(7 * 3600)
    assert found.spots[-1].at < 30


def test_excluded_and_invalid_trials_are_shown_and_not_smoothed() -> None:
    frame = rows(FlatRun(effects=ARMS, noise=0.001))
    control = (frame["arm"] == "plain") & (frame["kind"] == "measured")
    hit = frame[control]["sequence"].iloc[8]
    spiked = changed(frame, frame["sequence"] == hit, status="excluded", end_to_end_tps=1.0)
    found = course_of(spiked, control="plain", metric="end_to_end_tps")
    assert [spot.state for spot in found.spots].count("excluded") == 1
    assert min(level for _, level in found.drift) > 0.7


def test_an_interrupted_trial_is_not_called_invalid() -> None:
    frame = rows(FlatRun(effects=ARMS))
    numbers = frame[frame["kind"] == "measured"]["sequence"]
    frame = changed(frame, frame["sequence"] == numbers.iloc[3], status="interrupted", end_to_end_tps=None)
    frame = changed(frame, frame["sequence"] == numbers.iloc[7], status="invalid", end_to_end_tps=None)
    states = [spot.state for spot in course_of(frame, control="plain", metric="end_to_end_tps").spots]
    assert (states.count("interrupted"), states.count("invalid")) == (1, 1)


def test_many_trials_are_drawn_as_few_and_lone_ones_stay() -> None:
    found = course(FlatRun(effects=ARMS, rounds=200))
    few = thinned(found, 120)
    assert len(few.spots) <= 130
    assert few.drawn_together > 1
    assert sum(spot.trials for spot in few.spots) == len(found.spots)
    assert [spot.kind for spot in few.spots].count("bracket") == 2
    assert all(spot.low is not None and spot.low <= (spot.relative or 0) for spot in few.spots if spot.trials > 1)


def test_without_a_control_there_is_nothing_relative() -> None:
    frame = rows(FlatRun(effects=ARMS))
    found = course_of(frame[frame["arm"] == "fast"], control="plain", metric="end_to_end_tps")
    assert found.drift == ()
    assert all(spot.relative is None for spot in found.spots)


def test_why_there_is_no_thermal_level() -> None:
    assert course(FlatRun(effects=ARMS)).thermal_reason == "no sensor"


def test_waiting_at_the_gate_is_no_pause() -> None:
    """The machine cooled down for half an hour before the eleventh trial: that is reported as a wait, and stays."""
    frame = rows(FlatRun(effects=ARMS))
    late = frame["sequence"] > 10
    frame["started_at"] = frame["started_at"] + pd.to_timedelta(np.where(late, 1800, 0), unit="s")
    frame["gate_wait_s"] = np.where(frame["sequence"] == frame["sequence"][late].min(), 1800.0, 0.0)
    found = course_of(frame, control="plain", metric="end_to_end_tps")
    assert found.pauses == ()
    steps = len(found.spots) - 1  # half a minute each, and the half hour
    assert found.spots[-1].at == pytest.approx(30 + steps / 2)
