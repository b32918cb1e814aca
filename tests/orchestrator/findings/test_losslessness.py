"""Do two arms write the same?"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.findings.losslessness import first_difference, losslessness
from orchestrator.findings.records import Answer, ArmRecord, Probed
from orchestrator.findings.values import ArmLosslessness, Losslessness
from orchestrator.report.sections.same_answers import MOST_REASONS
from tests.orchestrator.findings.making import answer, arm, drafting, shown

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


def test_the_probe_distinguishes_a_near_tie_from_a_real_difference() -> None:
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
    assert other.reason == "the probe looked at token 3, the answers part at token 2"  # counted from 1, as shown


FAILED = Probed(
    token_index=2,
    control_text=None,
    arm_text=None,
    context_text=None,
    top=(),
    gap=None,
    rounding=None,
    verdict="unknown",
    reason="the probes' 20 s were used up before this question",
)


def test_a_probe_that_failed_leaves_the_texts_that_the_answers_have() -> None:
    answers = answer("plain", [5, 6, 7], text="the quick dog"), answer("spec", [5, 6, 8], text="the quick fox")
    one = of(found(*answers, probes={("spec", "quick/0", 0): FAILED}), "spec").outcomes[0].divergence
    assert one is not None
    assert (one.context_text, one.control_text, one.arm_text) == ("the quick ", "dog", "fox")
    assert (one.verdict, one.reason) == ("unknown", FAILED.reason)


def test_where_an_answer_ends_it_has_no_text() -> None:
    answers = answer("plain", [5, 6, 7], text="the quick dog"), answer("spec", [5, 6], text="the quick")
    one = of(found(*answers, probes={("spec", "quick/0", 0): FAILED}), "spec").outcomes[0].divergence
    assert one is not None
    assert (one.control_text, one.arm_text, one.arm_token) == (" dog", None, None)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ((answer("plain", [1]), answer("plain", [2]), answer("spec", [1])), "plain does not repeat itself"),
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


def test_an_arm_that_does_not_repeat_itself_is_unknown() -> None:
    mine = answer("spec", [1, 3]), answer("spec", [1, 3]), answer("spec", [1, 4])
    one = of(found(answer("plain", [1, 3]), answer("plain", [1, 3]), *mine), "spec")
    assert (one.identical, one.differs, one.unknown, one.deterministic) == (0, 0, 1, False)
    assert one.outcomes[0].reason == "it does not repeat itself (differs from its own first answer at token 2)"


def test_a_server_that_does_not_repeat_itself_is_known_by_its_bytes() -> None:
    own = of(found(answer("plain", None, text="the dog"), answer("plain", None, text="the fox")), "plain")
    assert (own.unknown, own.deterministic) == (1, False)
    assert own.outcomes[0].reason == "it does not repeat itself (differs from its own first answer at character 5)"


def test_answers_that_are_not_stored_do_not_repeat_each_other() -> None:
    """Nor do they differ."""
    answers = [answer(of_arm, None, text=None) for of_arm in ("plain", "plain", "spec", "spec")]
    assert [(one.unknown, one.deterministic) for one in found(*answers).arms] == [(1, None)] * 2


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
    assert "an earlier turn's answers differ already" in str(one.outcomes[1].reason)


def test_a_turn_after_one_that_is_unknown_is_unknown() -> None:
    """A control that does not repeat its first turn asks another second turn each time."""

    def held(of_arm: str, first: str, second: str) -> list[Answer]:
        sha256 = f"after {first}"
        return [
            answer(of_arm, None, text=first),
            answer(of_arm, None, text=second, turn=1, prompt_sha256=sha256),
            answer(of_arm, None, text=second, turn=2, prompt_sha256=sha256),
        ]

    control = held("plain", "one", "more"), held("plain", "two", "less")
    result = found(*control[0], *control[1], *held("spec", "one", "other"))
    for name in ("plain", "spec"):
        outcomes = of(result, name).outcomes
        assert [each.outcome for each in outcomes] == ["unknown"] * 3
        assert {each.reason for each in outcomes[1:]} == {
            "an earlier turn is unknown, so this turn may answer another conversation"
        }


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


# ---- as it is shown ----


def test_each_reason_of_an_unknown_difference_is_reported_once_with_its_count() -> None:
    prompts = [f"quick/{number}" for number in range(3)]
    answers = [answer("plain", [5, 6, 7], text="the quick dog", prompt_id=prompt) for prompt in prompts]
    answers += [answer("spec", [5, 6, 8], text="the quick fox", prompt_id=prompt) for prompt in prompts]
    probes = {("spec", prompt, 0): FAILED for prompt in prompts[1:]}
    assert shown(found(*answers, probes=probes)) == (
        f"spec: 2 unknown: {FAILED.reason}.",
        "spec: 1 unknown: not probed: the model was not asked for its probabilities there.",
    )


def test_an_arm_that_stands_twice_is_distinguished() -> None:
    arms = (arm("plain"), arm("4bit", weights="four"), drafting("4bit spec", weights="four"))
    said = shown(found(answer("plain", [1]), answer("4bit", [2]), answer("4bit spec", [3]), arms=arms))
    assert [line.split(":")[0] for line in said if "not probed" in line] == [
        "4bit",
        "4bit spec",
        "4bit spec beside 4bit",
    ]


def test_reasons_without_end_are_cut() -> None:
    """Each prompt may have one of its own."""
    answers = [answer("plain", range(9), prompt_id=f"quick/{place}") for place in range(9)]
    answers += [answer("spec", range(9), prompt_id=f"quick/{place}") for place in range(9)]
    answers += [answer("spec", [*range(place), 99], prompt_id=f"quick/{place}") for place in range(9)]
    said = shown(found(*answers))
    assert len(said) == MOST_REASONS + 1
    assert said[0] == "spec: 1 not compared: it does not repeat itself (differs from its own first answer at token 1)."
    assert said[-1] == f"spec: {9 - MOST_REASONS} not compared for other reasons; see --format json."
