"""The audit's drawings on the terminal: ratios with their intervals, and the rounds in time order."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from orchestrator.views.drawn import Axis, course, interval, plain_letters, shortened, squeezed

if TYPE_CHECKING:
    from orchestrator.audit import AuditResult, Comparison
    from orchestrator.findings.values import SpeedByRound

NAME_WIDTH = 24  # of a drawing's names
SPREAD_WIDTH = 18  # of the numbers beside a course, with the spaces between
RATIOS_DRAWN = 24  # more: over all only
VERDICT_STYLES = {
    "supported": "bold green",
    "no_difference": "cyan",
    "could_be_drift": "yellow",
    "not_engaged": "bold red",
    "confounded": "magenta",
    "underpowered": "dim",
}


def print_ratios(result: "AuditResult", out: Console) -> None:
    """Each ratio with its interval around 1, the A/A floor shaded."""
    drawn = [one for one in result.comparisons if one.ratio is not None]
    if not drawn:
        return
    if len(drawn) > RATIOS_DRAWN:
        drawn = [one for one in drawn if one.over_all]
    names = [_drawn_name(one, drawn) for one in drawn]
    room = min(max(map(len, names)), NAME_WIDTH)
    ends = [end for one in drawn for end in (one.ratio, one.ci_low, one.ci_high, one.aa_low, one.aa_high)]
    axis = Axis.around(ends, width=max(out.width, 40) - room - 3)
    out.print(Text("ratios on a logarithmic scale: " + _drawn("├─●─┤ interval, │ 1, ░ A/A floor", out), style="dim"))
    for one, name in zip(drawn, names, strict=True):
        floor = None if one.aa_low is None or one.aa_high is None else (one.aa_low, one.aa_high)
        bar = interval(one.ratio or 1.0, one.ci_low, one.ci_high, axis=axis, floor=floor)
        line = Text(f"{shortened(name, room):{room}}  ")
        out.print(line.append(_drawn(bar, out), style=VERDICT_STYLES[one.verdict]), no_wrap=True)
    out.print(Text(" " * (room + 2) + axis.labels, style="dim"), no_wrap=True)
    out.print()


def _drawn_name(one: "Comparison", among: "Sequence[Comparison]") -> str:
    """The treatment, or within its rows the scope."""
    single = len({each.treatment for each in among}) == 1
    return one.treatment if one.over_all else f"{'' if single else '  '}{one.scope.words}"


def print_rounds(lines: "Sequence[SpeedByRound]", out: Console) -> None:
    """Each arm over the rounds against its own middle, on one scale: what all of them do together is the machine."""
    values = [value for line in lines for value in line.values if value is not None]
    rounds = max((len(line.values) for line in lines), default=0)
    if rounds < 2:
        return
    room = min(max(len(line.label) for line in lines), NAME_WIDTH)
    low, high = min(values), max(values)
    title = "speed by round, each arm against its own median; what all share is the machine"
    out.print(Text(title, style="dim"))
    for line in lines:
        known = [value for value in line.values if value is not None]
        bars = course(squeezed(line.values, max(out.width, 40) - room - SPREAD_WIDTH), low=low, high=high)
        spread = f"{min(known) - 1:+.0%} to {max(known) - 1:+.0%}"
        out.print(Text(f"{shortened(line.label, room):{room}}  {_drawn(bars, out)}  {spread}"), no_wrap=True)
    out.print()


def _drawn(text: str, out: Console) -> str:
    return text if out.encoding.lower().startswith("utf") else plain_letters(text)
