"""The tables of docs/method.md: measured by one command, kept as JSON, and written into the page.

    python -m benchmarks.method_tables --measure [--runs 2000]    measure all, about two minutes of one core
    python -m benchmarks.method_tables                            write the page anew from what was measured

A test holds the page equal to the JSON, and the JSON's method to the present one: a change of the
method needs a new measurement. The figures come from `benchmarks/false_positives.py` and `benchmarks/truth.py`.
"""

import argparse
import datetime as dt
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.false_positives import ALPHA, EFFECT, METHODS, ROUNDS, TRIALS
from benchmarks.truth import CHECKS
from orchestrator.audit import METHOD_VERSION
from orchestrator.statistics.drift import PROFILES, standard
from orchestrator.statistics.simulate import judge_verdicts

HERE = Path(__file__).resolve()
RESULTS = HERE.with_suffix(".json")
PAGE = HERE.parent.parent / "docs" / "method.md"
VERDICT_SHARE = 10  # a whole verdict takes ten times as long as a test: so many times fewer runs
TRUTH_SHARE = 5
EFFECTS = (1.0, 1.03, EFFECT, 1.1)

Table = Mapping[str, Mapping[str, float]]  # share by row and drift profile


# ---- measuring ----


def measure(runs: int) -> dict[str, Any]:
    """All figures of the page. `runs`: simulated runs per cell of the first two tables."""
    return {
        "method_version": METHOD_VERSION,
        "measured_on": dt.datetime.now(dt.UTC).date().isoformat(),
        "runs": runs,
        "no_effect": by_method(1.0, runs),
        "true_effect": by_method(EFFECT, runs),
        "verdicts": by_effect(runs // VERDICT_SHARE),
        "truth": [finite(asdict(figure)) for check in CHECKS.values() for figure in check(runs // TRUTH_SHARE)],
    }


def finite(figure: Mapping[str, Any]) -> dict[str, Any]:
    """A figure without the bounds that it does not have: JSON knows no infinity."""
    return {name: value for name, value in figure.items() if not (isinstance(value, float) and math.isinf(value))}


def by_method(effect: float, runs: int) -> Table:
    """The share of runs in which each way to compare two arms finds a difference."""
    return {
        name: {profile: method(standard(profile, TRIALS), effect, runs) for profile in PROFILES}
        for name, method in METHODS.items()
    }


def by_effect(runs: int) -> Table:
    """Return the share of runs with the verdict "supported", by true effect. Each round holds the control twice."""

    def share(effect: float, profile: str) -> float:
        return judge_verdicts(standard(profile, 3 * ROUNDS), rounds=ROUNDS, effect=effect, runs=runs).supported

    return {f"{effect - 1:.0%}": {profile: share(effect, profile) for profile in PROFILES} for effect in EFFECTS}


# ---- the page ----


def tables(results: Mapping[str, Any]) -> dict[str, str]:
    """Each table of the page by its name, as Markdown."""
    return {
        "conditions": _conditions(results),
        "no_effect": _shares("method", results["no_effect"], loud=2 * ALPHA),
        "true_effect": _shares("method", results["true_effect"]),
        "verdicts": _shares("true effect", results["verdicts"]),
        "truth": _truth(results["truth"]),
    }


def rendered(page: str, results: Mapping[str, Any]) -> str:
    """The page with its tables written anew; see `replaced`."""
    return replaced(page, tables(results), PAGE)


def replaced(page: str, texts: Mapping[str, str], path: Path) -> str:
    """A page with these tables, by name, in their places.

    Args:
        path: the page's, for the error.

    Raises:
        ValueError: the page has no place for one of them.
    """
    for name, table in texts.items():
        begin, end = f"<!-- table {name} -->\n", f"<!-- end of {name} -->"
        page, found = re.subn(
            re.escape(begin) + ".*?" + re.escape(end),
            lambda _, text=begin + table + end: text,
            page,
            flags=re.DOTALL,
        )
        if found != 1:
            raise ValueError(f"{path}: {found} places for the table {name}, expected 1")
    return page


def _conditions(results: Mapping[str, Any]) -> str:
    cells = (results["runs"], results["runs"] // VERDICT_SHARE, results["runs"] // TRUTH_SHARE)
    counts, errors = [f"{runs:,}" for runs in cells], [f"{_error(0.05, runs):.3f}" for runs in cells]
    text = (
        f"Method {results['method_version']}, measured on {results['measured_on']}. Simulated runs per cell:"
        f" {counts[0]} in the first two tables, {counts[1]} in the third, {counts[2]} per case of the last. The"
        f" standard error of a share of 5 % is {errors[0]}, {errors[1]} and {errors[2]}."
    )
    return textwrap.fill(text, 120) + "\n"


def _error(share: float, runs: int) -> float:
    return math.sqrt(share * (1 - share) / runs)


def _shares(head: str, table: Table, *, loud: float = math.inf) -> str:
    """Rows by drift profile; shares above `loud` in bold."""
    columns = list(next(iter(table.values())))
    rows = [
        [name, *(f"**{share:.3f}**" if share > loud else f"{share:.3f}" for share in shares.values())]
        for name, shares in table.items()
    ]
    return markdown([head, *(column.replace("_", " ") for column in columns)], rows)


def _truth(figures: Sequence[Mapping[str, Any]]) -> str:
    """One line per claim: the worst figure of all cases that it covers."""

    def of(check: str, measured: str, case: str = "", worst: Callable[[Iterable[float]], float] = max) -> str:
        values = [
            each["value"]
            for each in figures
            if each["check"] == check and each["measured"] == measured and case in each["case"]
        ]
        found = worst(values)
        return "below 0.001" if 0 < found < 0.0005 else f"{found:.3f}"

    rows = [
        [
            "one prompt of five at 2.0x, four at 0.95x",
            "error of the median ratio, at most",
            of("mixed", "error of the median ratio"),
        ],
        ["", "coverage of the mean, at least", of("mixed", "coverage", "2.0", min)],
        ["", '"supported" in the wrong direction', of("mixed", "supported in the wrong direction")],
        ["five equal prompts, 40 rounds", '"no difference", at least', of("mixed", "no difference", worst=min)],
        ["10, 20, 30 % of 40 rounds at half speed", '"no difference", at most', of("stalls", "no difference")],
        ["", "coverage of the mean, at least", of("stalls", "coverage", worst=min)],
        ["one arm 1, 5, 10 times as noisy, 8 to 40 rounds", "errors, at most", of("noise", "errors")],
        [
            "a quiet 5 % beside three null arms 3 and 5 times as noisy",
            '"supported" lost, at most',
            of("noise", "lost against x 1"),
        ],
    ]
    return markdown(["setting", "measured, the worst of its cases", "share"], rows)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Measure if asked to, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--runs", type=int, default=2000)
    given = parser.parse_args()
    if given.measure:
        RESULTS.write_text(json.dumps(measure(given.runs), indent=1) + "\n", encoding="utf-8")
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
