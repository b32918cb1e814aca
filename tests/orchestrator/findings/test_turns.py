"""The second turn, and the counter that may lie."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.findings.records import Answer
from orchestrator.findings.turns import TtftRatio, arm_turns, late_turns
from orchestrator.findings.values import ArmTurns, Interval
from tests.orchestrator.findings.making import answer


def conversation(of: str = "plain", *, ttft_s: float, cached: int | None, **second: Any) -> list[Answer]:
    """A first turn of 1000 tokens in 10 s, and a second of 1050."""
    first: dict[str, Any] = {
        "workload": "two_turns",
        "prompt_id": "t/0",
        "prompt_tokens": 1000,
        "ttft_s": 10.0,
        "prefill_tps": 100.0,
    }
    later: dict[str, Any] = {"prompt_tokens": 1050, "ttft_s": ttft_s, "cached_tokens": cached, "turn": 1}
    rate = None if cached is None else (1050 - cached) / ttft_s
    first_cached = None if cached is None else 0
    return [
        answer(of, **(first | {"cached_tokens": first_cached, "prefill_tps": None if cached is None else 100.0})),
        answer(of, **(first | later | {"prefill_tps": rate} | second)),
    ]


def told(*answers: Answer) -> ArmTurns:
    (one,) = arm_turns(["plain"], answers, ratios={})
    return one


def test_a_turn_that_reuses_the_prefix() -> None:
    one = told(*conversation(ttft_s=0.5, cached=1010))
    second = one.turns[1]
    assert (second.cached_tokens.value, second.new_tokens.value) == (1010, 40)
    assert second.prefill_tps.value == pytest.approx(80)  # of the new tokens only
    assert (one.flags, one.remarks) == ((), ())


def test_a_prefix_that_is_lost() -> None:
    one = told(*conversation(ttft_s=10.4, cached=0))
    assert one.flags == ("prefix_lost",)
    assert one.remarks == (
        "turn 2: in 1 of 1 conversations 0 of the 1000 tokens of the turn before came from the cache",
    )


def turns_of(*counts: tuple[int, int], **same: Any) -> list[Answer]:
    """A conversation whose turns have so many prompt tokens, so many of them cached, at 100 new tokens per second."""
    return [
        answer(turn=turn, prompt_tokens=prompt, cached_tokens=cached, ttft_s=(prompt - cached) / 100, **same)
        for turn, (prompt, cached) in enumerate(counts)
    ]


def test_the_turn_before_is_the_one_before() -> None:
    """The third turn finds what the first one left, and nothing of the long second one."""
    one = told(*turns_of((1000, 0), (20_000, 990), (20_100, 990)))
    assert one.flags == ("prefix_lost",)
    assert one.remarks == (
        "turn 3: in 1 of 1 conversations 990 of the 20000 tokens of the turn before came from the cache",
    )


def test_a_prefix_that_is_lost_in_some_conversations_is_reported() -> None:
    """The medians of five look well. Conversations are distinguished by their round too."""
    found = [turns_of((1000, 0), (1100, 990), prompt_id=f"t/{number}") for number in range(3)]
    found += [turns_of((1000, 0), (1100, 0), prompt_id="t/0", round=place) for place in (1, 2)]
    one = told(*(each for held in found for each in held))
    assert one.turns[1].cached_tokens.value == 990
    assert one.flags == ("prefix_lost",)
    assert one.remarks == (
        "turn 2: in 2 of 5 conversations 0 of the 1000 tokens of the turn before came from the cache",
    )


@pytest.mark.parametrize("other", [{"prompt_id": "t/1"}, {"round": 1}, {"is_aa": True}])
def test_an_earlier_turn_of_another_conversation_is_not_the_one_before(other: dict[str, Any]) -> None:
    assert told(*turns_of((900, 0), (1000, 890)), *turns_of((9000, 0), (9100, 8990), **other)).flags == ()


def test_a_counter_is_not_blamed_for_turns_that_lost_their_prefix() -> None:
    """However slow the machine was then; where most kept it, the counter is checked against the time all the same."""
    assert told(*conversation(ttft_s=40.0, cached=0)).flags == ("prefix_lost",)
    kept = [replace(each, round=place) for place in (1, 2) for each in conversation(ttft_s=10.2, cached=1000)]
    assert told(*conversation(ttft_s=10.2, cached=0), *kept).flags == ("prefix_lost", "cached_but_slow")


def test_a_counter_that_says_nothing_was_cached_while_the_time_says_it_was() -> None:
    one = told(*conversation(ttft_s=0.4, cached=0, flags=("cached_zero_but_fast",)))
    assert one.flags == ("cached_zero_but_fast",)  # and not that the prefix was lost
    assert "reports 0 in 1 answers" in one.remarks[0]


def test_a_counter_that_says_cached_while_the_time_is_that_of_a_full_prefill() -> None:
    one = told(*conversation(ttft_s=10.2, cached=1000))
    assert one.flags == ("cached_but_slow",)
    assert "full prefill (10.5 s)" in one.remarks[0]


@pytest.mark.parametrize(
    ("ttft_s", "words"), [(0.4, "the prefix was reused"), (10.2, "it was processed again"), (5.0, "does not report")]
)
def test_a_counter_that_is_missing_is_not_zero(ttft_s: float, words: str) -> None:
    one = told(*conversation(ttft_s=ttft_s, cached=None))
    assert one.flags == ("cached_unknown",)
    assert one.turns[1].cached_tokens.value is None
    assert one.turns[1].new_tokens.value is None
    assert one.turns[1].prefill_tps.value is None
    assert words in one.remarks[0]


def test_short_prompts_do_not_count_among_the_first_turns() -> None:
    one = told(*conversation(ttft_s=0.5, cached=1010), answer("plain", ttft_s=0.01))
    assert one.turns[0].generations == 1
    assert one.turns[0].ttft_s == 10.0


def test_the_ratio_stands_beside_its_turn() -> None:
    interval = Interval(ratio=12.0, ci_low=11.0, ci_high=13.0, p_value=0.01, rounds=8)
    ratios = {("two_turns", "spec", 1): TtftRatio(interval=interval, verdict="supported")}
    answers = [*conversation(ttft_s=0.5, cached=1010), *conversation("spec", ttft_s=6.0, cached=0)]
    plain, spec = arm_turns(["plain", "spec"], answers, ratios=ratios)
    assert [turn.ttft_ratio for turn in plain.turns] == [None, None]
    assert (spec.turns[1].ttft_ratio, spec.turns[1].verdict) == (interval, "supported")


def test_a_run_without_second_turns_has_none() -> None:
    assert arm_turns(["plain"], [answer("plain")], ratios={}) == ()


def late(first: float | None, second: tuple[float, float | None], *, cached: int | None = 0) -> tuple[str, ...]:
    """The alarm about an arm whose two turns start so many times as late as the control's."""

    def ratio(value: float, low: float | None) -> TtftRatio:
        return TtftRatio(
            interval=Interval(ratio=value, ci_low=low, ci_high=2 * value, p_value=0.01, rounds=8), verdict="supported"
        )

    ratios = {("two_turns", "spec", 1): ratio(*second)}
    ratios |= {} if first is None else {("two_turns", "spec", 0): ratio(first, first)}
    answers = [*conversation(ttft_s=0.5, cached=1010), *conversation("spec", ttft_s=10.0, cached=cached)]
    return late_turns(arm_turns(["plain", "spec"], answers, ratios=ratios), control="plain")


def test_a_turn_that_starts_far_later_than_the_first_one_lets_expect_is_an_alarm() -> None:
    (said,) = late(1.9, (16.5, 15.7))
    assert said == (
        "turn 2 of two_turns starts 16.5 times as late with spec as with plain, 0 of 1050 prompt tokens from its cache"
    )
    (unknown,) = late(None, (12.0, 9.0), cached=None)
    assert unknown.endswith("as with plain")


@pytest.mark.parametrize(
    ("first", "second"),
    [(2.0, (2.1, 1.9)), (0.5, (2.2, 1.8)), (1.0, (12.0, None)), (6.0, (12.5, 11.9))],
    ids=["like the first", "not surely", "no interval", "the first is slow too"],
)
def test_other_turns_are_none(first: float, second: tuple[float, float | None]) -> None:
    assert late(first, second) == ()
