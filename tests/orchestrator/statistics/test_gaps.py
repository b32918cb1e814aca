"""Trials that lack values without a stored loss are shown by arm and by place, and may forbid a verdict."""

import numpy as np
import pandas as pd
import pytest

from orchestrator.audit import AuditResult, audit
from orchestrator.schedule import AA_LABEL
from orchestrator.statistics.findings import Comparison
from orchestrator.statistics.gaps import with_gaps
from orchestrator.statistics.losses import Trials
from orchestrator.statistics.observations import measured_rows
from tests.orchestrator.flat import FlatRun, changed

RATES = ("end_to_end_tps", "decode_tps", "prefill_tps")
METRIC = "end_to_end_tps"


def judged(frame: pd.DataFrame) -> AuditResult:
    return audit(frame, control="plain", metric=METRIC)


def whole(frame: pd.DataFrame, treatment: str) -> Comparison:
    return next(one for one in judged(frame).comparisons if one.over_all and one.treatment == treatment)


def texts(one: Comparison, code: str) -> list[str]:
    return [reason.text for reason in one.reasons if reason.code == code]


def late_and_slow(*, seed: int, prompts: int = 1) -> tuple[pd.DataFrame, "pd.Series[bool]"]:
    """Equal arms that are all 5 % slower in last places, and the rows of "picky" there."""
    asked = {f"p{number}": "x" for number in range(prompts)}
    run = FlatRun(effects={"plain": 1.0, "picky": 1.0}, rounds=20, noise=0.01, drift=0.0, seed=seed, prompts=asked)
    frame = run.frame()
    last = (frame["position"] == 2).fillna(value=False).astype(bool)
    slower = frame.assign(**{name: frame[name] * np.where(last, 0.95, 1.0) for name in RATES})
    return slower, last & (frame["arm"] == "picky").astype(bool)


def test_values_missing_in_slow_places_leave_no_difference_supported() -> None:
    """No trial is stored as lost: the rows are not there, or hold no value. What is left of the arm seems faster."""
    seems, supported = 0, 0
    for seed in range(6):
        frame, picked = late_and_slow(seed=seed)
        for lacking in (frame[~picked], changed(frame, picked, end_to_end_tps=None)):
            found = whole(lacking, "picky")
            seems += found.ci_low is not None and found.ci_low > 1
            supported += found.verdict == "supported"
            assert found.included is not None
    assert seems >= 4
    assert supported == 0


def test_one_generation_of_several_that_has_no_value_counts_as_well() -> None:
    frame, picked = late_and_slow(seed=1, prompts=3)
    one = picked & (frame["prompt_id"] == "p1").astype(bool)
    found = whole(changed(frame, one, end_to_end_tps=None), "picky")
    (by_arm,) = texts(found, "gaps_by_arm")
    count = int(one.sum())
    assert f"picky {count} of 20 (p = 0.0" in by_arm
    assert "plain 0 of 20" in by_arm
    (by_place,) = texts(found, "gaps_by_place")
    assert f"{count} of {count} trials that lack values ran in place 3 of their round" in by_place
    assert found.verdict != "supported"


def test_a_large_effect_stands_beside_a_few_missing_values() -> None:
    frame = FlatRun(effects={"plain": 1.0, "draft": 1.5}, rounds=12).frame()
    rows = ((frame["arm"] == "draft") & frame["round"].isin([2, 5, 7]) & (frame["prompt_id"] == "c1")).astype(bool)
    found = whole(changed(frame, rows, end_to_end_tps=None), "draft")
    assert (found.verdict, found.direction) == ("supported", "faster")
    assert texts(found, "gaps_by_arm")


def test_one_missing_value_forbids_no_difference_only_if_it_could_make_one() -> None:
    frame = FlatRun(effects={"plain": 1.0, "same": 1.0}, rounds=20, noise=0.004).frame()
    rows = ((frame["arm"] == "same") & (frame["round"] == 4) & (frame["prompt_id"] == "c1")).astype(bool)
    assert whole(changed(frame, rows, end_to_end_tps=None), "same").verdict == "no_difference"


def test_two_missing_values_of_one_arm_alone_forbid_no_difference() -> None:
    """At half speed, two of twenty would be a loss of 7 %."""
    frame = FlatRun(effects={"plain": 1.0, "same": 1.0}, rounds=20, noise=0.004).frame()
    rows = ((frame["arm"] == "same") & frame["round"].isin([4, 9])).astype(bool)
    assert whole(changed(frame, rows, end_to_end_tps=None), "same").verdict == "could_be_drift"
    each = ((frame["arm"] == "same") & (frame["round"] == 4)) | ((frame["arm"] == "plain") & (frame["round"] == 12))
    one_each = changed(frame, each.fillna(value=False), end_to_end_tps=None)
    assert whole(one_each, "same").verdict == "no_difference"


def test_an_arm_whose_stalled_trials_have_no_value_is_not_called_equal() -> None:
    """The values that are left are equal, and so is the worst round: what it would have shown is not known."""
    frame = FlatRun(effects={"plain": 1.0, "same": 1.0}, rounds=20, noise=0.004).frame()
    rows = ((frame["arm"] == "same") & frame["round"].isin([1, 4, 9, 16])).astype(bool)
    found = whole(changed(frame, rows, end_to_end_tps=None), "same")
    assert found.verdict == "could_be_drift"
    (reason,) = texts(found, "losses")
    assert "because of same alone: 4" in reason
    assert "the effect could be unknown" in reason


def test_a_prompt_that_an_arm_never_answers_is_no_gap() -> None:
    frame = FlatRun(effects={"plain": 1.0, "draft": 1.5}).frame()
    never = ((frame["arm"] == "draft") & (frame["prompt_id"] == "m1") & (frame["kind"] == "measured")).astype(bool)
    found = whole(changed(frame, never, end_to_end_tps=None), "draft")
    assert found.verdict == "supported"
    assert not texts(found, "gaps_by_arm")
    assert texts(found, "prompts_left_out")


@pytest.mark.parametrize("after", [3, 7])
def test_an_arm_that_ended_early_has_no_gaps_after_its_last_round(after: int) -> None:
    """A run in progress, or an arm that was given up."""
    frame = FlatRun(effects={"plain": 1.0, "short": 1.2}).frame()
    kept = frame[~((frame["arm"] == "short") & (frame["round"] > after)).fillna(value=False).astype(bool)]
    assert not with_gaps(Trials.read(kept), measured_rows(kept, METRIC)).gap.any()


def test_an_absent_trial_gets_the_place_that_is_free() -> None:
    frame = FlatRun(effects={"plain": 1.0, "draft": 1.2}, rounds=6).frame()
    row = (frame["arm"] == "draft") & (frame["round"] == 2)
    place = int(frame[row]["position"].iloc[0])
    found = with_gaps(Trials.read(frame[~row]), measured_rows(frame[~row], METRIC))
    (at,) = np.flatnonzero(found.gap)
    assert (found.rounds[at], found.labels[at], found.positions[at]) == (2, "draft", place)
    assert sorted(set(found.labels.tolist())) == sorted(["plain", AA_LABEL, "draft"])
