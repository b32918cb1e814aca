"""The moment that `--until` names, on days with 24 hours and on days when the clocks change."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.queue.clock_times import next_time, spoken

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, fold: int = 0) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold)


def utc(moment: dt.datetime) -> dt.datetime:
    """Times that come twice are equal to nothing in another zone."""
    return moment.astimezone(dt.UTC)


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("07:00", "2026-11-30 22:14", "2026-12-01 07:00"),
        ("7:00", "2026-11-30 22:14", "2026-12-01 07:00"),
        ("7", "2026-11-30 06:59", "2026-11-30 07:00"),
        ("07:00", "2026-11-30 07:00", "2026-12-01 07:00"),
        ("07:00 tomorrow", "2026-11-30 01:00", "2026-12-01 07:00"),
        (" Tomorrow 7:30 ", "2026-11-30 23:00", "2026-12-01 07:30"),
        ("00:15", "2026-12-31 23:50", "2027-01-01 00:15"),
        ("07:00", "2026-03-28 23:00", "2026-03-29 07:00"),  # the clock is set forward in between
        ("07:00", "2026-10-24 23:00", "2026-10-25 07:00"),  # and back
    ],
)
def test_the_next_time_that_the_clock_shows_it(text: str, now: str, expected: str) -> None:
    assert next_time(text, now=at(now), zone=BERLIN) == at(expected)


def test_a_night_that_loses_an_hour_is_an_hour_shorter() -> None:
    now = at("2026-03-28 23:00")
    assert next_time("07:00", now=now, zone=BERLIN) - now.astimezone(dt.UTC) == dt.timedelta(hours=7)
    now = at("2026-10-24 23:00")
    assert next_time("07:00", now=now, zone=BERLIN) - now.astimezone(dt.UTC) == dt.timedelta(hours=9)


def test_of_a_time_that_comes_twice_the_one_ahead_is_meant() -> None:
    assert next_time("02:30", now=at("2026-10-25 02:10"), zone=BERLIN) == utc(at("2026-10-25 02:30"))
    assert next_time("02:30", now=at("2026-10-25 02:45"), zone=BERLIN) == utc(at("2026-10-25 02:30", fold=1))


def test_a_time_that_is_skipped_is_an_hour_later_on_the_wall() -> None:
    found = next_time("02:30", now=at("2026-03-29 01:00"), zone=BERLIN)
    assert found.astimezone(BERLIN).strftime("%H:%M") in ("01:30", "03:30")
    assert found > at("2026-03-29 01:00")


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "7:60", "07:00:00", "7am", "-1:00", "tomorrow", "tomorrow 7 tomorrow"]
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match=r"^--until .*write 07:00"):
        next_time(text, now=at("2026-11-30 22:14"), zone=BERLIN)


@given(
    st.datetimes(min_value=dt.datetime(2020, 1, 1), max_value=dt.datetime(2030, 1, 1)),  # noqa: DTZ001 - made aware below
    st.integers(0, 23),
    st.integers(0, 59),
)
def test_it_lies_ahead_by_a_day_at_most(now: dt.datetime, hour: int, minute: int) -> None:
    aware = now.replace(tzinfo=BERLIN)
    ahead = next_time(f"{hour}:{minute:02}", now=aware, zone=BERLIN) - aware.astimezone(dt.UTC)
    assert dt.timedelta(0) < ahead <= dt.timedelta(hours=26)


def test_moments_are_written_as_short_as_they_are_clear() -> None:
    now = at("2026-11-30 22:14")
    assert spoken(at("2026-12-01 05:40"), now=now, zone=BERLIN) == "05:40"
    assert spoken(at("2026-12-02 05:40"), now=now, zone=BERLIN) == "Wed 05:40"
    assert spoken(at("2026-12-20 05:40"), now=now, zone=BERLIN) == "2026-12-20 05:40"


def test_without_a_zone_the_machines_own_is_meant() -> None:
    now = dt.datetime.now(dt.UTC)
    found = next_time("07:00", now=now).astimezone()
    assert (found.hour, found.minute) == (7, 0)
