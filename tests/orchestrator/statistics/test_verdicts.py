"""Each verdict has its conditions, tried in one order; every reason is named."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.effects import Effect
from orchestrator.statistics.comparability import Reason
from orchestrator.statistics.verdicts import Case, decide, lies_inside


def effect(ratio: float, low: float, high: float, rounds: int = 8) -> Effect:
    return Effect(
        ratio=ratio, ci_low=low, ci_high=high, p_value=0.01, rounds=rounds, wins=rounds, losses=0, typical=ratio
    )


CLEAR = Case(
    effect=effect(1.10, 1.05, 1.15),
    floor=effect(1.00, 0.98, 1.02),
    idle=(),
    confounders=(),
    family_p=0.01,
    family_size=3,
    carry_over=None,
    alpha=0.05,
    margin=0.02,
)
EQUAL = replace(CLEAR, effect=effect(1.001, 0.99, 1.012), family_p=0.9)
A_REASON = Reason(code="a_code", text="in words")


def verdict(case: Case, **changes: Any) -> tuple[str, list[str]]:
    said, reasons = decide(replace(case, **changes))
    return said, [reason.code for reason in reasons]


def test_what_is_clear_of_everything_is_supported_and_says_of_what() -> None:
    assert verdict(CLEAR) == ("supported", ["clear_of_1", "clear_of_floor", "clear_in_family"])
    assert verdict(CLEAR, floor=None) == ("supported", ["clear_of_1", "no_floor", "clear_in_family"])
    assert verdict(CLEAR, family_p=None) == ("supported", ["clear_of_1", "clear_of_floor"])
    texts = " ".join(reason.text for reason in decide(CLEAR)[1])
    assert "1.050 to 1.150" in texts
    assert "the family of 3 comparisons" in texts


def test_a_slower_arm_is_supported_too() -> None:
    assert verdict(CLEAR, effect=effect(0.9, 0.86, 0.94))[0] == "supported"


def test_the_order_of_what_decides() -> None:
    changes: dict[str, Any] = {"idle": (A_REASON,), "confounders": (A_REASON,), "effect": None, "squares": 2}
    assert verdict(CLEAR, **changes) == ("not_engaged", ["a_code"])
    del changes["idle"]
    assert verdict(CLEAR, **changes) == ("confounded", ["a_code"])
    del changes["confounders"]
    assert verdict(CLEAR, **changes) == ("underpowered", ["too_few_rounds"])


@pytest.mark.parametrize(
    ("rounds", "said", "words"),
    [(5, "underpowered", "5 complete rounds; a level of 0.05 needs 6"), (6, "supported", "clear of 1")],
)
def test_six_rounds_are_the_least(rounds: int, said: str, words: str) -> None:
    found, reasons = decide(replace(CLEAR, effect=effect(1.1, 1.05, 1.15, rounds)))
    assert found == said
    assert words in reasons[0].text


def test_no_round_and_one_round_are_written_in_words() -> None:
    assert decide(replace(CLEAR, effect=None))[1][0].text.startswith("0 complete rounds;")
    assert decide(replace(CLEAR, effect=effect(1.1, 0.0, 9.9, 1)))[1][0].text.startswith("1 complete round;")


@pytest.mark.parametrize(("squares", "said"), [(5, "underpowered"), (6, "supported"), (None, "supported")])
def test_a_square_is_one_exchange(squares: int | None, said: str) -> None:
    found, reasons = decide(replace(CLEAR, squares=squares))
    assert found == said
    assert ("5 Williams squares" in reasons[0].text) == (squares == 5)


def test_an_interval_inside_the_margin_is_no_difference() -> None:
    assert verdict(EQUAL) == ("no_difference", ["inside_margin"])


@pytest.mark.parametrize(
    ("low", "high", "inside"),
    [
        (0.981, 1.019, True),
        (0.98, 1.01, False),  # the margin itself is outside
        (0.979, 1.01, False),
        (0.99, 1.0203, True),  # as far above as below on the log scale: 1 / 0.98
        (0.99, 1.0205, False),
    ],
)
def test_the_margin_is_the_same_either_way(low: float, high: float, *, inside: bool) -> None:
    assert lies_inside(effect(1.0, low, high), 0.02) == inside


def test_what_differs_although_the_mean_does_not_forbids_no_difference() -> None:
    assert verdict(EQUAL, unlike=(A_REASON,)) == ("could_be_drift", ["a_code"])
    assert verdict(CLEAR, unlike=(A_REASON,))[0] == "supported"


def test_a_limit_forbids_both() -> None:
    said, codes = verdict(EQUAL, limits=(A_REASON,))
    assert said == "could_be_drift"
    assert "a_code" in codes
    assert verdict(CLEAR, limits=(A_REASON,)) == ("could_be_drift", ["a_code"])
    assert verdict(EQUAL, limits=(A_REASON,), unlike=(replace(A_REASON, code="b"),))[1] == ["b", "a_code"]


def test_a_doubt_forbids_supported_alone() -> None:
    assert verdict(CLEAR, doubts=(A_REASON,)) == ("could_be_drift", ["a_code"])
    assert verdict(EQUAL, doubts=(A_REASON,))[0] == "no_difference"


def test_carry_over_forbids_supported_and_leaves_no_difference() -> None:
    assert verdict(CLEAR, carry_over=A_REASON) == ("could_be_drift", ["a_code"])
    assert verdict(EQUAL, carry_over=A_REASON)[0] == "no_difference"


@pytest.mark.parametrize(
    "changed",
    [
        effect(1.10, 1.00, 1.2),  # the interval's end is part of it
        effect(1.10, 0.97, 1.2),
        effect(0.90, 0.8, 1.0),
        effect(0.90, 0.8, 1.1),
    ],
)
def test_an_interval_with_1_in_it_could_be_drift(changed: Effect) -> None:
    assert verdict(CLEAR, effect=changed, floor=None) == ("could_be_drift", ["interval_includes_1"])


@pytest.mark.parametrize(
    ("own", "floor"),
    [
        (effect(1.05, 1.03, 1.07), effect(1.0, 0.94, 1.06)),  # the floor's interval holds the ratio
        (effect(1.10, 1.02, 1.19), effect(1.03, 0.99, 1.07)),  # the interval holds the floor's ratio
        (effect(1.05, 1.03, 1.07), effect(1.0, 0.94, 1.05)),  # ends are part of both
        (effect(1.10, 1.02, 1.19), effect(1.02, 0.99, 1.07)),
        (effect(0.95, 0.93, 0.97), effect(1.0, 0.95, 1.06)),
        (effect(0.95, 0.93, 0.97), effect(0.97, 0.96, 0.99)),
    ],
)
def test_an_effect_as_large_as_the_floor_could_be_drift(own: Effect, floor: Effect) -> None:
    assert verdict(CLEAR, effect=own, floor=floor) == ("could_be_drift", ["inside_floor"])


def test_intervals_that_only_touch_are_clear() -> None:
    assert verdict(CLEAR, effect=effect(1.06, 1.02, 1.10), floor=effect(1.0, 0.96, 1.04))[0] == "supported"


def test_one_of_many_must_stand_out_among_them() -> None:
    assert verdict(CLEAR, family_p=0.05)[0] == "supported"
    assert verdict(CLEAR, family_p=0.051) == ("could_be_drift", ["one_of_many"])
    # What is not clear by itself needs no family to doubt it.
    assert verdict(CLEAR, family_p=0.5, effect=effect(1.1, 0.97, 1.2), floor=None)[1] == ["interval_includes_1"]
