"""The memory's bandwidth, measured."""

import subprocess

import pytest

from workers.machine.bandwidth import best_rate, measured_bytes_per_s


class Moving:
    """A clock that each pass moves by its next duration."""

    def __init__(self, *durations_s: float) -> None:
        self.now_s = 0.0
        self._durations_s = list(durations_s)

    def __call__(self) -> float:
        return self.now_s

    def run(self) -> None:
        self.now_s += self._durations_s.pop(0) if len(self._durations_s) > 1 else self._durations_s[0]


def test_the_best_pass_counts_by_the_bytes_that_it_moved() -> None:
    clock = Moving(1.0, 2.0, 0.5, 1.5)
    passes = {"read": (clock.run, 100.0), "copy": (clock.run, 200.0)}
    assert best_rate(passes, measure_s=3.0, clock=clock) == ("read", 200.0)


def test_every_way_is_gone_twice_however_slow() -> None:
    clock = Moving(10.0, 10.0, 5.0)
    assert best_rate({"read": (clock.run, 100.0)}, measure_s=1.0, clock=clock) == ("read", 10.0)


@pytest.mark.nightly  # measures for seconds, in a process of its own
def test_this_machine_has_a_figure_and_its_source() -> None:
    found, source = measured_bytes_per_s()
    assert found is not None
    assert 1e8 < found < 1e13
    assert source.startswith("measured: best ")
    assert "of arrays of 256 MiB, for Device" in source


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        (subprocess.CompletedProcess([], 1, "", "Traceback\nImportError: no mlx\n"), "status 1: ImportError: no mlx"),
        (subprocess.CompletedProcess([], 0, "odd\n", ""), "status 0: no words"),
    ],
)
def test_why_there_is_none(
    monkeypatch: pytest.MonkeyPatch, done: subprocess.CompletedProcess[str], expected: str
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    found, reason = measured_bytes_per_s()
    assert found is None
    assert reason == f"measuring ended with {expected}"
