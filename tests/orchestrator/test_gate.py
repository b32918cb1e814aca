from collections.abc import Callable, Iterator

from orchestrator.gate import Passage, wait
from orchestrator.plan import Gate


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def passage(gate: Gate, levels: Callable[[], float | None], said: list[str] | None = None) -> Passage:
    clock = FakeClock()
    return wait(
        gate, thermal_level=levels, clock=clock, sleep=clock.sleep, notify=(said if said is not None else []).append
    )


def from_list(values: list[float | None]) -> Callable[[], float | None]:
    items: Iterator[float | None] = iter(values)
    return lambda: next(items)


def test_a_cool_machine_passes_at_once() -> None:
    assert passage(Gate(), lambda: 0) == Passage(waited_s=0.0, hot_start=None)


def test_a_machine_without_a_thermal_level_passes() -> None:
    assert passage(Gate(), lambda: None).hot_start is None


def test_it_waits_until_the_level_falls_and_says_what_it_waits_for() -> None:
    said: list[str] = []
    assert passage(Gate(), from_list([2, 1, 0]), said) == Passage(waited_s=2.0, hot_start=None)
    assert said == ["thermal level 2, waiting for 0", "thermal level 1, waiting for 0"]


def test_a_machine_that_stays_hot_starts_after_the_time_out_and_is_marked() -> None:
    result = passage(Gate(timeout_s=5), lambda: 3)
    assert result.waited_s == 5.0
    assert result.hot_start == "thermal level 3 above 0 after 5 s"


def test_cooldown_comes_first() -> None:
    assert passage(Gate(cooldown_s=30), lambda: 0).waited_s == 30.0
