"""The stopwatch stamps what comes, when it comes, and spreads a stamp over the tokens that share it."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.stopwatch import Stopwatch, Tick


class Hands:
    """A clock that moves when told."""

    def __init__(self, now_ns: int = 5_000_000) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns


def answer(hands: Hands, pauses_us: Sequence[int]) -> Callable[[Tick], None]:
    """Return a function that ticks after each of these pauses."""

    def ticking(tick: Tick) -> None:
        for pause in pauses_us:
            hands.now_ns += pause * 1000
            tick()

    return ticking


@given(st.lists(st.integers(min_value=0, max_value=10**9)))
def test_stamps_are_the_time_since_the_start(pauses_us: list[int]) -> None:
    hands = Hands()
    stopwatch = Stopwatch(hands)
    stopwatch.time(answer(hands, pauses_us))
    assert stopwatch.stamps_us() == [sum(pauses_us[: i + 1]) for i in range(len(pauses_us))]


def test_what_the_answer_takes_before_its_first_tick_is_timed() -> None:
    hands = Hands()

    def slow_start(tick: Tick) -> None:
        hands.now_ns += 7_000
        tick()

    stopwatch = Stopwatch(hands)
    hands.now_ns += 1_000_000  # between making the watch and using it
    stopwatch.time(slow_start)
    assert stopwatch.stamps_us() == [7]


def test_tokens_of_one_evaluation_share_its_stamp() -> None:
    hands = Hands()
    stopwatch = Stopwatch(hands)
    stopwatch.time(answer(hands, [10, 20, 30]))
    assert stopwatch.stamps_us([1, 3, 2]) == [10, 30, 30, 30, 60, 60]


@pytest.mark.parametrize("counts", [[1, 1], [1, 1, 1, 1], []])
def test_a_count_is_needed_for_each_stamp(counts: list[int]) -> None:
    hands = Hands()
    stopwatch = Stopwatch(hands)
    stopwatch.time(answer(hands, [10, 20, 30]))
    with pytest.raises(ValueError, match="zip"):
        stopwatch.stamps_us(counts)


def test_each_tick_costs_one_reading_of_the_clock() -> None:
    readings = iter(range(100))
    stopwatch = Stopwatch(lambda: next(readings))

    def ten_ticks(tick: Tick) -> None:
        for _ in range(10):
            tick()

    stopwatch.time(ten_ticks)
    assert stopwatch.started_ns == 0
    assert stopwatch.stamps_ns == list(range(1, 11))


def test_an_answer_that_fails_leaves_the_stamps_so_far() -> None:
    hands = Hands()

    def failing(tick: Tick) -> None:
        answer(hands, [10, 20])(tick)
        raise RuntimeError("lost the device")

    stopwatch = Stopwatch(hands)
    with pytest.raises(RuntimeError, match="lost the device"):
        stopwatch.time(failing)
    assert stopwatch.stamps_us() == [10, 30]


def test_stamps_are_rounded_to_the_nearest_microsecond() -> None:
    stopwatch = Stopwatch(Hands())
    stopwatch.started_ns, stopwatch.stamps_ns = 1_000, [1_499, 1_500, 2_499, 2_500, 3_999]
    assert stopwatch.stamps_us() == [0, 1, 1, 2, 3]
