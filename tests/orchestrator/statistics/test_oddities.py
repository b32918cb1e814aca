"""The audit names what a server's counts and arrivals are flagged with, and says why an arm has no figure."""

import re
from pathlib import Path

import numpy as np

from orchestrator.audit import audit
from orchestrator.statistics import oddities
from tests.orchestrator.flat import FlatRun


def test_flags_that_concern_the_figures_are_named_with_their_share() -> None:
    frame = FlatRun(effects={"base": 1.0, "served": 1.1}).frame()
    served = frame["arm"] == "served"
    frame["flags"] = [["tokens_unverified", "no_done"] if each else [] for each in served]
    (one,) = [each for each in audit(frame, control="base", metric="end_to_end_tps").comparisons if each.over_all]
    told = [reason for reason in one.reasons if reason.code in ("tokens_unverified", "no_done")]
    measured = int((served & (frame["kind"] == "measured")).sum())
    assert [reason.text for reason in told] == [
        f"served: {measured} of {measured} generations: only the server counts the tokens that it wrote"
        " (set engine.tokenizer)"
    ]


def test_an_arm_without_a_decode_rate_has_no_verdict_and_a_reason() -> None:
    frame = FlatRun(effects={"base": 1.0, "buffered": 1.0}).frame()
    buffered = frame["arm"] == "buffered"
    frame["decode_tps"] = frame["end_to_end_tps"].where(~buffered, np.nan)
    frame["flags"] = [["delivered_at_once"] if each else [] for each in buffered]
    (one,) = [each for each in audit(frame, control="base", metric="decode_tps").comparisons if each.over_all]
    assert one.verdict not in ("supported", "not_supported", "no_difference")
    codes = {reason.code: reason.text for reason in one.reasons}
    assert "no decode rate" in codes["delivered_at_once"]
    assert "without the metric" in codes["left_out"]


def test_every_flag_that_is_named_is_explained() -> None:
    text = (Path(__file__).parents[3] / "docs" / "evidence.md").read_text(encoding="utf-8")
    source = Path(oddities.__file__).read_text(encoding="utf-8")
    named = set(re.findall(r'^    "(\w+)": ', source, flags=re.MULTILINE))
    assert len(named) > 10
    assert named <= set(re.findall(r"`(\w+)`", text.partition("## Contradictions")[2]))
