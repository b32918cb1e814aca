"""Numbers drawn with characters: ratios with their intervals around 1, and a course of values. Pure: text out.

Every drawing has its numbers beside it, so nothing is lost where the characters cannot be shown; `plain_letters` gives
the same with ASCII alone.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

BARS = "▁▂▃▄▅▆▇█"
GAP = "·"  # nothing was measured there
LEAST_REACH = 0.05  # of an axis to either side of 1
_ASCII = str.maketrans("▁▂▃▄▅▆▇█·├┤─●│░◂▸", "12345678.[]-o|:<>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic axis of ratios, so that twice and half are equally far from 1."""

    low: float
    high: float
    width: int  # characters

    @classmethod
    def around(cls, ratios: Iterable[float | None], *, width: int) -> Self:
        """An axis that holds 1 and all of these, with a little room."""
        known = [ratio for ratio in ratios if ratio is not None and 0 < ratio < math.inf]
        low, high = min([1 - LEAST_REACH, *known]), max([1 + LEAST_REACH, *known])
        room = (high / low) ** 0.03
        return cls(low=low / room, high=high * room, width=width)

    def place(self, ratio: float) -> int:
        """The character of a ratio, cut to the axis."""
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return round(min(max(share, 0.0), 1.0) * (self.width - 1))

    @property
    def labels(self) -> str:
        """The two ends and 1, each under its place."""
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
    """`░│░ ├──●──┤`: 1 as a line, the A/A floor as a shade, an interval; an open end reaches the axis's end."""
    line = [" "] * axis.width
    if floor is not None:
        _fill(line, axis.place(floor[0]), axis.place(floor[1]), "░")
    line[axis.place(1.0)] = "│"
    first = 0 if low is None else axis.place(low)
    last = axis.width - 1 if high is None else axis.place(high)
    _fill(line, first, last, "─")
    line[first] = "◂" if low is None else "├"
    line[last] = "▸" if high is None else "┤"
    line[axis.place(ratio)] = "●"
    return "".join(line).rstrip()


def course(values: Sequence[float | None], *, low: float, high: float) -> str:
    """A bar a value between two levels, a dot where there is none."""
    span = (high - low) or 1.0

    def bar(value: float) -> str:
        share = min(max((value - low) / span, 0.0), 1.0)
        return BARS[round(share * (len(BARS) - 1))]

    return "".join(GAP if value is None else bar(value) for value in values)


def squeezed(values: Sequence[float | None], width: int) -> list[float | None]:
    """At most `width` values: means of neighbours, as many to each as it takes."""
    size = -(-len(values) // width) if values else 1
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    return [_mean([value for value in group if value is not None]) for group in groups]


def plain_letters(text: str) -> str:
    """The drawing in ASCII."""
    return text.translate(_ASCII)


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters, cut out of the middle: names differ at both ends."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}\u2026{text[len(text) - tail :]}"


def visible(text: str) -> str:
    """A model's text in one line with nothing that a terminal would obey."""
    return "".join(
        "\u23ce" if letter == "\n" else letter if letter.isprintable() else repr(letter)[1:-1] for letter in text
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _put(line: list[str], place: int, text: str) -> None:
    line[place : place + len(text)] = text


def _fill(line: list[str], first: int, last: int, letter: str) -> None:
    for place in range(first, last + 1):
        line[place] = letter
