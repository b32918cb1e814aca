"""Extract values from another tool's records: numbers, names and times, and note their irregularities."""

import datetime as dt
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

# A time, rate or count beyond these is no measurement: its inverse, or a product with another, may not be finite.
LEAST, MOST = 1e-15, 1e15


class Tally:
    """Counts values that mean "not measured" (0, or not a number), and fields that no reader knows."""

    def __init__(self) -> None:
        self._unmeasured: Counter[str] = Counter()
        self._unknown: dict[str, None] = {}
        self._said: dict[str, None] = {}

    def number(self, record: Mapping[str, Any], name: str, *, scale: float = 1.0) -> float | None:
        """A value above 0, times `scale`. Missing or null: None. 0, below, or beyond all clocks: None, and counted."""
        return self.above_zero(record.get(name), name, scale=scale)

    def above_zero(self, value: Any, name: str, *, scale: float = 1.0) -> float | None:
        """Like `number`, for a value that is already extracted."""
        if value is None or isinstance(value, bool):
            return None
        try:
            found = float(value)
        except (TypeError, ValueError, OverflowError):
            found = math.nan
        if not LEAST <= found <= MOST:  # nor is NaN
            self._unmeasured[name] += 1
            return None
        return found * scale

    def count(self, record: Mapping[str, Any], name: str) -> int | None:
        """Like `number`, for a whole number above 0."""
        found = self.number(record, name)
        return None if found is None else round(found)

    def rest(self, record: Mapping[str, Any], known: Collection[str], where: str = "") -> dict[str, Any]:
        """Return the fields that the reader does not know, which are kept; their names go into a note."""
        found = {name: value for name, value in record.items() if name not in known}
        self._unknown |= dict.fromkeys(f"{where}{name}" for name in found)
        return found

    def say(self, note: str) -> None:
        """Add a note, once."""
        self._said[note] = None

    def notes(self) -> tuple[str, ...]:
        """All notes, one line each."""
        found = list(self._said)
        for name, times in self._unmeasured.items():
            often = "once" if times == 1 else f"{times} times"
            found.append(f"{name}: 0 or no number, {often}, taken as not measured")
        if self._unknown:
            found.append(f"fields not known here, kept with the arms: {', '.join(self._unknown)}")
        return tuple(found)


def seconds(value_ms: float | None, like_s: float | None, name: str, tally: Tally) -> float | None:
    """Milliseconds as seconds, unless they are seconds already under the wrong name.

    Args:
        value_ms: as the file has it, under a name that says milliseconds.
        like_s: about the same time in seconds, from what else the file says; None: nothing to go by.
    """
    if value_ms is None:
        return None
    if like_s is not None and abs(math.log(value_ms / like_s)) < abs(math.log(value_ms / 1000 / like_s)):
        tally.say(f"{name}: named as milliseconds, but these are seconds (about {like_s:.3g} s follow from the rest)")
        return value_ms
    return value_ms / 1000


_SHOWN = 48  # characters of a value in a name


def file_stem(path: str) -> str:
    """The last part of a path of either kind, without `.gguf`."""
    return re.split(r"[/\\]", path)[-1].removesuffix(".gguf") or "unknown"


def bits_of(text: str) -> int | None:
    """Bits per weight, from words such as 4bit, Q4_K, int8, nvfp4, bf16, or None if there is no such word."""
    patterns = (
        r"(\d+)[-_ ]?bits?\b",
        r"\b[iI]?[qQ](\d+)(?:_|\b)",
        r"\bint(\d+)\b",
        r"\b(?:nvfp|mxfp|fp|bf|f)(\d+)\b",
        r"\bw(\d+)\b",
    )
    for pattern in patterns:
        match = re.search(pattern, text, re.IGNORECASE)
        if match and 1 <= int(match[1]) <= 32:
            return int(match[1])
    return None


def distinct_names(configurations: Sequence[Mapping[str, Any]], *, first: Sequence[str]) -> list[str]:
    """A short name each: the values of the keys in `first`, then whatever differs between the configurations."""
    keys = list(dict.fromkeys(key for one in configurations for key in one))
    varied = [key for key in keys if len({repr(one.get(key)) for one in configurations}) > 1]
    shown = [*first, *(key for key in varied if key not in first)]
    return [
        " ".join(_part(key, one[key], plain=key in first) for key in shown if one.get(key) is not None)
        for one in configurations
    ]


def _part(key: str, value: Any, *, plain: bool) -> str:
    text = str(value)
    text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
    return text if plain else f"{key}={text}"


_COMPACT = "%Y%m%d-%H%M%S"  # vLLM's, local


def parse_time(value: Any) -> dt.datetime | None:
    """A time of an ISO text, a compact local one, or seconds since the epoch; None if it is none of these.

    Naive if the text names no zone: the caller must supply it.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return dt.datetime.fromtimestamp(value, dt.UTC) if value > 0 else None
    if not isinstance(value, str):
        return None
    try:
        return dt.datetime.fromisoformat(value.strip())
    except ValueError:
        pass
    try:
        return dt.datetime.strptime(value.strip(), _COMPACT)  # noqa: DTZ007  # it has no zone, and that is what we say
    except ValueError:
        return None
