"""Which row of a run is the later one: a total order, whoever asks."""

import datetime as dt
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.transfer.precedence import TrialState, attempts, later_trial, more_advanced, run_key

START = dt.datetime(2026, 3, 1, 22, 0, tzinfo=dt.UTC)


def at(hours: float) -> str:
    return str((START + dt.timedelta(hours=hours)).replace(tzinfo=None))


def row(status: str, **values: Any) -> dict[str, Any]:
    return {"id": "r", "status": status, "created_at": at(0), "finished_at": None, "heartbeat_at": None} | values


def test_done_is_later_than_any_later_sign_of_life() -> None:
    assert more_advanced(row("done", finished_at=at(1)), row("running", heartbeat_at=at(9)))


def test_a_run_that_went_on_is_later_than_its_interruption() -> None:
    stale = row("interrupted", heartbeat_at=at(1))
    live = row("running", heartbeat_at=at(2))
    assert more_advanced(live, stale)
    assert not more_advanced(stale, live)


def test_before_there_were_heartbeats_the_start_of_its_process_decides() -> None:
    second = START.timestamp() + 3600
    assert more_advanced(row("running", runner_started_at=second), row("interrupted", runner_started_at=second - 60))


def test_the_status_further_along_and_then_the_row_that_knows_more() -> None:
    assert more_advanced(row("interrupted"), row("planned"))
    assert more_advanced(row("done", log_dir="/logs"), row("done"))


def test_equal_rows_are_not_later_than_each_other() -> None:
    assert not more_advanced(row("done"), row("done"))


ROWS = st.builds(
    row,
    st.sampled_from(["planned", "running", "interrupted", "cancelled", "failed", "done"]),
    finished_at=st.one_of(st.none(), st.integers(0, 3).map(at)),
    heartbeat_at=st.one_of(st.none(), st.integers(0, 3).map(at)),
    note=st.one_of(st.none(), st.sampled_from("ab")),
)


@given(st.lists(ROWS, min_size=3, max_size=3))
def test_the_order_is_total_so_that_merging_has_one_result(rows: list[dict[str, Any]]) -> None:
    one, two, three = rows
    assert more_advanced(one, two) + more_advanced(two, one) == (run_key(one) != run_key(two))
    assert max(max(one, two, key=run_key), three, key=run_key) == max(one, max(two, three, key=run_key), key=run_key)


def test_an_exclusion_is_later_than_none() -> None:
    excluded = ("excluded", "hot_start")
    assert later_trial(("done", None), excluded) == later_trial(excluded, ("done", None)) == excluded


def test_attempts_are_numbered_by_their_times() -> None:
    assert attempts({"0195-b", "0195-a", "0196-a"}) == {"0195-a": 0, "0195-b": 1, "0196-a": 2}


STATUSES = ["planned", "running", "interrupted", "cancelled", "failed", "done"]


@pytest.mark.parametrize(("earlier", "later"), list(pairwise(STATUSES)))
def test_at_one_time_the_status_further_along_is_the_later(earlier: str, later: str) -> None:
    assert more_advanced(row(later), row(earlier))
    assert not more_advanced(row(earlier), row(later))


@pytest.mark.parametrize("sign", ["heartbeat_at", "finished_at", "created_at"])
def test_any_sign_of_life_counts_before_the_status(sign: str) -> None:
    assert more_advanced(row("planned", **{sign: at(2)}), row("failed", heartbeat_at=at(1)))
    assert not more_advanced(row("planned", **{sign: at(1)}), row("failed", heartbeat_at=at(2)))


def test_times_are_read_as_utc() -> None:
    second = START.timestamp() + 3600
    assert run_key(row("running", heartbeat_at=at(1)))[1] == second
    assert run_key(row("running", runner_started_at=second + 1))[1] == second + 1


def test_the_row_that_knows_more_counts_after_the_status_and_then_its_text() -> None:
    assert more_advanced(row("failed"), row("cancelled", note="a", log_dir="/logs"))
    assert more_advanced(row("failed", note="b"), row("failed", note="a"))


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (("done", None), ("invalid", None)),
        (("excluded", "a"), ("excluded", "b")),
        (("done", "a"), ("excluded", "a")),
        (("invalid", None), ("excluded", "")),
    ],
)
def test_the_later_state_of_a_trial_is_the_same_whoever_asks(earlier: TrialState, later: TrialState) -> None:
    assert later_trial(earlier, later) == later_trial(later, earlier) == later
