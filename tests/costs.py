"""Seconds of CPU per test, children that were waited for included: what decides whether a test is in the inner loop.

    make test-costs        measures every test but the nightly ones, and writes `costs.txt` anew

Each file of tests has `BUDGET_S` in the inner loop: its tests enter in the order of their cost, all cases of a test
together, until the budget is spent. So the inner loop holds tests of every module whatever one module's tests cost, and
hundreds of cheap cases in one file do not make it long. The cheapest test of a file enters up to `LARGEST_S`.
`costs.txt` holds those that do not enter; `conftest` marks them slow. A test that was not measured yet enters.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

BUDGET_S = 0.35
LARGEST_S = 1.0
_SHOWN = 20
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
        self.spent: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before_s = sum(os.times()[:4])
        yield
        self.spent[name_of(item.nodeid)] += sum(os.times()[:4]) - before_s

    def pytest_sessionfinish(self) -> None:
        write(self.spent)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("seconds of CPU by file")
        for file, cost in by_file(self.spent)[:_SHOWN]:
            terminalreporter.write_line(f"{cost:7.1f} {file}")
        terminalreporter.write_line(f"{sum(self.spent.values()):7.1f} all")


def write(spent: Mapping[str, float]) -> None:
    FILE.write_text("".join(f"{cost:.1f} {name}\n" for name, cost in slow_of(spent)))


def by_file(spent: Mapping[str, float]) -> list[tuple[str, float]]:
    """Each file with the seconds of its tests, the costliest first."""
    found: dict[str, float] = defaultdict(float)
    for name, cost in spent.items():
        found[name.partition("::")[0]] += cost
    return sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))


def slow_of(spent: Mapping[str, float]) -> list[tuple[str, float]]:
    """The tests that do not enter the inner loop with their seconds, in the order of their names."""
    left_s: dict[str, float] = {}
    slow = []
    for name, cost in sorted(spent.items(), key=lambda pair: (pair[1], pair[0])):
        file = name.partition("::")[0]
        if cost <= left_s.get(file, LARGEST_S):
            left_s[file] = max(left_s.get(file, BUDGET_S) - cost, 0.0)
        else:
            slow.append((name, cost))
    return sorted(slow)
