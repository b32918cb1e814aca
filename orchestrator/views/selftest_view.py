"""A self-test's report on a terminal of 80 columns."""

from rich.console import Console
from rich.text import Text

from db.escaping import shown as visible
from orchestrator.selftest import Report
from orchestrator.views.terminal import table
from workers.machine.crosschecks import AGREES, DISAGREES

_SIGNS = {AGREES: "✓", DISAGREES: "✗"}


def print_report(report: Report, out: Console) -> None:
    """Print the machine, each check, the measured values, and the number of readings that the parsers find."""
    facts = report.facts
    out.print(Text(visible(f"{facts['os']}, {facts['chip']}, Python {facts['python']} ({facts['machine']})")))
    for name, tag in facts["wheel_tags"].items():
        out.print(Text(visible(f"{name} {facts['versions'].get(name, '')}: {tag}")))
    out.print()
    shown = table("", "check", "ours", "second source")
    for check in report.checks:
        shown.add_row(
            _SIGNS.get(check.result, "·"), *(Text(visible(each)) for each in (check.name, check.ours, check.other))
        )
    out.print(shown)
    out.print()
    out.print(Text(visible(_aa_line(report))))
    out.print(Text(visible(_idle_line(report))))
    read = sum(reading.reason is None for reading in report.readings)
    out.print(Text(f"readings: {read} of {len(report.readings)}; the others have a reason"))
    counts = {sign: sum(check.result == sign for check in report.checks) for sign in (AGREES, DISAGREES)}
    unreadable = len(report.checks) - sum(counts.values())
    out.print(Text(f"{counts[AGREES]} agree, {counts[DISAGREES]} disagree, {unreadable} unreadable"))


def _aa_line(report: Report) -> str:
    found = report.trials["aa"]
    if not all(isinstance(found.get(key), int | float) for key in ("ratio", "ci_low", "rounds")):
        return f"A/A: not measured ({found.get('reason', 'no reason')})"
    high = "open" if found.get("ci_high") is None else f"{found['ci_high']:.3f}"
    interval = f"{found['ratio']:.3f} ({found['ci_low']:.3f} to {high})"
    return f"A/A, {found['rounds']:g} rounds of a model against itself: {interval}"


def _idle_line(report: Report) -> str:
    found = report.trials["first_decode_after_idle_s"]
    if "reason" in found:
        return f"first decode after idling: not measured ({found['reason']})"
    times = ", ".join(f"{value:.2f} after {seconds} s" for seconds, value in found.items() if value is not None)
    return f"first decode over the usual one: {times}"
