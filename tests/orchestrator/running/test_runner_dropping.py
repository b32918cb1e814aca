"""Faults in a row: three park an arm, and a trial that is taken back counts as if it had failed at once."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.running.runner import FAULTS_IN_A_ROW, Streaks


def test_three_in_a_row_park_and_a_good_one_begins_anew() -> None:
    streaks = Streaks()
    found = [streaks.ended("a", faulty=faulty) for faulty in (True, True, False, True, True, True)]
    assert found == [False, False, False, False, False, True]


def test_arms_are_counted_apart() -> None:
    streaks = Streaks()
    assert not any(streaks.ended(arm, faulty=True) for arm in ("a", "b", "a", "b"))
    assert streaks.ended("a", faulty=True)


@given(st.lists(st.sampled_from(["good", "bad", "spoiled"]), max_size=12))
def test_a_trial_that_is_taken_back_counts_as_if_it_had_failed_at_once(trials: list[str]) -> None:
    late, at_once = Streaks(), Streaks()
    for trial in trials:
        expected = at_once.ended("a", faulty=trial != "good")
        found = late.ended("a", faulty=trial == "bad")
        if trial == "spoiled":
            found = late.spoiled("a")
        assert found == expected
    assert FAULTS_IN_A_ROW == 3
