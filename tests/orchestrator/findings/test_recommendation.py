"""Best arm by use."""

from typing import Any

import pytest

from orchestrator.audit import AuditResult, audit
from orchestrator.findings.recommendation import recommend
from orchestrator.findings.values import ArmTurns, Figure, Interval, TurnFigures
from tests.orchestrator.flat import FlatRun

UNKNOWN = Figure(value=None, source="")


def judged(**classes: float) -> AuditResult:
    prompts = {f"{name}/0": name for name in classes}
    run = FlatRun(effects={"plain": 1.0, "spec": classes}, prompts=prompts, rounds=8)
    return audit(run.frame(), control="plain", metric="decode_tps")


def second_turn(ratio: float, verdict: str = "supported") -> ArmTurns:
    interval = Interval(ratio=ratio, ci_low=ratio * 0.9, ci_high=ratio * 1.1, p_value=0.01, rounds=8)
    figures: dict[str, Any] = dict.fromkeys(("ttft_s", "prompt_tokens"), None) | {
        "generations": 8,
        "cached_tokens": UNKNOWN,
        "new_tokens": UNKNOWN,
        "prefill_tps": UNKNOWN,
    }
    first = TurnFigures(turn=0, ttft_ratio=None, verdict=None, **figures)
    second = TurnFigures(turn=1, ttft_ratio=interval, verdict=verdict, **figures)
    return ArmTurns(arm="spec", workload="two_turns", turns=(first, second), flags=(), remarks=())


def test_an_arm_that_is_better_everywhere_is_named() -> None:
    found = recommend(judged(code=1.4, prose=1.2), ())
    assert not found.disagree
    # Not by one ratio: it depends on the prompt how much.
    assert found.sentence.startswith("spec against plain: the effect depends on the prompt")
    assert found.sentence.endswith("on average spec is faster.")
    same = recommend(judged(code=1.3, prose=1.3), ())
    assert same.sentence.startswith("spec is 1.30")
    assert "x as fast as plain (" in same.sentence


def test_an_arm_that_loses_a_class_is_no_winner() -> None:
    found = recommend(judged(code=2.0, prose=0.6), ())
    assert found.disagree
    assert found.sentence.startswith("It depends on the work: plain for prose (1.6")
    assert "spec for code (" in found.sentence
    assert "over all" not in found.sentence


def test_a_second_turn_that_waits_makes_a_faster_decoder_no_winner() -> None:
    """The source article's case: the run compared decoding, and decoding alone cannot see it."""
    found = recommend(judged(code=1.4), [second_turn(12.0)])
    assert found.disagree
    assert "plain for the wait for the first token in turn 2 of two_turns (12.00x)" in found.sentence
    (wait,) = (each for each in found.by_scope if each.metric == "ttft_s")
    assert (wait.better, wait.times) == ("plain", 12.0)
    assert wait.ci_low == pytest.approx(10.8)


def test_a_wait_that_could_be_drift_changes_nothing() -> None:
    assert not recommend(judged(code=1.4), [second_turn(12.0, "could_be_drift")]).disagree


def test_a_shorter_wait_agrees_with_a_faster_decoder() -> None:
    found = recommend(judged(code=1.4), [second_turn(0.5)])
    assert not found.disagree
    assert {each.better for each in found.by_scope} == {"spec"}


def test_nothing_found_is_stated_as_the_verdict_says_it() -> None:
    assert recommend(judged(code=1.0), ()).sentence in (
        "spec against plain: no difference.",
        "spec against plain: could be drift.",
    )


def test_one_arm_alone_has_nothing_to_recommend() -> None:
    alone = audit(FlatRun(effects={"plain": 1.0}).frame(), control="plain", metric="decode_tps")
    assert recommend(alone, ()).sentence.startswith("Nothing to compare")
