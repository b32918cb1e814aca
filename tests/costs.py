"""Seconds of CPU per test, children that were waited for included: what decides whether a test is slow.

    make test-costs        measures every test but the nightly ones, and writes `costs.txt` anew

`costs.txt` holds those of `SLOW_S` and more, the largest of a test's cases, but never all tests of a file: its cheapest
stays in the inner loop. `conftest` marks them slow.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

SLOW_S = 0.2
FILE = Path(__file__).with_name("costs.txt")


def name_of(nodeid: str) -> str:
    """A test without its case."""
    return nodeid.partition("[")[0]


def slow_names() -> dict[str, float]:
    """Seconds by test, from the file."""
    pairs = (line.split(maxsplit=1) for line in FILE.read_text().splitlines())
    return {name: float(seconds) for seconds, name in pairs}


class Meter:
    """Measures each test, and writes the file at the end: sorted, so that a change of one is a change of one line."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before_s = sum(os.times()[:4])
        yield
        name, cost_s = name_of(item.nodeid), sum(os.times()[:4]) - before_s
        self.spent[name] = max(self.spent.get(name, 0.0), cost_s)

    def pytest_sessionfinish(self) -> None:
        FILE.write_text("".join(f"{cost:.1f} {name}\n" for name, cost in slow_of(self.spent)))


def slow_of(spent: Mapping[str, float]) -> list[tuple[str, float]]:
    """The slow tests with their seconds, in the order of their names."""
    cheapest = {name.partition("::")[0]: name for name in sorted(spent, key=lambda name: -spent[name])}
    kept = set(cheapest.values())
    return sorted((name, cost) for name, cost in spent.items() if cost >= SLOW_S and name not in kept)
