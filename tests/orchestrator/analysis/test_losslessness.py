"""Do two arms write the same?"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.findings import ArmLosslessness, Losslessness
from orchestrator.analysis.losslessness import first_difference, losslessness
from orchestrator.analysis.records import Answer, ArmRecord, Probed
from tests.orchestrator.analysis.making import answer, arm, drafting

TOKENS = st.lists(st.integers(0, 3), max_size=12)
BOTH = (arm("plain"), drafting("spec"))


def found(*answers: Answer, arms: tuple[ArmRecord, ...] = BOTH, probes: Any = None) -> Losslessness:
    result = losslessness(arms, answers, control="plain", probes=probes or {})
    assert result is not None
    return result


def of(result: Losslessness, name: str, against: str = "plain") -> ArmLosslessness:
    (one,) = (each for each in result.arms if (each.arm, each.against) == (name, against))
    return one


@given(TOKENS, TOKENS)
def test_the_first_difference_is_the_first_place_that_differs(left: list[int], right: list[int]) -> None:
    place = first_difference(left, right)
    assert place == first_difference(right, left)
    if place is None:
        assert left == right
    else:
        assert left[:place] == right[:place]
        assert left[place : place + 1] != right[place : place + 1]


@given(TOKENS, st.integers(0, 11), st.integers(4, 9))
def test_one_changed_token_is_found_where_it_was_changed(tokens: list[int], place: int, other: int) -> None:
    if place < len(tokens):
        changed = [*tokens[:place], other, *tokens[place + 1 :]]
        assert first_difference(tokens, changed) == place


def test_equal_token_ids_are_identical_and_repeats_make_it_deterministic() -> None:
    one = of(found(answer("plain"), answer("plain"), answer("spec"), answer("spec")), "spec")
    assert (one.identical, one.differs, one.unknown, one.deterministic) == (1, 0, 0, True)
    assert one.outcomes[0].compared_by == "token_ids"


def test_a_difference_names_place_both_tokens_and_what_the_texts_go_on_with() -> None:
    mine = answer("spec", [5, 6, 8], text="the quick fox")
    one = of(found(answer("plain", [5, 6, 7], text="the quick dog"), mine), "spec")
    divergence = one.outcomes[0].divergence
    assert divergence is not None
    assert (one.identical, one.differs, one.earliest) == (0, 1, 2)
    assert (divergence.token_index, divergence.control_token, divergence.arm_token) == (2, 7, 8)
    assert (divergence.context_text, divergence.control_text, divergence.arm_text) == ("the quick ", "dog", "fox")
    assert (divergence.verdict, divergence.top) == ("unknown", ())
    assert "not probed" in divergence.reason
    assert one.deterministic is None  # answered once


def test_an_answer_that_ends_early_differs_where_it_ends() -> None:
    one = of(found(answer("plain", [5, 6, 7]), answer("spec", [5, 6])), "spec").outcomes[0].divergence
    assert one is not None
    assert (one.token_index, one.control_token, one.arm_token) == (2, 7, None)


def test_the_probe_tells_a_near_tie_from_a_real_difference() -> None:
    probe = Probed(
        token_index=2,
        control_text=" dog",
        arm_text=" fox",
        context_text="quick",
        top=((7, " dog", -0.69), (8, " fox", -0.70)),
        gap=0.01,
        rounding=0.02,
        verdict="near_tie",
        reason="the gap is within the rounding",
    )
    answers = answer("plain", [5, 6, 7]), answer("spec", [5, 6, 8])
    one = of(found(*answers, probes={("spec", "quick/0", 0): probe}), "spec")
    divergence = one.outcomes[0].divergence
    assert divergence is not None
    assert (one.near_ties, one.real, divergence.verdict, divergence.gap) == (1, 0, "near_tie", 0.01)
    assert [top.text for top in divergence.top] == [" dog", " fox"]
    # A probe of another place says nothing of this one.
    elsewhere = found(answer("plain", [5, 9, 7]), answer("spec", [5, 6, 8]), probes={("spec", "quick/0", 0): probe})
    other = of(elsewhere, "spec").outcomes[0].divergence
    assert other is not None
    assert (other.verdict, other.gap) == ("unknown", None)
    assert "looked at token 2" in other.reason


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ((answer("plain", [1]), answer("plain", [2]), answer("spec", [1])), "plain does not answer alike every time"),
        ((answer("plain"), answer("spec", prompt_sha256="other")), "the arms read different prompts"),
        ((answer("plain"), answer("spec", None, text=None)), "an answer's text is not stored"),
        ((answer("plain"), answer("spec", prompt_id="quick/9")), "the other arm has no answer to it"),
    ],
)
def test_what_cannot_be_compared_is_unknown_with_its_reason(answers: tuple[Answer, ...], reason: str) -> None:
    one = of(found(*answers), "spec")
    assert (one.identical, one.differs, one.unknown) == (0, 0, 1)
    assert reason in str(one.outcomes[0].reason)
    assert one.outcomes[0].compared_by is None


def test_an_arm_that_does_not_repeat_itself_differs_and_is_not_deterministic() -> None:
    one = of(found(answer("plain", [1]), answer("plain", [1]), answer("spec", [1]), answer("spec", [2])), "spec")
    assert (one.differs, one.deterministic) == (1, False)


def test_a_server_is_compared_by_its_bytes() -> None:
    same = of(found(answer("plain", [1, 2]), answer("spec", None, text="w1 w2")), "spec")
    assert (same.identical, same.outcomes[0].compared_by) == (1, "text")
    other = of(found(answer("plain", [1, 2]), answer("spec", None, text="w1 x")), "spec").outcomes[0].divergence
    assert other is not None
    assert (other.token_index, other.character_index, other.control_text, other.arm_text) == (None, 3, "w2", "x")
    assert "bytes" in other.reason


def test_a_turn_after_one_that_differs_answers_another_conversation() -> None:
    first = answer("plain", [1]), answer("spec", [2])
    second = answer("plain", [3], turn=1), answer("spec", [3], turn=1, prompt_sha256="other")
    one = of(found(*first, *second), "spec")
    assert [each.outcome for each in one.outcomes] == ["differs", "unknown"]
    assert "another conversation" in str(one.outcomes[1].reason)


@pytest.mark.parametrize(("temperature", "words"), [(0.6, "temperature 0.6"), (None, "an unknown temperature")])
def test_only_greedy_answers_are_compared(temperature: float | None, words: str) -> None:
    arms = (arm("plain"), drafting("spec", temperature=temperature))
    one = of(found(answer("plain"), answer("spec"), arms=arms), "spec")
    assert one.unknown == 1
    assert words in str(one.note)


def test_an_arm_of_other_weights_is_held_against_the_plain_arm_of_its_own() -> None:
    arms = (arm("plain"), arm("4bit", weights="four"), drafting("4bit spec", weights="four"))
    result = found(answer("plain", [1]), answer("4bit", [2]), answer("4bit spec", [2]), arms=arms)
    assert of(result, "4bit spec").differs == 1
    assert "other weights" in str(of(result, "4bit spec").note)
    assert of(result, "4bit spec", against="4bit").identical == 1


def test_one_arm_that_answered_once_has_nothing_to_compare() -> None:
    assert losslessness((arm("plain"),), [answer("plain")], control="plain", probes={}) is None
    assert losslessness((arm("plain"),), [answer("plain")] * 2, control="plain", probes={}) is not None
