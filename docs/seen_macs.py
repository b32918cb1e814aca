"""Writes README's table of the Macs that were seen, from the reports in tests/fixtures/macs alone.

    python docs/seen_macs.py

A test holds README equal to the reports.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from orchestrator.selftest import Report, replay
from workers.machine.crosschecks import AGREES, DISAGREES

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
REPORTS = ROOT / "tests" / "fixtures" / "macs"
_BEGIN, _END = "<!-- seen Macs: written by docs/seen_macs.py -->", "<!-- end of seen Macs -->"
_NONE = (
    "No report of a real Mac has come yet: what only macOS has is tested on outputs that others published, and on"
    " stand-ins.\n"
)


def reports(folder: Path = REPORTS) -> list[Report]:
    """The reports of a folder, in the order of their names.

    Raises:
        InputError: one of them is not a report that today's parsers read.
    """
    return [replay(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def table(found: Iterable[Report]) -> str:
    """One line per Mac: what it is, how its readings agree with second sources, and its model against itself."""
    lines = [" | ".join(_cells(report)) for report in found]
    if not lines:
        return _NONE
    head = "| Mac | macOS | Python | MLX | checks that agree, disagree, cannot be read | A/A |\n"
    head += "|---|---|---|---|---|---|\n"
    return head + "".join(f"| {line} |\n" for line in lines)


def _cells(report: Report) -> Iterator[str]:
    facts = report.facts
    memory = facts.get("memory_bytes")
    yield _plain(f"{facts['chip']}, {memory / 2**30:.0f} GB" if isinstance(memory, int) else str(facts["chip"]))
    yield _plain(str(facts["os"]).removeprefix("macOS "))
    yield _plain(f"{facts['python']}, {facts.get('python_origin', 'maker not told')}")
    yield _plain(facts["versions"].get("mlx", "none"))
    agree, disagree = (sum(check.result == result for check in report.checks) for result in (AGREES, DISAGREES))
    yield f"{agree}, {disagree}, {len(report.checks) - agree - disagree}"
    ratio = report.trials["aa"].get("ratio")
    yield f"{ratio:.3f}" if isinstance(ratio, float) else "not measured"


def _plain(text: str) -> str:
    """A text from a file that somebody sent, without what Markdown or a table would take for its own."""
    return re.sub(r"[^\w .,()+-]", " ", text)[:60]


def with_table(readme: str, found: Iterable[Report]) -> str:
    """README with the table between its marks.

    Raises:
        ValueError: the marks are missing.
    """
    before, begin, rest = readme.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"README lacks {_BEGIN!r} or {_END!r}")
    return f"{before}{begin}\n{table(found)}{end}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8"), reports()), encoding="utf-8")
