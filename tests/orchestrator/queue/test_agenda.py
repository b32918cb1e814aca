"""The queue as it is shown before a night: places in time, the total, and the runs done by a given time."""

import datetime as dt
from dataclasses import replace

from rich.console import Console

from db.queue import Entry
from orchestrator.planning.estimate import Estimate
from orchestrator.queue.agenda import Slot, Waiting, agenda
from orchestrator.queue.night import Check
from orchestrator.views.queue_view import print_checks, print_queue, total_line

NOW = dt.datetime(2026, 11, 30, 22, 0).astimezone()


def waiting(run_id: str, hours: float | None, *, status: str = "planned", left: int = 340) -> Waiting:
    entry = Entry(
        run_id=run_id,
        experiment="blocks",
        host_id="h",
        host="mac",
        simulated=False,
        run_status=status,
        run_note=None,
        trials=0,
        position=1.0,
        added_at=NOW,
        state="waiting",
        note=None,
        checked_at=None,
        checked=None,
    )
    words = "by rates measured on this machine" if hours is not None else "not on this machine yet: qwen"
    duration = Estimate(duration_s=None if hours is None else hours * 3600, assumption=words)
    return Waiting(entry=entry, plan=None, trials=340, left=left, duration=duration)


def shown(slots: list[Slot], until: dt.datetime | None = None) -> str:
    out = Console(width=80)
    with out.capture() as capture:
        print_queue(slots, out, now=NOW, until=until)
    return capture.get()


def test_runs_follow_each_other_from_now_on() -> None:
    first, second = agenda([waiting("a", 2), waiting("b", 1.5)], now=NOW)
    assert (first.starts_at, first.ends_at) == (NOW, NOW + dt.timedelta(hours=2))
    assert (second.starts_at, second.ends_at) == (first.ends_at, NOW + dt.timedelta(hours=3.5))


def test_what_runs_already_comes_first_whatever_its_place() -> None:
    first, second = agenda([waiting("a", 2), replace(waiting("b", 1.5), runs=True)], now=NOW)
    assert [first.waiting.entry.run_id, second.waiting.entry.run_id] == ["b", "a"]
    assert first.ends_at == second.starts_at == NOW + dt.timedelta(hours=1.5)


def test_what_a_run_knows_of_its_own_end_goes_before_any_forecast() -> None:
    """`takes`, its end, all that follow and the total are by the run's own trials so far."""
    own = NOW + dt.timedelta(hours=4)
    running = replace(waiting("b", 3), runs=True, ends_at=own)
    slots = agenda([waiting("a", 2), running], now=NOW)
    assert [slot.ends_at for slot in slots] == [own, own + dt.timedelta(hours=2)]
    assert slots[0].waiting.duration.duration_s == 4 * 3600
    assert total_line(slots, now=NOW) == "2 runs, about 6 h: ends about 04:00"


def test_a_run_past_its_own_end_has_nothing_left() -> None:
    late = replace(waiting("b", 3), runs=True, ends_at=NOW - dt.timedelta(hours=1))
    assert [slot.ends_at for slot in agenda([late], now=NOW)] == [NOW]


def test_after_a_run_of_unknown_length_no_time_is_promised() -> None:
    slots = agenda([waiting("a", 2), waiting("b", None), waiting("c", 1)], now=NOW)
    assert [slot.ends_at is None for slot in slots] == [False, True, True]
    assert total_line(slots, now=NOW) == "3 runs: not all durations are known; the others take about 3 h"
    assert "not on this machine yet: qwen" in shown(slots)


def test_the_total_says_when_it_ends_and_what_is_done_by_then() -> None:
    slots = agenda([waiting("a", 5), waiting("b", 2 + 2 / 3)], now=NOW)
    assert total_line(slots, now=NOW) == "2 runs, about 7 h 40 min: ends about 05:40"
    at_seven, at_four = NOW + dt.timedelta(hours=9), NOW + dt.timedelta(hours=6)
    assert total_line(slots, now=NOW, until=at_seven) == "2 runs, about 7 h 40 min: ends about 05:40, before 07:00"
    assert total_line(slots, now=NOW, until=at_four) == (
        "2 runs, about 7 h 40 min: ends about 05:40; stops at 04:00 after the current round, 1 of 2 runs done by then"
    )


def test_a_run_that_was_interrupted_shows_what_is_left_of_it() -> None:
    text = shown(agenda([waiting("0123456789abcdef", 2, status="interrupted", left=40)], now=NOW))
    assert "456789abcdef" in text
    assert "40 of 340" in text
    assert "goes on" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_an_empty_queue_says_how_to_fill_it() -> None:
    assert "interlace queue add" in shown([])


def test_what_a_preflight_found_is_one_table() -> None:
    out = Console(width=80)
    entry = waiting("0123456789abcdef", 2).entry
    with out.capture() as capture:
        print_checks([Check(entry=entry, found={"a": None, "b": "not_engaged: plain"}, refused="arm b")], out)
        print_checks([Check(entry=entry, found={"a": None, "b": None}, refused=None)], out)
    assert "not_engaged: plain" in capture.get()
    assert "is left out of this night" in capture.get()
    assert "all 2 arms of 1 runs load, answer and show their evidence" in capture.get()
