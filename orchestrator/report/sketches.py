"""Pictures made of characters: ratios with their intervals around 1, and a course of values. Pure.

Every drawing has its numbers beside it, so nothing is lost if the characters cannot be shown; `plain_letters` returns
the same in ASCII.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from orchestrator.findings.values import SpeedByRound
from orchestrator.report.charts.ratios import EffectRow
from orchestrator.report.document import Stroke
from orchestrator.report.words import shortened, shown_line
from orchestrator.vocabulary import mark

BARS = "▁▂▃▄▅▆▇█"
GAP = "·"  # nothing was measured there
LEAST_REACH = 0.05  # length of an axis on either side of 1
_ASCII = str.maketrans("▁▂▃▄▅▆▇█·├┤─●│░◂▸\u2013\u2212\u00d7…\u00a0«»\u23ce✔≈✕⚠▲▼", '12345678.[]-o|:<>--x. ""/+~x!+-')


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic axis of ratios, so that twice and half are equally far from 1."""

    low: float
    high: float
    width: int  # characters

    @classmethod
    def around(cls, ratios: Iterable[float | None], *, width: int) -> Self:
        """Make an axis that holds 1 and all ratios, with a small margin."""
        known = [ratio for ratio in ratios if ratio is not None and 0 < ratio < math.inf]
        low, high = min([1 - LEAST_REACH, *known]), max([1 + LEAST_REACH, *known])
        room = (high / low) ** 0.03
        return cls(low=low / room, high=high * room, width=width)

    def place(self, ratio: float) -> int:
        """Return the character position of a ratio, limited to the axis."""
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return round(min(max(share, 0.0), 1.0) * (self.width - 1))

    @property
    def labels(self) -> str:
        """Return the labels of the two ends and of 1, each under its place."""
        line = [" "] * self.width
        left, right, one = f"{self.low:.2f}", f"{self.high:.2f}", self.place(1.0)
        _put(line, 0, left)
        _put(line, self.width - len(right), right)
        if len(left) < one < self.width - len(right) - 1:
            _put(line, one, "1")
        return "".join(line)


def interval(
    ratio: float, low: float | None, high: float | None, *, axis: Axis, floor: tuple[float, float] | None = None
) -> str:
    """Draw `░│░ ├──●──┤`: 1 as a line, the A/A floor as a shade, an interval; an open end fills the axis.

    Without any interval, only a small dot is drawn.
    """
    line = [" "] * axis.width
    if floor is not None:
        _fill(line, axis.place(floor[0]), axis.place(floor[1]), "░")
    line[axis.place(1.0)] = "│"
    if low is None and high is None:
        line[axis.place(ratio)] = GAP
        return "".join(line).rstrip()
    first = 0 if low is None else axis.place(low)
    last = axis.width - 1 if high is None else axis.place(high)
    _fill(line, first, last, "─")
    line[first] = "◂" if low is None else "├"
    line[last] = "▸" if high is None else "┤"
    line[axis.place(ratio)] = "●"
    return "".join(line).rstrip()


def course(values: Sequence[float | None], *, low: float, high: float) -> str:
    """Draw one bar per value between two levels, and a dot for a missing value."""
    span = (high - low) or 1.0

    def bar(value: float) -> str:
        share = min(max((value - low) / span, 0.0), 1.0)
        return BARS[round(share * (len(BARS) - 1))]

    return "".join(GAP if value is None else bar(value) for value in values)


def squeezed(values: Sequence[float | None], width: int) -> list[float | None]:
    """Reduce to at most `width` values by taking means of neighbours."""
    size = -(-len(values) // width) if values else 1
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    return [_mean([value for value in group if value is not None]) for group in groups]


def plain_letters(text: str) -> str:
    """Convert a drawing, or numbers, to ASCII."""
    return text.translate(_ASCII)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _put(line: list[str], place: int, text: str) -> None:
    line[place : place + len(text)] = text


def _fill(line: list[str], first: int, last: int, letter: str) -> None:
    for place in range(first, last + 1):
        line[place] = letter


# ---- whole pictures ----

NAME_WIDTH = 24
SPREAD_WIDTH = 18  # of the numbers beside a course, with the spaces between
LEAST_WIDTH = 40


def ratio_strokes(rows: Sequence[EffectRow], width: int) -> tuple[Stroke, ...]:
    """Draw each ratio with its interval around 1, the A/A floor shaded; a row without an arm is a heading."""
    width = max(width, LEAST_WIDTH)
    grouped = any(row.arm is None for row in rows)
    names = [f"{'  ' if grouped and row.arm is not None else ''}{row.label}" for row in rows]
    room = min(max(map(len, names)), NAME_WIDTH)
    ends = [end for row in rows for end in (row.ratio, row.low, row.high, row.floor_low, row.floor_high)]
    axis = Axis.around(ends, width=width - room - 3)
    shown = [row for row in rows if row.ratio is not None]
    few = ", · too few rounds" if any(row.low is None and row.high is None for row in shown) else ""
    strokes = [Stroke(text=f"log scale: ├─●─┤ interval, │ 1, ░ A/A floor{few}", tone="muted")]
    for row, name in zip(rows, names, strict=True):
        name = f"{shortened(shown_line(name), room):{room}}"
        if row.ratio is None or row.verdict is None:
            strokes.append(Stroke(text=name, tone="muted"))
            continue
        floor = None if row.floor_low is None or row.floor_high is None else (row.floor_low, row.floor_high)
        bar = interval(row.ratio, row.low, row.high, axis=axis, floor=floor)
        strokes.append(Stroke(text=f"{name}  {bar}", tone=mark(row.verdict, row.direction)[1]))
    return (*strokes, Stroke(text=" " * (room + 2) + axis.labels, tone="muted"))


def round_strokes(lines: Sequence[SpeedByRound], width: int) -> tuple[Stroke, ...]:
    """Draw each arm over the rounds relative to its own median, on one scale; nothing with fewer than two rounds."""
    values = [value for line in lines for value in line.values if value is not None]
    if max((len(line.values) for line in lines), default=0) < 2:
        return ()
    room = min(max(len(line.label) for line in lines), NAME_WIDTH)
    width = max(width, LEAST_WIDTH) - room - SPREAD_WIDTH
    title = "speed by round, each arm against its own median; a change shared by all arms is the machine's"
    strokes = [Stroke(text=title, tone="muted")]
    for line in lines:
        known = [value for value in line.values if value is not None]
        bars = course(squeezed(line.values, width), low=min(values), high=max(values))
        name = f"{shortened(shown_line(line.label), room):{room}}"
        strokes.append(Stroke(text=f"{name}  {bars}  {min(known) - 1:+.0%} to {max(known) - 1:+.0%}"))
    return tuple(strokes)
