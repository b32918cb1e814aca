"""Times between tokens: what a mean speed hides from "no difference"."""

import numpy as np
import pandas as pd
import pytest

from orchestrator.audit import audit
from orchestrator.statistics.findings import Comparison
from tests.orchestrator.flat import FlatRun


def run(*, slower: float = 1.0, arm: str = "t", known: bool = True, drift: float = -0.2) -> pd.DataFrame:
    """Arms of one speed; the 95th percentile of an arm's times between tokens is `slower` times as long."""
    frame = FlatRun(effects={"c": 1.0, "t": 1.0}, rounds=20, noise=0.002, drift=drift).frame()
    p95_s = 1.2 / frame["decode_tps"] * np.where(frame["arm"] == arm, slower, 1.0)
    return frame.assign(
        inter_token_p95_s=p95_s if known else np.nan,
        inter_token_reason=pd.Series(None if known else "stamps of chunks", index=frame.index, dtype="string"),
    )


def judged(frame: pd.DataFrame, metric: str = "decode_tps") -> Comparison:
    return next(one for one in audit(frame, control="c", metric=metric).comparisons if one.over_all)


@pytest.mark.parametrize("drift", [0.0, -0.3])
def test_equal_times_between_tokens_are_no_difference(drift: float) -> None:
    assert judged(run(drift=drift)).verdict == "no_difference"


@pytest.mark.parametrize(("arm", "said"), [("t", "t's is 1.5"), ("c", "t's is 0.66")])
def test_one_mean_speed_with_longer_waits_between_tokens_is_not_no_difference(arm: str, said: str) -> None:
    found = judged(run(slower=1.5, arm=arm))
    assert found.verdict == "could_be_drift"
    assert found.reasons[0].code == "inter_token_differs"
    assert said in found.reasons[0].text


def test_a_difference_within_the_margin_is_none() -> None:
    assert judged(run(slower=1.01)).verdict == "no_difference"


def test_other_metrics_do_not_hide_them() -> None:
    assert judged(run(slower=1.5), metric="ttft_s").verdict == "no_difference"


def test_unknown_times_are_reported_beside_no_difference() -> None:
    found = judged(run(known=False))
    assert found.verdict == "no_difference"
    notes = [reason.text for reason in found.reasons if reason.code == "inter_token_unknown"]
    assert notes == [f"{arm}: times between tokens are unknown: stamps of chunks" for arm in ("c", "t")]


def test_a_real_difference_of_speed_is_not_held_up_by_them() -> None:
    frame = run(slower=3.0)
    faster = frame.assign(decode_tps=frame["decode_tps"].where(frame["arm"] != "t", frame["decode_tps"] * 1.2))
    assert judged(faster).verdict == "supported"


def test_the_median_is_shown_for_each_arm() -> None:
    found = {one.label: one for one in audit(run(slower=2.0), control="c", metric="decode_tps").arms}
    assert found["t"].inter_token_p95_s == pytest.approx(2 * (found["c"].inter_token_p95_s or 0), rel=0.02)


def test_a_prompt_that_one_arm_never_answers_forbids_no_difference() -> None:
    """Values that cannot be compared are not equal; values that both arms lack do not matter."""
    frame = run()
    lacks = frame["prompt_id"] == "m1"
    for gone, verdict in ((lacks & (frame["arm"] == "t"), "could_be_drift"), (lacks, "no_difference")):
        found = judged(frame.assign(decode_tps=frame["decode_tps"].mask(gone)))
        assert found.verdict == verdict
        assert [one.code for one in found.reasons].count("prompts_left_out") == (verdict == "could_be_drift")
