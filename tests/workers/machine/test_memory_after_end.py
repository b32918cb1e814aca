from collections.abc import Iterator

import pytest

from workers.machine.memory import POLL_S, Settled, unreturned_bytes, wait_until_settled

GB = 10**9


class Memory:
    """Available memory by a list, a fake clock."""

    def __init__(self, *available_gb: float) -> None:
        self.now = 0.0
        self._values: Iterator[float] = iter(available_gb)
        self._last = 0.0

    def available(self) -> int:
        self._last = next(self._values, self._last)
        return int(self._last * GB)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, timeout_s: float = 5.0) -> Settled:
        return wait_until_settled(
            timeout_s,
            available_bytes=self.available,
            total_bytes=lambda: 48 * GB,
            clock=lambda: self.now,
            sleep=self.sleep,
        )


def test_memory_that_stands_still_costs_two_looks() -> None:
    assert Memory(20, 20, 20).wait() == Settled(waited_s=pytest.approx(2 * POLL_S), still=True)


def test_memory_that_comes_back_is_waited_for() -> None:
    found = Memory(20, 25, 30, 30, 35, 35, 35).wait()
    assert found == Settled(waited_s=pytest.approx(6 * POLL_S), still=True)


def test_others_who_take_memory_do_not_hold_it_up() -> None:
    assert Memory(20, 19, 18).wait().still


def test_not_longer_than_the_time_out() -> None:
    found = Memory(*range(200)).wait(timeout_s=1.0)
    assert not found.still
    assert found.waited_s == pytest.approx(1.0, abs=POLL_S)


@pytest.mark.parametrize(
    ("held_gb", "grown_gb", "unreturned_gb"),
    [
        (20, 20, 0),
        (20, 14, 0),  # shared pages, and what others took meanwhile
        (20, 3, 17),
        (20, -2, 20),
        (0.4, 0, 0),  # an interpreter with its libraries says nothing
    ],
)
def test_what_an_ended_process_held_must_be_available_again(
    held_gb: float, grown_gb: float, unreturned_gb: float
) -> None:
    assert unreturned_bytes(held_bytes=int(held_gb * GB), grown_bytes=int(grown_gb * GB)) == int(unreturned_gb * GB)
