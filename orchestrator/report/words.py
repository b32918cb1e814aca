"""Formatting of numbers, and of text of unknown origin, for readers. Pure."""

import datetime as dt

from db.escaping import shown as shown
from db.escaping import shown_line as shown_line

MISSING = "\u2013"
TIMES, MINUS, MORE = "\u00d7", "\u2212", "\u2026"
_SPACE = "\u00a0"  # prevents a line break between a number and its sign


def shortened(text: str, limit: int) -> str:
    """Shorten a text to `limit` characters by cutting its middle: names differ at both ends."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def visible(text: str) -> str:
    """Return a model's text in one line, without characters that control a terminal."""
    return "".join(
        "\u23ce" if letter == "\n" else letter if letter.isprintable() else repr(letter)[1:-1] for letter in text
    )


def times(ratio: float | None) -> str:
    """Format a ratio as 1.08 and the multiplication sign."""
    return MISSING if ratio is None else f"{ratio:.{2 if ratio < 9.995 else 1}f}{TIMES}"


def span(low: float | None, high: float | None, *, digits: int = 2) -> str:
    """Format an interval; an open end is a dash."""
    if low is None and high is None:
        return MISSING
    ends = [MISSING if end is None else f"{end:.{digits}f}" for end in (low, high)]
    return " to ".join(ends)


def change(share: float | None) -> str:
    """Format a relative change with its sign, as +15 %."""
    if share is None:
        return MISSING
    return f"{MINUS if share < 0 else '+'}{percent(abs(share))}"


def percent(share: float | None) -> str:
    """Format a share as 8.1 %, with two significant digits."""
    if share is None:
        return MISSING
    size = abs(share) * 100
    return f"{share * 100:.{0 if size >= 9.95 or size == 0 else 1}f}{_SPACE}%"


def number(value: float | None, *, digits: int = 3) -> str:
    """Format a number with `digits` significant digits, without an exponent."""
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    places = max(digits - 1 - _magnitude(value), 0)
    return f"{value:,.{places}f}".replace(",", " ")


def p_value(value: float | None) -> str:
    """Format a p-value with three decimals."""
    if value is None:
        return MISSING
    return f"{value:.3f}" if value >= 0.0005 else "<0.001"


def decimals(value: float | None) -> str:
    """Format a number with three decimals."""
    return MISSING if value is None else f"{value:.3f}"


def count(value: int | None) -> str:
    """Format a whole number with its thousands separated."""
    return MISSING if value is None else f"{value:,}".replace(",", " ")


def counted(value: int, noun: str) -> str:
    """Format a count: `1 trial`, `2 trials`."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def seconds(value: float | None) -> str:
    """Format a duration in a suitable unit."""
    if value is None:
        return MISSING
    if value < 1:
        return f"{number(value * 1000)} ms"
    if value < 120:
        return f"{number(value)} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def local_time(moment: dt.datetime) -> str:
    """A moment by the clock of this machine, with its zone."""
    return f"{moment.astimezone():%d %B %Y, %H:%M %Z}".lstrip("0")


def size(value: float | None) -> str:
    """Format bytes in decimal units."""
    if value is None:
        return MISSING
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{number(value / scale)} {unit}"
    return f"{value:.0f} B"


def listed(names: list[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def ended(text: str) -> str:
    """End a sentence with a full stop."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _magnitude(value: float) -> int:
    return int(f"{abs(value):e}".partition("e")[2])
