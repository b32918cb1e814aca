"""Runs that were not randomised: never supported, always beside the drift that would explain it."""

from typing import Any

import pandas as pd
import pytest

from orchestrator.audit import METHOD_VERSION
from orchestrator.judging import judge, was_randomised
from orchestrator.statistics.drift_audit import audit_by_drift
from orchestrator.statistics.findings import AuditResult
from orchestrator.statistics.unrandomised import PLACED, UNTIMED, explain_by_order

from ..flat import ENVIRONMENT, typed
from ..plans import arm, plan

START = pd.Timestamp("2026-03-01T20:00:00Z")


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    """One trial a row, in their order, 10 minutes apart."""
    base = ENVIRONMENT | {
        "kind": "measured",
        "round": None,
        "position": None,
        "attempt": None,
        "is_aa": False,
        "is_control": False,
        "status": "done",
        "excluded_reason": None,
        "error_kind": None,
        "prompt_id": "p",
        "prompt_class": "code",
        "workload": "w",
        "turn": 0,
        "requested": False,
        "engaged": False,
        "useful": False,
        "gate_state": None,
        "prompt_tokens": 30,
        "cached_tokens": None,
        "completion_tokens": 64,
        "end_to_end_tps": None,
        "decode_tps": None,
        "prefill_tps": None,
        "ttft_s": None,
        "inter_token_p95_s": None,
        "inter_token_reason": None,
        "accept_length": None,
        "acceptance_rate": None,
        "peak_memory_bytes": None,
    }
    made = typed(pd.DataFrame([base | {"sequence": number} | row for number, row in enumerate(rows)]))
    flags = [row.get("flags", []) for row in rows]
    return made.assign(
        started_at=[START + pd.Timedelta(minutes=10 * number) for number in range(len(rows))],
        flags=pd.Series(flags, dtype=object),
        randomised=pd.Series([False] * len(rows), dtype="boolean"),
    )


def row(name: str, tps: float | None, **changes: Any) -> dict[str, Any]:
    return {"arm": name, "decode_tps": tps} | changes


def audited(rows: pd.DataFrame, metric: str = "decode_tps") -> AuditResult:
    return audit_by_drift(
        rows, control="a", metric=metric, alpha=0.05, margin=0.02, seed=0, method_version=METHOD_VERSION
    )


def test_even_a_threefold_gain_could_be_drift() -> None:
    (one,) = audited(frame(row("a", 10), row("b", 30), row("a", 10.1), row("b", 30.1))).comparisons
    assert (one.verdict, one.direction, one.ci_low, one.p_value, one.rounds) == ("could_be_drift", None, None, None, 0)
    assert one.ratio == pytest.approx(30.05 / 10.05, rel=1e-3)
    assert one.reasons[0].code == "not_randomised"
    assert "would explain the difference, and a against itself shows" in one.reasons[0].text


def test_the_drift_an_hour_is_named() -> None:
    (one,) = audited(frame(row("a", 100), row("b", 90), row("a", 81))).comparisons
    assert one.ratio == pytest.approx(1.0)
    assert "they ran at the same time on average" in one.reasons[0].text


def test_without_times_the_drift_is_given_per_trial_and_that_is_stated() -> None:
    rows = [row(name, tps, flags=[UNTIMED]) for name, tps in (("a", 10), ("b", 11), ("a", 10), ("b", 11))]
    (one,) = audited(frame(*rows)).comparisons
    assert "a drift of +10.0% a trial would explain the difference" in one.reasons[0].text
    assert one.reasons[1].code == "no_times"


def test_placed_times_are_marked() -> None:
    rows = [row(name, tps, flags=[PLACED]) for name, tps in (("a", 10), ("a", 10), ("b", 11))]
    (one,) = audited(frame(*rows)).comparisons
    assert "an hour" in one.reasons[0].text
    assert one.reasons[1].code == "times_placed"


def test_a_mechanism_without_its_evidence_is_not_engaged() -> None:
    rows = frame(row("a", 10), row("b", 30, requested=True, engaged=None))
    (one,) = audited(rows).comparisons
    assert (one.verdict, one.engaged_share) == ("not_engaged", 0.0)
    assert one.ratio == pytest.approx(3.0)


def test_prompts_of_unlike_speed_are_compared_each_with_itself() -> None:
    rows = frame(
        row("a", 10, prompt_id="short"), row("a", 100, prompt_id="long"), row("b", 11, prompt_id="short"),
        row("b", 110, prompt_id="long"), row("b", 999, prompt_id="b's own"),
    )  # fmt: skip
    (one,) = audited(rows).comparisons
    assert one.ratio == pytest.approx(1.1)


def test_arms_without_a_prompt_in_common_are_confounded() -> None:
    (one,) = audited(frame(row("a", 10, prompt_id="x"), row("b", 30, prompt_id="y"))).comparisons
    assert (one.verdict, one.ratio, one.reasons[0].code) == ("confounded", None, "no_prompt_in_common")


def test_other_lengths_are_confounded() -> None:
    (one,) = audited(frame(row("a", 10), row("b", 30, prompt_tokens=60))).comparisons
    assert (one.verdict, one.reasons[0].code) == ("confounded", "prompt_tokens_differ")
    longer = frame(row("a", None, end_to_end_tps=5.0), row("b", None, end_to_end_tps=6.0, completion_tokens=640))
    (one,) = audited(longer, "end_to_end_tps").comparisons
    assert one.reasons[0].text == "completion token counts differ for 1 prompts: 640 against 64 for p"


def test_an_arm_without_the_metric_is_underpowered() -> None:
    (one,) = audited(frame(row("a", 10), row("b", None))).comparisons
    assert (one.verdict, one.reasons[0].text) == ("underpowered", "b: no trial with decode_tps")


def test_failed_trials_are_not_compared() -> None:
    (one,) = audited(frame(row("a", 10), row("b", 30), row("b", 1, status="invalid"))).comparisons
    assert one.ratio == pytest.approx(3.0)


def test_nothing_to_compare_is_stated() -> None:
    found = audited(frame(row("a", 10)))
    assert found.comparisons == ()
    assert found.summary.startswith("Nothing to compare")
    assert found.drift is None


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown"):
        audited(frame(row("a", 10)), "speed")
    with pytest.raises(ValueError, match="no such arm"):
        audited(frame(row("b", 10)))


def test_judging_takes_the_way_that_the_rows_say() -> None:
    rows = frame(row("a", 10), row("b", 30))
    assert not was_randomised(rows)
    assert was_randomised(rows.assign(randomised=True))
    (one,) = judge(rows, plan(arm("a"), arm("b", effect=2.0), metric="decode_tps")).comparisons
    assert one.verdict == "could_be_drift"


def test_thousands_of_points_need_no_square_of_them() -> None:
    many = pd.DataFrame({"arm": ["a"] * 20_000 + ["b"], "sequence": range(20_001), "value": 1.0})
    (one,) = explain_by_order(many, control="a")
    assert one.seen_drift_per_trial == pytest.approx(0.0)
