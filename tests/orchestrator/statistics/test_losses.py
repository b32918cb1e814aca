"""Lost trials: whose they were, which rounds they cost, and what they forbid a verdict to say."""

import numpy as np
import pandas as pd
import pytest

from orchestrator.audit import AuditResult, audit
from orchestrator.statistics.bounds import worst_cases
from orchestrator.statistics.findings import Comparison
from orchestrator.statistics.losses import Trials, own_losses, pair_losses, tail
from orchestrator.statistics.observations import ScopeTrials, first_attempts, measured_rows
from tests.orchestrator.flat import FlatRun, changed
from tests.orchestrator.statistics.frames import RATES, THERMAL, throttling


def whole(result: AuditResult, treatment: str) -> Comparison:
    return next(one for one in result.comparisons if one.over_all and one.treatment == treatment)


def judged(frame: pd.DataFrame) -> AuditResult:
    return audit(frame, control="plain", metric="end_to_end_tps")


def rounds_of(frame: pd.DataFrame, label: str) -> set[int]:
    rows = measured_rows(frame, "end_to_end_tps")
    return set(rows[rows["usable"] & (rows["label"] == label)]["round"].astype(int))


def test_a_rule_drops_the_round_for_every_arm_and_a_failure_that_arm_alone() -> None:
    frame = FlatRun(effects={"plain": 1.0, "draft": 1.3, "same": 1.0}).frame()
    by_rule = changed(
        frame, (frame["arm"] == "draft") & (frame["round"] == 3), status="excluded", excluded_reason=THERMAL
    )
    assert rounds_of(by_rule, "same") == rounds_of(by_rule, "plain") == {0, 1, 2, 4, 5, 6, 7}
    failed = changed(frame, (frame["arm"] == "draft") & (frame["round"] == 3), status="invalid", error_kind="crashed")
    assert rounds_of(failed, "same") == set(range(8))
    assert rounds_of(failed, "draft") == {0, 1, 2, 4, 5, 6, 7}


def test_an_arm_that_the_rules_leave_out_by_itself_costs_no_other_arm_its_rounds() -> None:
    frame = FlatRun(effects={"plain": 1.0, "draft": 1.3, "hot": 1.0}, rounds=10).frame()
    often = changed(frame, (frame["arm"] == "hot") & (frame["round"] != 4), status="excluded", excluded_reason=THERMAL)
    assert own_losses(Trials.read(often)) == {"hot"}
    assert rounds_of(often, "draft") == set(range(10))
    result = judged(often)
    assert whole(result, "draft").verdict == "supported"
    assert whole(result, "hot").verdict == "underpowered"


@pytest.mark.parametrize("own_reason", [True, False])
def test_an_arm_that_throttles_is_not_equal_because_its_rounds_were_replayed_until_clean(*, own_reason: bool) -> None:
    verdicts, ratios = [], []
    for seed in range(8):
        found = whole(judged(throttling(rounds=20, share=0.4, seed=seed, own_reason=own_reason)), "hot")
        assert found.included is not None
        verdicts.append(found.verdict)
        ratios.append(found.included.ratio)
    assert "supported" not in verdicts
    assert verdicts.count("no_difference") <= 1
    assert np.median([ratio for ratio in ratios if ratio is not None]) < 0.985


def test_the_first_attempts_are_shown_whenever_a_round_was_replayed() -> None:
    frame = throttling(rounds=8, share=0.5, seed=1)
    rows = first_attempts(frame, "end_to_end_tps")
    assert set(rows["attempt"]) == {0}
    assert rows["y"].notna().all()
    found = whole(judged(frame), "hot")
    assert found.included is not None
    assert found.included.rounds == 8
    texts = [reason.text for reason in found.reasons if reason.code == "losses_by_arm"]
    assert len(texts) == 1
    assert "plain 0 of" in texts[0]


def test_losses_in_last_places_of_one_arm_leave_no_difference_supported() -> None:
    supported = 0
    for seed in range(8):
        frame = FlatRun(effects={"plain": 1.0, "picky": 1.0}, rounds=24, noise=0.004, drift=0.0, seed=seed).frame()
        last = (frame["position"] == 2).fillna(value=False)
        slower = frame.assign(**{name: frame[name] * np.where(last, 0.95, 1.0) for name in RATES})
        picked = last & (slower["arm"] == "picky") & (slower["round"] % 10 != 9)
        found = whole(judged(changed(slower, picked, status="excluded", excluded_reason=THERMAL)), "picky")
        supported += found.verdict == "supported"
    assert supported == 0


def test_equal_losses_forbid_nothing() -> None:
    frame = FlatRun(effects={"plain": 1.0, "draft": 1.3}, rounds=12).frame()
    slept = ((frame["arm"] == "draft") & (frame["round"] == 2)) | (
        (frame["arm"] == "plain") & ~frame["is_aa"] & (frame["round"] == 7)
    )
    found = whole(judged(changed(frame, slept, status="excluded", excluded_reason="clock: slept")), "draft")
    assert (found.verdict, found.rounds) == ("supported", 10)


def test_failures_without_a_value_count_as_the_worst() -> None:
    frame = FlatRun(effects={"plain": 1.0, "weak": 1.03}, rounds=12, noise=0.01).frame()
    assert whole(judged(frame), "weak").verdict == "supported"
    failed = (frame["arm"] == "weak") & (frame["round"] < 5) & (frame["kind"] == "measured")
    crashed = changed(frame, failed, status="invalid", error_kind="crashed", end_to_end_tps=None)
    found = whole(judged(crashed), "weak")
    assert found.verdict == "could_be_drift"


def test_worst_cases_put_the_missing_trials_at_the_extremes_of_the_others() -> None:
    labels = np.array(["c", "t", "t", "c", "c"], dtype=object)
    used = ScopeTrials(
        y=np.array([1.0, 1.2, 2.1, 2.0, 3.0]), rounds=np.array([0, 0, 1, 1, 2]), labels=labels, prompts=None
    )
    low, high = worst_cases(used, treatment="t", control="c")
    assert low.labels.tolist() == ["c", "t", "t", "c", "c", "t"]
    assert (low.y[-1], high.y[-1]) == pytest.approx((3.1, 3.2))
    assert worst_cases(used, treatment="c", control="t")[0].y[-1] == pytest.approx(3.1)


def test_the_chance_of_losses_is_exact() -> None:
    frame = FlatRun(effects={"plain": 1.0, "hot": 1.0}, rounds=6).frame()
    lost = Trials.read(
        changed(frame, (frame["arm"] == "hot") & (frame["round"] < 3), status="excluded", excluded_reason=THERMAL)
    )
    assert tail(lost, lost.by_rule, lost.labels == "hot") == pytest.approx(1 / 27)
    pair = pair_losses(lost, "hot", "plain", seed=0)
    assert (pair.treatment, pair.control, pair.p_arm) == (3, 0, 0.25)
