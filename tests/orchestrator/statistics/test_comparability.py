"""Differences besides the arms' settings, and how much of an effect they can explain."""

import math

import numpy as np
import pandas as pd
import pytest

from orchestrator.statistics.comparability import Differences, DifferenceTable, EvidenceTable, Scope, words
from orchestrator.statistics.observations import measured_rows
from tests.orchestrator.flat import FlatRun, changed

ALL = Scope()


def frame(turns: int = 1) -> pd.DataFrame:
    return FlatRun(effects={"c": 1.0, "t": 1.0}, rounds=6, turns=turns, noise=0.001).frame()


def differences(
    rows: pd.DataFrame, metric: str = "end_to_end_tps", *, effect: float | None = 1.5, scope: Scope = ALL
) -> Differences:
    measured = measured_rows(rows, metric)
    table = DifferenceTable.read(measured[measured["usable"]], control="c", metric=metric)
    return table.confounders("t", scope, log_effect=None if effect is None else math.log(effect), margin=0.02)


def codes(found: Differences) -> tuple[list[str], list[str], list[str]]:
    kinds = (found.confounding, found.harmless, found.unknown)
    confounding, harmless, unknown = ([one.code for one in kind] for kind in kinds)
    return confounding, harmless, unknown


def of(rows: pd.DataFrame, arm: str = "t") -> "pd.Series[bool]":
    return rows["arm"] == arm


def test_equal_arms_differ_in_nothing() -> None:
    assert codes(differences(frame(turns=2))) == ([], [], [])


@pytest.mark.parametrize("column", ["mlx_version", "os_build", "host", "power_source", "interlace_version", "python"])
def test_another_environment_confounds_whatever_the_effect(column: str) -> None:
    rows = frame()
    found = differences(changed(rows, of(rows), **{column: "another"}), effect=9.0)
    assert codes(found) == ([f"{column}_differs"], [], [])
    text = found.confounding[0].text
    assert "in 30 of 30 generations: another against" in text
    assert "first for prompt c1" in text


@pytest.mark.parametrize("column", ["nice", "power_mode"])
def test_what_slows_one_arm_s_process_confounds_in_a_single_round(column: str) -> None:
    rows = frame()
    found = differences(changed(rows, of(rows) & (rows["round"] == 1), **{column: "5"}), effect=9.0)
    assert codes(found)[0] == [f"{column}_differs"]


@pytest.mark.parametrize(("column", "value"), [("lid", "closed"), ("display", "asleep")])
def test_a_lid_or_display_that_changes_in_one_round_is_reported_and_decides_nothing(column: str, value: str) -> None:
    rows = frame()
    once = differences(changed(rows, of(rows) & (rows["round"] == 1), **{column: value}), effect=9.0)
    assert codes(once) == ([], [f"{column}_differs"], [])
    always = differences(changed(rows, of(rows), **{column: value}), effect=9.0)
    assert codes(always) == ([f"{column}_differs"], [], [])


@pytest.mark.parametrize("missing", [None, "unknown"])
def test_what_was_not_recorded_is_not_known_to_differ(missing: str | None) -> None:
    rows = frame()
    for arm in ("t", "c"):
        assert codes(differences(changed(rows, of(rows, arm), mlx_version=missing)))[0] == []


def test_another_version_is_a_difference_between_arms_of_one_engine_only() -> None:
    rows = frame()
    other = changed(rows, of(rows), engine_version="9")
    assert codes(differences(other))[0] == ["engine_version_differs"]
    assert codes(differences(changed(other, of(rows), engine="another")))[0] == []


def test_a_difference_in_one_scope_is_none_in_another() -> None:
    rows = frame()
    other = changed(rows, of(rows) & (rows["prompt_class"] == "code"), mlx_version="9")
    assert codes(differences(other, scope=Scope(prompt_class="code")))[0] == ["mlx_version_differs"]
    assert codes(differences(other, scope=Scope(prompt_class="maths")))[0] == []


@pytest.mark.parametrize(
    ("metric", "longer", "effect", "kind"),
    [
        ("end_to_end_tps", 65 / 64, 1.5, "harmless"),  # explains 1.6 % of 50 %
        ("end_to_end_tps", 65 / 64, 1.05, "confounding"),  # a third of the effect
        ("end_to_end_tps", 65 / 64, None, "confounding"),
        ("end_to_end_tps", 1.5, 1.5, "confounding"),
        ("decode_tps", 1.25, 1.05, "none"),  # only the context grows
        ("decode_tps", 1.5, 1.05, "confounding"),
        ("ttft_s", 1.5, 1.05, "none"),
    ],
)
def test_completions_of_another_length(metric: str, longer: float, effect: float | None, kind: str) -> None:
    rows = frame()
    found = differences(changed(rows, of(rows), completion_tokens=round(64 * longer)), metric, effect=effect)
    expected = {"confounding": [], "harmless": []} | ({} if kind == "none" else {kind: ["completion_tokens_differ"]})
    assert codes(found) == (expected["confounding"], expected["harmless"], [])


def test_a_single_token_of_forty_answers_explains_next_to_nothing() -> None:
    rows = frame()
    one = of(rows) & (rows["round"] == 2) & (rows["prompt_id"] == "c1")
    found = differences(changed(rows, one, completion_tokens=63), effect=2.0)
    assert codes(found) == ([], ["completion_tokens_differ"], [])
    assert "in 1 of 30 generations: 63 against 64" in found.harmless[0].text
    assert "explains a factor of 1.001 at most" in found.harmless[0].text
    assert codes(differences(changed(rows, one, completion_tokens=63), effect=1.0)) == codes(found)  # inside the margin


def test_first_turns_of_other_lengths_are_other_prompts() -> None:
    rows = frame(turns=2)
    first = of(rows) & (rows["turn"] == 0)
    assert codes(differences(changed(rows, first, prompt_tokens=31), effect=9.0))[0] == ["prompt_tokens_differ"]


def test_a_second_turn_holds_the_arms_own_answer_and_confounds_what_it_explains() -> None:
    rows = frame(turns=2)
    second = rows["turn"] == 1
    rows = changed(rows, second, prompt_tokens=1000)
    later = changed(rows, second & of(rows), prompt_tokens=1010)
    scope = Scope(turn=1)
    assert codes(differences(later, "decode_tps", effect=1.5, scope=scope)) == ([], ["prompt_tokens_differ"], [])
    assert codes(differences(later, "decode_tps", effect=1.05, scope=scope))[0] == ["prompt_tokens_differ"]
    assert "factor of 1.020" in differences(later, "decode_tps", effect=1.5, scope=scope).harmless[0].text


def test_a_cached_first_prompt_confounds_waits_and_not_decoding() -> None:
    rows = frame()
    rows = rows.assign(cached_tokens=pd.array(np.where(of(rows), 15, 0), dtype="Int64"))
    assert codes(differences(rows, "ttft_s", effect=1.5))[0] == ["cached_tokens_differ"]
    assert codes(differences(rows, "ttft_s", effect=30.0)) == ([], ["cached_tokens_differ"], [])
    assert codes(differences(rows, "decode_tps", effect=1.5)) == ([], [], [])


# Evidence


def engagement(rows: pd.DataFrame, arm: str = "t", scope: Scope = ALL) -> tuple[float | None, list[str], list[str]]:
    found = EvidenceTable.read(measured_rows(rows, "decode_tps")).engagement(arm, scope)
    return found.share, [one.code for one in found.reasons], [one.code for one in found.notes]


def drafting() -> pd.DataFrame:
    return FlatRun(effects={"c": 1.0, "t": 1.0}, rounds=6, drafting=("t",)).frame()


def test_a_mechanism_that_ran_everywhere_is_engaged() -> None:
    assert engagement(drafting()) == (1.0, [], [])
    assert engagement(drafting(), "c") == (None, [], [])


@pytest.mark.parametrize(("engaged", "code"), [(False, "not_engaged"), (None, "engagement_unknown")])
def test_one_generation_without_evidence_is_reported(*, engaged: bool | None, code: str) -> None:
    rows = drafting()
    one = of(rows) & (rows["round"] == 1) & (rows["prompt_id"] == "m1")
    rows = changed(rows, one, engaged=engaged)
    assert engagement(rows) == (pytest.approx(29 / 30), [code], [])
    assert engagement(rows, scope=Scope(prompt_class="code")) == (1.0, [], [])
    # A trial that was thrown out for it does not hide it.
    assert engagement(changed(rows, of(rows) & (rows["round"] == 1), status="invalid"))[1] == [code]
    assert engagement(changed(rows, of(rows) & (rows["round"] == 1), status="interrupted"))[1] == []


def test_a_mechanism_that_nobody_asked_for_is_reported() -> None:
    rows = drafting()
    assert engagement(changed(rows, of(rows, "c"), engaged=True), "c") == (None, ["unrequested_mechanism"], [])


def test_a_draft_of_which_nothing_is_accepted_ran_and_is_noted() -> None:
    rows = drafting()
    assert engagement(changed(rows, of(rows), useful=False)) == (1.0, [], ["not_useful"])
    assert engagement(changed(rows, of(rows), useful=None)) == (1.0, [], [])


def test_words_of_a_column_hold_none_where_it_is_missing() -> None:
    assert words(pd.Series(["a", None, pd.NA], dtype="string")).tolist() == ["a", None, None]


def test_a_scope_says_what_it_is_about() -> None:
    assert ALL.words == "over all"
    assert Scope(workload="w", prompt_class="code", turn=1).words == "w, code, turn 2"


@pytest.mark.parametrize("arm", ["t", "c"])
def test_a_server_whose_mlx_version_is_unknown_may_differ_unless_it_is_the_same_one(arm: str) -> None:
    rows = frame()
    unknown = changed(rows, of(rows, arm), mlx_missing="unknown")
    shared = unknown.assign(environment_id="one")
    assert codes(differences(shared)) == ([], [], [])
    apart = changed(shared, of(rows, arm), environment_id="another")
    found = [code for kind in codes(differences(apart)) for code in kind]
    assert found == ["mlx_version_unknown"]


def test_servers_without_mlx_are_told_apart_from_those_with_it() -> None:
    rows = frame().assign(environment_id="one")
    without = changed(rows, of(rows), mlx_missing="none", environment_id="another")
    found = [code for kind in codes(differences(without)) for code in kind]
    assert found == ["mlx_in_one_only"]
    both = rows.assign(mlx_missing="none")
    assert codes(differences(changed(both, of(rows), environment_id="another"))) == ([], [], [])
