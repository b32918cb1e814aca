"""A bisection's decisions: the right release by marks that are right, a range where some are missing, no loop."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.effects import Effect
from orchestrator.schedule import minimum_rounds
from orchestrator.statistics.bisection import (
    Mark,
    answer,
    bounds,
    classify,
    next_candidate,
    rounds_needed,
    step_level,
    steps_at_most,
)

LEVEL = 0.003


def effect(ratio: float, p_value: float) -> Effect:
    return Effect(
        ratio=ratio, ci_low=0.0, ci_high=math.inf, p_value=p_value, rounds=20, wins=0, losses=20, typical=ratio
    )


@pytest.mark.parametrize(
    ("of_good", "of_bad", "p_good", "p_bad", "mark"),
    [
        (1.0, 1 / 0.95, 0.6, 0.001, "good"),
        (0.95, 1.0, 0.001, 0.6, "bad"),
        (0.975, 0.975 / 0.95, 0.001, 0.001, "between"),
        (0.975, 0.975 / 0.95, 0.2, 0.2, "undecided"),
        (0.998, 0.998 / 0.95, 0.001, 0.001, "good"),  # proven and tiny: not the change that is searched for
        (0.953, 0.953 / 0.95, 0.001, 0.001, "bad"),
        (0.90, 0.90 / 0.95, 0.001, 0.001, "between"),  # slower than both ends
    ],
)
def test_a_candidate_is_classed_by_both_tests(
    of_good: float, of_bad: float, p_good: float, p_bad: float, mark: Mark
) -> None:
    assert classify(effect(of_good, p_good), effect(of_bad, p_bad), level=LEVEL) == mark


def search(releases: list[str], marks_of: dict[str, Mark]) -> tuple[dict[str, Mark], int]:
    marks: dict[str, Mark] = {}
    while (candidate := next_candidate(releases, marks)) is not None:
        assert candidate not in marks, "a release is tried once"
        marks[candidate] = marks_of[candidate]
    return marks, len(marks)


@given(st.integers(2, 60), st.data())
def test_true_marks_name_the_release(count: int, data: st.DataObject) -> None:
    releases = [str(number) for number in range(count)]
    place = data.draw(st.integers(1, count - 1))
    truth: dict[str, Mark] = {each: "good" if int(each) < place else "bad" for each in releases}
    marks, steps = search(releases, truth)
    assert answer(releases, marks).first == (str(place),)
    assert answer(releases, marks).last_good == str(place - 1)
    assert steps <= steps_at_most(count)


@given(st.integers(2, 40), st.data())
def test_what_is_passed_over_widens_the_answer_and_never_falsifies_it(count: int, data: st.DataObject) -> None:
    releases = [str(number) for number in range(count)]
    place = data.draw(st.integers(1, count - 1))
    unknown = data.draw(st.sets(st.integers(1, max(count - 2, 1))))
    truth: dict[str, Mark] = {each: "good" if int(each) < place else "bad" for each in releases}
    truth |= {str(number): "skipped" for number in unknown}
    marks, _ = search(releases, truth)
    found = answer(releases, marks)
    assert str(place) in found.first
    assert all(int(each) in unknown for each in found.first[:-1])


def test_a_middle_that_is_neither_is_a_second_change() -> None:
    releases = ["a", "b", "c", "d", "e"]
    truth: dict[str, Mark] = {"b": "good", "c": "between", "d": "bad"}
    marks, _ = search(releases, truth)
    found = answer(releases, marks)
    assert (found.first, found.more_changes) == (("c",), ("c",))


def test_two_releases_need_no_candidate() -> None:
    assert next_candidate(["a", "b"], {}) is None
    assert answer(["a", "b"], {}).first == ("b",)


def test_contradicting_marks_are_no_search() -> None:
    with pytest.raises(ValueError, match="marked good"):
        bounds(["a", "b", "c", "d"], {"b": "bad", "c": "good"})


@given(st.integers(2, 200))
def test_all_tests_together_keep_the_level(count: int) -> None:
    level = step_level(count, alpha=0.05)
    assert level * (1 + 4 * steps_at_most(count)) <= 0.05 + 1e-12
    assert rounds_needed(level) >= minimum_rounds(level)
