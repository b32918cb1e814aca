"""Taking values out of another tool's records, and remembering what was odd about them."""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any


class Tally:
    """Counts what was 0 or no number where that means not measured, and what no reader knows."""

    def __init__(self) -> None:
        self._unmeasured: Counter[str] = Counter()
        self._unknown: dict[str, None] = {}
        self._said: dict[str, None] = {}

    def number(self, record: Mapping[str, Any], name: str, *, scale: float = 1.0) -> float | None:
        """A value above 0, times `scale`. Missing or null: None. 0, below or not finite: None, and counted."""
        return self.above_zero(record.get(name), name, scale=scale)

    def above_zero(self, value: Any, name: str, *, scale: float = 1.0) -> float | None:
        """`number`, of a value in hand."""
        if value is None or isinstance(value, bool):
            return None
        try:
            found = float(value)
        except (TypeError, ValueError, OverflowError):
            found = math.nan
        if not math.isfinite(found) or found <= 0:
            self._unmeasured[name] += 1
            return None
        return found * scale

    def count(self, record: Mapping[str, Any], name: str) -> int | None:
        """A whole number above 0, as `number`."""
        found = self.number(record, name)
        return None if found is None else round(found)

    def rest(self, record: Mapping[str, Any], known: Collection[str], where: str = "") -> dict[str, Any]:
        """The fields that the reader does not know, to be kept; their names are told."""
        found = {name: value for name, value in record.items() if name not in known}
        self._unknown |= dict.fromkeys(f"{where}{name}" for name in found)
        return found

    def say(self, note: str) -> None:
        """Add a note, once."""
        self._said[note] = None

    def notes(self) -> tuple[str, ...]:
        """All of it, one line each."""
        found = list(self._said)
        for name, times in self._unmeasured.items():
            often = "once" if times == 1 else f"{times} times"
            found.append(f"{name}: 0 or no number, {often}, taken for not measured")
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
