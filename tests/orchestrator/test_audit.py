"""Verdicts: each of the six is reached for its reason, and none hides another."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from orchestrator.audit import AuditResult, Comparison, audit
from orchestrator.effects import estimate_effect
from orchestrator.statistics.comparability import Scope
from orchestrator.statistics.observations import ALL, round_values
from orchestrator.statistics.run_drift import run_drift
from tests.orchestrator.flat import FlatRun, changed


def judged(frame: pd.DataFrame, **options: Any) -> AuditResult:
    return audit(frame, control="plain", metric=options.pop("metric", "end_to_end_tps"), **options)


def overall(result: AuditResult, treatment: str) -> Comparison:
    (found,) = (
        one
        for one in result.comparisons
        if one.treatment == treatment and one.prompt_class is None and one.turn is None
    )
    return found


def codes(comparison: Comparison) -> list[str]:
    return [reason.code for reason in comparison.reasons if reason.code != "run_drift"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return FlatRun(effects={"plain": 1.0, "draft": 1.3, "same": 1.0, "slow": 0.8}, drafting=["draft"]).frame()


def test_a_large_effect_is_supported_with_its_direction(frame: pd.DataFrame) -> None:
    result = judged(frame)
    draft, slow = overall(result, "draft"), overall(result, "slow")
    assert (draft.verdict, draft.direction) == ("supported", "faster")
    assert draft.ratio == pytest.approx(1.3, rel=0.02)
    assert draft.ci_low is not None
    assert draft.aa_high is not None
    assert draft.ci_low > draft.aa_high
    assert (draft.rounds, draft.wins, draft.engaged_share) == (8, 8, 1.0)
    assert codes(draft)[:2] == ["clear_of_1", "clear_of_floor"]
    assert (slow.verdict, slow.direction, slow.wins, slow.engaged_share) == ("supported", "slower", 0, None)


def test_equal_arms_are_no_difference_or_could_be_drift(frame: pd.DataFrame) -> None:
    same = overall(judged(frame, margin=0.05), "same")
    assert (same.verdict, same.direction, codes(same)) == ("no_difference", None, ["inside_margin"])
    same = overall(judged(frame, margin=0.0), "same")
    assert same.verdict == "could_be_drift"
    assert codes(same) == ["interval_includes_1", "inside_floor"]


def test_an_effect_inside_the_floor_could_be_drift(frame: pd.DataFrame) -> None:
    # The control's second entry as far off as the treatment is: then the run cannot tell them apart.
    spoiled = changed(frame, frame["is_aa"], end_to_end_tps=frame["end_to_end_tps"] * 1.3)
    draft = overall(judged(spoiled), "draft")
    assert draft.verdict == "could_be_drift"
    assert codes(draft) == ["inside_floor"]


def test_without_a_second_entry_the_verdict_reports_it() -> None:
    draft = overall(judged(FlatRun(effects={"plain": 1.0, "draft": 1.3}, aa=False).frame()), "draft")
    assert draft.verdict == "supported"
    assert codes(draft) == ["clear_of_1", "no_floor"]
    assert draft.aa_ratio is None


def test_less_time_is_faster(frame: pd.DataFrame) -> None:
    draft = overall(judged(frame, metric="ttft_s"), "draft")
    assert (draft.verdict, draft.direction, draft.wins) == ("supported", "faster", 8)
    assert draft.ratio == pytest.approx(1 / 1.3, rel=0.02)


def test_too_few_rounds_are_underpowered_whatever_the_effect() -> None:
    result = judged(FlatRun(effects={"plain": 1.0, "draft": 3.0}, rounds=5).frame())
    draft = overall(result, "draft")
    assert draft.verdict == "underpowered"
    assert draft.ratio == pytest.approx(3.0, rel=0.05)
    assert (draft.ci_low, draft.ci_high, draft.aa_low, draft.aa_high) == (None, None, None, None)
    assert draft.reasons[0].text == "5 complete rounds; a level of 0.05 needs 6"
    stricter = judged(FlatRun(effects={"plain": 1.0, "draft": 3.0}, rounds=7).frame(), alpha=0.01)
    assert overall(stricter, "draft").verdict == "underpowered"


@pytest.mark.parametrize(("engaged", "code"), [(False, "not_engaged"), (pd.NA, "engagement_unknown")])
def test_one_generation_without_engagement_is_enough(frame: pd.DataFrame, engaged: object, code: str) -> None:
    one = (frame["arm"] == "draft") & (frame["round"] == 3) & (frame["prompt_id"] == "c1")
    result = judged(changed(frame, one, engaged=engaged))
    draft = overall(result, "draft")
    assert draft.verdict == "not_engaged"
    assert codes(draft)[0] == code
    assert "1 of 40 generations" in draft.reasons[0].text
    assert draft.engaged_share == pytest.approx(39 / 40)
    by_class = {one.prompt_class: one.verdict for one in result.comparisons if one.treatment == "draft"}
    assert by_class == {None: "not_engaged", "code": "not_engaged", "maths": "supported", "prose": "supported"}


def test_invalid_trials_without_engagement_do_not_hide(frame: pd.DataFrame) -> None:
    drafts = (frame["arm"] == "draft") & (frame["kind"] == "measured")
    draft = overall(judged(changed(frame, drafts, engaged=False, status="invalid")), "draft")
    assert (draft.verdict, draft.ratio, draft.rounds, draft.engaged_share) == ("not_engaged", None, 0, 0.0)


def test_a_mechanism_that_ran_unasked_in_the_control_counts(frame: pd.DataFrame) -> None:
    ran = (frame["arm"] == "plain") & (frame["kind"] == "measured")
    draft = overall(judged(changed(frame, ran, engaged=True)), "draft")
    assert (draft.verdict, codes(draft)) == ("not_engaged", ["unrequested_mechanism"])


def test_engaged_and_useful_are_two_things(frame: pd.DataFrame) -> None:
    drafts = (frame["arm"] == "draft") & (frame["kind"] == "measured")
    draft = overall(judged(changed(frame, drafts, useful=False)), "draft")
    assert draft.verdict == "supported"
    assert draft.reasons[-1].code == "not_useful"
    assert "nothing accepted in 40 of 40" in draft.reasons[-1].text


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        ("mlx_version", "0.31.0", "mlx_version_differs"),
        ("mlx_lm_version", "0.31.0", "mlx_lm_version_differs"),
        ("os_build", "25B2", "os_build_differs"),
        ("host", "other", "host_differs"),
        ("power_source", "battery", "power_source_differs"),
        ("engine_version", "0.1", "engine_version_differs"),
        ("prompt_tokens", 31, "prompt_tokens_differ"),
        ("completion_tokens", 20, "completion_tokens_differ"),
    ],
)
def test_each_difference_besides_the_settings_confounds(
    frame: pd.DataFrame, column: str, value: object, code: str
) -> None:
    result = judged(changed(frame, (frame["arm"] == "draft") & (frame["round"] == 2), **{column: value}))
    draft = overall(result, "draft")
    assert (draft.verdict, codes(draft)) == ("confounded", [code])
    assert str(value) in draft.reasons[0].text
    assert overall(result, "slow").verdict == "supported"


def test_an_unknown_version_of_a_server_shows_neither_an_effect_nor_that_there_is_none(frame: pd.DataFrame) -> None:
    told = frame.assign(environment_id="own", mlx_missing=None, missing_reason=None)
    draft = told["arm"] == "draft"
    lost = {"mlx_version": None, "mlx_lm_version": None, "environment_id": "other", "missing_reason": "not visible"}
    unknown = overall(judged(changed(told, draft, mlx_missing="unknown", **lost)), "draft")
    assert unknown.verdict == "could_be_drift"
    assert "mlx_version_unknown" in codes(unknown)
    text = next(reason.text for reason in unknown.reasons if reason.code == "mlx_version_unknown")
    assert "not visible against 0.32" in text
    # Two servers of which nobody knows anything need not be equal; arms of one server are.
    everywhere = pd.Series(data=True, index=told.index)
    both = changed(told, everywhere, mlx_missing="unknown", **lost)
    apart = changed(both, draft, environment_id="another")
    assert "mlx_version_unknown" in codes(overall(judged(apart), "draft"))
    assert overall(judged(both), "draft").verdict == "supported"
    without = overall(judged(changed(told, draft, mlx_missing="none", **lost)), "draft")
    assert without.verdict == "supported"
    assert "mlx_in_one_only" in codes(without)


def test_another_build_of_the_same_mlx_version_confounds(frame: pd.DataFrame) -> None:
    older = changed(frame, frame["arm"] == "draft", mlx_build="py3-none-macosx_15_0_arm64")
    draft = overall(judged(older), "draft")
    assert (draft.verdict, codes(draft)) == ("confounded", ["mlx_build_differs"])
    not_recorded = changed(frame, frame["arm"] == "draft", mlx_build=None)
    assert overall(judged(not_recorded), "draft").verdict == "supported"


def test_a_change_for_all_arms_between_rounds_does_not_confound(frame: pd.DataFrame) -> None:
    later = frame["round"] >= 4
    assert overall(judged(changed(frame, later, mlx_version="0.33.0")), "draft").verdict == "supported"


def test_versions_of_different_engines_are_not_compared(frame: pd.DataFrame) -> None:
    other = changed(frame, frame["arm"] == "draft", engine="dflash", engine_version="2.0")
    assert overall(judged(other), "draft").verdict == "supported"


def test_a_first_prompt_from_a_cache_in_one_arm_confounds_what_it_could_explain(frame: pd.DataFrame) -> None:
    frame = frame.assign(cached_tokens=0).astype({"cached_tokens": "Int64"})
    draft = frame["arm"] == "draft"
    found = overall(judged(changed(frame, draft, cached_tokens=15)), "draft")
    assert (found.verdict, codes(found)) == ("confounded", ["cached_tokens_differ"])
    assert "15 against 0" in found.reasons[0].text
    assert overall(judged(changed(frame, draft, cached_tokens=15), metric="decode_tps"), "draft").verdict == "supported"
    assert overall(judged(changed(frame, draft, cached_tokens=1)), "draft").verdict == "supported"
    assert overall(judged(frame.assign(cached_tokens=15)), "draft").verdict == "supported"  # for all arms alike
    assert overall(judged(changed(frame, draft, cached_tokens=None)), "draft").verdict == "supported"  # unknown


def test_decode_rates_bear_somewhat_unequal_lengths(frame: pd.DataFrame) -> None:
    shorter = changed(frame, frame["arm"] == "draft", completion_tokens=56)
    assert overall(judged(shorter, metric="decode_tps"), "draft").verdict == "supported"
    much_shorter = changed(frame, frame["arm"] == "draft", completion_tokens=37)
    assert overall(judged(much_shorter, metric="decode_tps"), "draft").verdict == "confounded"
    assert overall(judged(much_shorter, metric="ttft_s"), "draft").verdict == "supported"


def test_by_prompt_each_class_has_its_own_verdict() -> None:
    effects: dict[str, Any] = {"plain": 1.0, "draft": {"maths": 1.5, "code": 1.6, "prose": 0.9}}
    result = judged(FlatRun(effects=effects, rounds=40, by_prompt=True).frame())
    found = {one.prompt_class: one for one in result.comparisons}
    assert found["maths"].ratio == pytest.approx(1.5, rel=0.02)
    assert found["code"].ratio == pytest.approx(1.6, rel=0.02)
    assert (found["prose"].direction, found["prose"].rounds) == ("slower", 8)
    assert (found["maths"].rounds, found[None].rounds) == (16, 40)
    assert found[None].verdict == "supported"


def test_by_prompt_over_all_is_not_blurred_by_prompts_of_unlike_speed() -> None:
    effects: dict[str, Any] = {"plain": 1.0, "draft": 1.03, "third": {"maths": 2.0, "code": 3.0, "prose": 1.0}}
    draft = overall(judged(FlatRun(effects=effects, rounds=40, by_prompt=True).frame()), "draft")
    assert draft.ratio == pytest.approx(1.03, rel=0.005)
    assert draft.verdict == "supported"


def test_turns_are_compared_apart() -> None:
    result = judged(FlatRun(effects={"plain": 1.0, "draft": 1.3}, turns=2, prompts={"d1": "document"}).frame())
    assert [(one.prompt_class, one.turn) for one in result.comparisons] == [(None, None), (None, 0), (None, 1)]
    assert all(one.verdict == "supported" for one in result.comparisons)


def test_only_finished_included_trials_of_complete_rounds_count(frame: pd.DataFrame) -> None:
    def one(arm: str, round_: int) -> "pd.Series[bool]":
        return (frame["arm"] == arm) & (frame["round"] == round_) & ~frame["is_aa"]

    spoiled = changed(frame, one("draft", 1), status="excluded", excluded_reason="thermal", end_to_end_tps=1e-3)
    spoiled = changed(spoiled, one("plain", 4), status="interrupted", end_to_end_tps=1e9)
    result = judged(spoiled)
    draft = overall(result, "draft")
    assert (draft.rounds, draft.verdict) == (6, "supported")
    assert draft.ratio == pytest.approx(1.3, rel=0.02)
    assert [reason.text for reason in draft.reasons if reason.code == "left_out"] == [
        "draft: 1 trial left out (1 thermal)",
        "plain: 1 trial left out (1 interrupted)",
    ]


def test_a_missing_measurement_is_no_zero(frame: pd.DataFrame) -> None:
    one = (frame["arm"] == "draft") & (frame["round"] == 1) & (frame["prompt_id"] == "p1")
    result = judged(changed(frame, one, end_to_end_tps=np.nan))
    rounds = {one.prompt_class: one.rounds for one in result.comparisons if one.treatment == "draft"}
    assert rounds == {None: 8, "code": 8, "maths": 8, "prose": 7}  # the other prompts of the round still count


def test_a_replayed_round_counts_once(frame: pd.DataFrame) -> None:
    cut = frame[(frame["round"] == 3)]
    again = pd.concat([frame, cut.assign(attempt=1)], ignore_index=True)
    spoiled = changed(again, (again["round"] == 3) & (again["attempt"] == 0), end_to_end_tps=1e-3)
    comparisons = judged(spoiled).comparisons
    assert tuple(replace(one, included=None) for one in comparisons) == judged(frame).comparisons
    assert all(one.included is not None for one in comparisons)  # the first attempt, spoiled as it was


def test_the_numbers_are_those_of_estimate_effect(frame: pd.DataFrame) -> None:
    values = round_values(frame, metric="end_to_end_tps")
    flat = pd.DataFrame([(v.round, i, v.label, v.value) for i, v in enumerate(values)])
    flat.columns = pd.Index(["round", "position", "arm", "value"])
    effect = estimate_effect(flat, treatment="draft", control="plain")
    draft = overall(judged(frame), "draft")
    assert (draft.ratio, draft.ci_low, draft.ci_high) == pytest.approx((effect.ratio, effect.ci_low, effect.ci_high))
    assert draft.p_value == effect.p_value


def test_round_values_of_a_class(frame: pd.DataFrame) -> None:
    prose = round_values(frame, metric="end_to_end_tps", scope=Scope(prompt_class="prose"))
    everything = round_values(frame, metric="end_to_end_tps", scope=ALL)
    assert len(prose) == len(everything) == 8 * 5
    assert sum(v.label == "A/A" for v in prose) == 8


def test_the_drift_of_the_run_has_its_sign(frame: pd.DataFrame) -> None:
    drift, reason = run_drift(frame, control="plain", metric="end_to_end_tps")
    assert drift == pytest.approx(-0.18, abs=0.03)
    assert reason is None
    assert "From first to last control run end_to_end_tps changed by -1" in judged(frame).summary
    without = judged(FlatRun(effects={"plain": 1.0, "draft": 1.3}, bracket=False).frame())
    assert (without.drift, without.drift_reason) == (None, "no finished control runs at both ends of the run")


def test_the_summary_names_the_verdict_before_the_figure(frame: pd.DataFrame) -> None:
    summary = judged(frame).summary
    assert summary.startswith("draft against plain: supported, faster, 1.")
    assert "slow against plain: supported, slower, 0." in summary


def test_arms_are_summarised_by_class(frame: pd.DataFrame) -> None:
    arms = {(arm.label, arm.prompt_class): arm for arm in judged(frame).arms}
    assert arms["draft", None].accept_length == 3.1
    assert arms["plain", None].accept_length is None
    assert arms["A/A", "code"].trials == 8
    assert arms["draft", "code"].decode_tps is not None


def test_the_same_rows_give_the_same_audit(frame: pd.DataFrame) -> None:
    before = frame.copy()
    assert judged(frame, seed=3) == judged(frame.sample(frac=1.0, random_state=1), seed=3)
    pd.testing.assert_frame_equal(frame, before)


def test_a_run_without_measured_trials_is_underpowered(frame: pd.DataFrame) -> None:
    result = judged(frame[frame["kind"] == "warmup"])
    assert [one.verdict for one in result.comparisons] == ["underpowered"] * 3
    assert result.comparisons[0].rounds == 0


def test_a_planned_arm_that_never_ran_is_a_comparison_without_a_round(frame: pd.DataFrame) -> None:
    planned = [*dict.fromkeys(frame["arm"]), "absent"]
    result = judged(frame, arms=planned)
    absent = [one for one in result.comparisons if one.treatment == "absent"]
    assert {one.verdict for one in absent} == {"underpowered"}
    assert {(one.ratio, one.rounds) for one in absent} == {(None, 0)}
    assert "absent against plain: underpowered; no complete round yet" in result.summary
    assert [one.trials for one in result.arms if one.label == "absent" and one.prompt_class is None] == [0]
    others = tuple(one for one in result.comparisons if one.treatment != "absent")
    assert others == judged(frame).comparisons  # nor does it change what is said of the others


def test_a_run_that_ended_before_its_first_round_compares_all_it_planned(frame: pd.DataFrame) -> None:
    result = judged(frame[frame["kind"] == "bracket"], arms=["plain", "draft"])
    (one,) = result.comparisons
    assert (one.treatment, one.verdict) == ("draft", "underpowered")
    assert one.reasons[0].text == "no complete round yet"


def test_what_is_no_run_is_refused(frame: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="control 'absent': no such arm"):
        audit(frame, control="absent", metric="end_to_end_tps")
    with pytest.raises(ValueError, match="metric 'speed': unknown"):
        judged(frame, metric="speed")
    with pytest.raises(ValueError, match="columns missing: engaged;"):
        judged(frame.drop(columns="engaged"))


def test_a_small_effect_among_many_arms_could_be_chance(frame: pd.DataFrame) -> None:
    lone = overall(judged(FlatRun(effects={"plain": 1.0, "draft": 1.3}).frame()), "draft")
    assert lone.family_p is None
    draft = overall(judged(frame), "draft")
    assert draft.family_p is not None
    assert draft.family_p <= 0.05
    effects = dict.fromkeys(["plain", *(f"same{index}" for index in range(12))], 1.0)
    runs = [
        judged(FlatRun(effects=effects, rounds=6, seed=seed, aa=False).frame(), margin=0.0).comparisons
        for seed in range(2, 4)
    ]
    lucky = [[one for one in run if one.p_value is not None and one.p_value <= 0.05] for run in runs]
    assert any(lucky)
    chance = [one for run in lucky for one in run if one.family_p is not None and one.family_p > 0.05]
    # A family finds something by chance in one run of twenty, and then in several arms: they share a control.
    assert sum(any(one.verdict == "supported" for one in run) for run in lucky) <= 1
    assert chance
    assert all(one.verdict == "could_be_drift" and codes(one)[0] == "one_of_many" for one in chance)


def test_the_best_arms_are_named_by_class() -> None:
    effects: dict[str, Any] = {
        "plain": 1.0,
        "wide": {"maths": 1.6, "code": 1.6, "prose": 0.8},
        "narrow": {"maths": 1.3, "code": 1.3, "prose": 1.2},
    }
    result = judged(FlatRun(effects=effects).frame())
    best = {one.prompt_class: one.arms for one in result.best}
    assert (best["maths"], best["code"], best["prose"]) == (("wide",), ("wide",), ("narrow",))
    few = judged(FlatRun(effects=effects, rounds=4).frame())
    assert set(few.best[0].arms) == {"plain", "wide", "narrow"}


def test_what_the_exclusions_change_is_shown(frame: pd.DataFrame) -> None:
    hot = (frame["arm"] == "draft") & frame["round"].isin([2, 5]) & ~frame["is_aa"]
    slow = frame["end_to_end_tps"] * 0.5
    excluded = changed(frame, hot, status="excluded", excluded_reason="thermal", end_to_end_tps=slow)
    draft = overall(judged(excluded), "draft")
    assert draft.included is not None
    assert (draft.rounds, draft.included.rounds) == (6, 8)
    assert draft.ci_low is not None
    assert draft.included.ci_low is not None
    assert draft.included.ci_low < draft.ci_low - 0.05
    assert draft.included.verdict in ("supported", "could_be_drift")
    assert overall(judged(frame), "draft").included is None


def test_a_carry_over_that_is_found_leaves_no_effect_supported() -> None:
    frame = FlatRun(effects={"plain": 1.0, "hot": 1.5, "mild": 1.03}, rounds=16, noise=0.003).frame()
    measured = frame[(frame["kind"] == "measured") & (frame["prompt_id"] == "m1")].sort_values("sequence")
    after_hot = set(measured["sequence"][(measured["arm"].shift() == "hot").fillna(value=False)])
    rows = frame["sequence"].isin(after_hot) & (frame["kind"] == "measured")
    heated = changed(frame, rows, end_to_end_tps=frame["end_to_end_tps"] * 0.9)
    result = judged(heated)
    assert result.carry_over is not None
    assert (result.carry_over.after, result.carry_over.matters) == ("hot", True)
    mild, hot = overall(result, "mild"), overall(result, "hot")
    assert mild.verdict == "could_be_drift"
    assert "carry_over" in codes(mild)
    assert hot.verdict == "could_be_drift"
    assert hot.reasons[0].code == "carry_over"
    assert "a trial of hot" in hot.reasons[0].text
    assert "gate.cooldown_s" in hot.reasons[0].text
    assert "design.order=williams" in hot.reasons[0].text


def test_a_run_that_may_stop_early_is_judged_by_what_holds_at_any_time(frame: pd.DataFrame) -> None:
    result = judged(frame, inference="anytime")
    draft, same = overall(result, "draft"), overall(result, "same")
    assert (draft.verdict, draft.direction, draft.rounds) == ("supported", "faster", 8)
    assert draft.family_p is not None
    assert draft.p_value is not None
    assert draft.p_value <= draft.family_p <= 3 * draft.p_value
    assert same.verdict in ("could_be_drift", "no_difference")
    fixed = overall(judged(frame), "draft")
    assert None not in (draft.ci_low, draft.ci_high, fixed.ci_low, fixed.ci_high)
    assert result.best[0].arms[0] == "draft"
    few = judged(frame[~(frame["round"] >= 5).fillna(value=False)], inference="anytime")
    assert overall(few, "draft").verdict == "underpowered"


@pytest.mark.slow
def test_a_large_run_has_a_verdict_for_every_arm_and_class() -> None:
    prompts = {f"p{index}": f"class{index}" for index in range(5)}
    effects = {f"arm{index}": 1 + 0.02 * index for index in range(20)}
    large = FlatRun(effects=effects, rounds=40, by_prompt=True, prompts=prompts).frame()
    result = audit(large, control="arm0", metric="end_to_end_tps")
    assert len(result.comparisons) == 19 * 6


def test_prompts_weigh_the_same_although_some_had_more_rounds() -> None:
    """Eight rounds over five prompts: half of the rounds hold the two that gain, two fifths of the prompts do."""
    effects = {"plain": 1.0, "draft": {"maths": 2.0, "code": 1.0, "prose": 1.0}}
    frame = FlatRun(effects=effects, rounds=8, by_prompt=True, noise=0.001, drift=0.0).frame()
    assert overall(judged(frame), "draft").ratio == pytest.approx(2.0**0.4, rel=0.02)


def test_what_one_arm_lacks_spoils_no_other_pair() -> None:
    frame = FlatRun(effects={"plain": 1.0, "fast": 2.0, "same": 1.0}, seed=1).frame()
    silent = (frame["prompt_id"] == "m1") & (frame["arm"] != "same")
    fast = overall(judged(changed(frame, silent, decode_tps=None), metric="decode_tps"), "fast")
    assert (fast.verdict, fast.rounds) == ("supported", 8)
    assert fast.ratio == pytest.approx(2.0, rel=0.02)
    same = overall(judged(changed(frame, silent, decode_tps=None), metric="decode_tps"), "same")
    assert (same.verdict, same.rounds) == ("could_be_drift", 8)


def test_a_slow_prompt_that_one_arm_misses_in_some_rounds_makes_it_no_faster() -> None:
    frame = FlatRun(effects={"plain": 1.0, "same": 1.0}, rounds=20, noise=0.002, aa=False).frame()
    slow = frame["prompt_id"] == "m1"
    frame = changed(frame, slow, end_to_end_tps=frame["end_to_end_tps"] / 10)
    gone = slow & (frame["arm"] == "same") & (frame["round"] % 3 == 0)
    same = overall(judged(changed(frame, gone, end_to_end_tps=None)), "same")
    assert same.rounds == 20
    assert same.ratio == pytest.approx(1.0, abs=0.003)


def test_a_token_less_in_one_answer_confounds_no_large_effect() -> None:
    frame = FlatRun(effects={"plain": 1.0, "fast": 2.0, "same": 1.0}, seed=1).frame()
    short = (frame["arm"] == "fast") & (frame["round"] == 3) & (frame["prompt_id"] == "c1")
    fast = overall(judged(changed(frame, short, completion_tokens=63)), "fast")
    assert fast.verdict == "supported"
    harmless = next(reason for reason in fast.reasons if reason.code == "completion_tokens_differ")
    assert "that explains a factor of 1.000 at most" in harmless.text
    shorter = changed(frame, frame["arm"] == "fast", completion_tokens=40)
    assert overall(judged(shorter), "fast").verdict == "confounded"
