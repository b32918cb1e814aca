"""One number is no headline where the effect depends on the prompt, changes during the run, or hides slow trials."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from orchestrator.audit import AuditResult, Comparison, audit
from orchestrator.effects import Series, equal_weights
from orchestrator.findings.recommendation import recommend
from orchestrator.report.verdict import sentence
from orchestrator.statistics.variation import unlike_tails
from tests.orchestrator.flat import FlatRun

CHAT = {f"q{number}": "chat" for number in range(5)}
Change = Callable[[pd.DataFrame], Any]  # a factor for each row


def run_of(change: Change, *, by_prompt: bool = False, rounds: int = 40, seed: int = 0) -> AuditResult:
    frame = FlatRun(
        effects={"plain": 1.0, "new": 1.0}, rounds=rounds, by_prompt=by_prompt, noise=0.01, seed=seed, prompts=CHAT
    ).frame()
    factor = np.where(frame["arm"] == "new", change(frame), 1.0)
    return audit(
        frame.assign(end_to_end_tps=frame["end_to_end_tps"] * factor), control="plain", metric="end_to_end_tps"
    )


def over_all(result: AuditResult) -> Comparison:
    return next(one for one in result.comparisons if one.over_all)


def codes(one: Comparison) -> list[str]:
    return [reason.code for reason in one.reasons]


def per_prompt(**factors: float) -> Change:
    return lambda frame: frame["prompt_id"].map({name: factors.get(name, factors["others"]) for name in CHAT})


def stalls(share: float, speed: float) -> Change:
    def change(frame: pd.DataFrame) -> Any:
        rounds = frame["round"].dropna().unique()
        slow = np.random.default_rng(7).choice(rounds, round(share * len(rounds)), replace=False)
        return np.where(frame["round"].isin(slow).fillna(value=False), speed, 1.0)

    return change


@pytest.mark.parametrize("by_prompt", [True, False])
def test_an_effect_that_depends_on_the_prompt_is_stated_first(by_prompt: bool) -> None:
    result = run_of(per_prompt(q0=2.0, others=0.95), by_prompt=by_prompt)
    one = over_all(result)
    assert one.ratio == pytest.approx(2.0**0.2 * 0.95**0.8, rel=0.01)
    assert codes(one)[0] == "depends_on_prompt"
    assert "for q0" in one.reasons[0].text
    assert one.direction is None
    for headline in (sentence(one), result.summary, recommend(result, ()).sentence):
        assert "depends on the prompt" in headline
        assert "1.10" not in headline


def test_prompts_that_gain_unlike_much_still_have_a_direction() -> None:
    one = over_all(run_of(per_prompt(q0=2.0, others=1.2)))
    assert (one.verdict, one.direction, codes(one)[0]) == ("supported", "faster", "depends_on_prompt")


@pytest.mark.parametrize("by_prompt", [True, False])
def test_prompts_that_cancel_are_not_no_difference(by_prompt: bool) -> None:
    one = over_all(run_of(per_prompt(q0=1.35, others=1.35**-0.25), by_prompt=by_prompt))
    assert (one.verdict, codes(one)[0]) == ("could_be_drift", "depends_on_prompt")


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3])
def test_stalls_are_never_no_difference(share: float) -> None:
    one = over_all(run_of(stalls(share, 0.5)))
    assert one.verdict != "no_difference"
    assert one.ratio == pytest.approx(0.5**share, rel=0.02)
    assert one.typical == pytest.approx(1.0, abs=0.04)
    odd = next(reason.text for reason in one.reasons if reason.code == "odd_rounds")
    assert "a typical round" in odd
    assert "rounds" in odd


def test_shallow_stalls_inside_the_margin_are_named() -> None:
    one = over_all(run_of(stalls(0.1, 0.92)))
    assert one.verdict == "could_be_drift"
    assert codes(one)[0] in ("stalls_differ", "tails_differ")
    assert one.ci_low is not None
    assert one.ci_low > 0.98


def test_four_stalls_against_none_are_counted() -> None:
    values = 0.01 * np.random.default_rng(0).standard_normal((2, 40))
    values[0, [3, 11, 20, 38]] -= 0.12
    flat = np.zeros(40, dtype=np.intp)
    series = Series(
        contrasts=values[0] - values[1],
        raw=values[0] - values[1],
        weights=equal_weights(flat),
        strata=flat,
        numbers=np.arange(40),
        flat=values,
    )

    def found(lower_is_faster: bool) -> str:
        reason = unlike_tails(
            series, alpha=0.05, margin=0.02, seed=0, lower_is_faster=lower_is_faster, arms=("new", "plain")
        )
        return "" if reason is None else reason.text

    assert "4 of 40 of new, 0 of plain" in found(False)
    assert found(True) == ""  # of times, low is fast


def test_a_wider_spread_of_one_arm_is_no_equality() -> None:
    spread = np.exp(0.04 * np.random.default_rng(3).standard_normal(300))
    one = over_all(run_of(lambda frame: spread[frame["round"].fillna(0).astype(int)], rounds=300))
    assert one.verdict == "could_be_drift"
    assert codes(one)[0] in ("stalls_differ", "tails_differ")


def test_an_effect_that_fades_is_stated_first() -> None:
    one = over_all(run_of(lambda frame: np.where((frame["round"] < 12).fillna(value=False), 0.9, 1.0)))
    assert codes(one)[0] == "changes_over_run"
    assert "in the first half" in sentence(one)


@pytest.mark.parametrize("by_prompt", [True, False])
def test_equal_arms_make_no_difference(by_prompt: bool) -> None:
    found = [over_all(run_of(per_prompt(others=1.0), by_prompt=by_prompt, seed=seed)) for seed in range(6)]
    assert sum(one.verdict == "no_difference" for one in found) >= 5


def test_a_common_effect_seldom_seems_to_depend_on_the_prompt() -> None:
    found = [over_all(run_of(per_prompt(others=1.3), by_prompt=True, rounds=20, seed=seed)) for seed in range(10)]
    assert sum(one.varies is not None for one in found) <= 2
    assert all(math.isclose(one.ratio or 0, 1.3, rel_tol=0.02) for one in found)
