"""The signs of a preset that one request left behind. Pure.

Everything comes from that request's window: the lines printed from its start to its end, the JSON of its own answer,
the counters after it minus those before it. `binding` decides which of these signs are the request's own.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workers.catalogue.binding import Trace, Window
from workers.catalogue.signs import Preset, Sign
from workers.catalogue.values import count_of, growth, lookup

_SHOWN = 300  # characters of a sign that are kept
_ALSO_LINES = 4  # how far before a line its `also` may stand


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything that one request left behind.

    Attributes:
        lines: of the log; None if there is no log to read.
        response: the stream's chunks, every key but the choices, the last value of each.
        before, after: for each address, what it answered; an address that did not answer is missing.
        window: our own usage, and the identities of the log and of the process; `window_of` adds the
            server's traffic, from its addresses and its answer.
    """

    lines: Sequence[str] | None = None
    response: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    version: str | None = None
    window: Window = field(default_factory=Window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A sign that was found."""

    sign: Sign
    text: str
    counts: Mapping[str, int]
    holds: bool  # False: the counter is there and says that it did not happen
    id: str | None = None  # the request's, where the sign bears one

    @property
    def trace(self) -> Trace:
        """The match in the form that `binding` takes."""
        nothing_moved = self.sign.where == "difference" and not self.holds and min(self.counts.values()) >= 0
        return Trace(
            source=self.sign.id,
            where=self.sign.where,
            says=self.sign.meaning in ("engaged", "useful") and self.holds,
            text=self.text,
            counts=self.counts,
            id=self.id,
            committed=self.sign.committed,
            whole_server=self.sign.reach == "server" or nothing_moved,
        )


def find(preset: Preset, seen: Seen) -> list[Match]:
    """Every sign of the preset that the request left, in the catalogue's order."""
    applicable = (sign for sign in preset.signs if sign.applies_to(seen.version))
    return [match for sign in applicable for match in _matches(sign, seen)]


def window_of(preset: Preset, seen: Seen) -> Window:
    """The window, completed with the server's counters and its answer."""
    address = preset.traffic.get("address", "")
    before, after = seen.before.get(address), seen.after.get(address)

    def moved(name: str) -> int | None:
        return growth(before, after, preset.traffic.get(name), seen.model)

    counted = {name: value for name in ("generated", "prompt", "requests") if (value := moved(name)) is not None}
    started = preset.traffic.get("started")
    return replace(
        seen.window,
        traffic=counted if address in seen.before and address in seen.after else {},
        busy=_running(lookup(before, preset.traffic["running"])) if before and "running" in preset.traffic else None,
        restarted=any(value < 0 for value in counted.values())
        or (started is not None and lookup(before, started) != lookup(after, started)),
        silent=any(_silent(sign, seen) for sign in preset.signs),
    )


def _silent(sign: Sign, seen: Seen) -> bool:
    """True if the answer has this sign's place, and the sign is not there."""
    if sign.place is None or lookup(seen.response, sign.place, model=seen.model) is None:
        return False
    return _match_body(sign, seen.response, seen.model) is None


def _running(value: Any) -> int:
    """The number of running requests, from a count or from a description of the single one that runs."""
    number = count_of(value)
    return int(bool(value)) if number is None else number


def _matches(sign: Sign, seen: Seen) -> list[Match]:
    if sign.where == "log":
        return _match_log(sign, seen.lines or ())
    found = _match(sign, seen)
    return [] if found is None else [found]


def _match(sign: Sign, seen: Seen) -> Match | None:
    if sign.where == "response":
        return _match_body(sign, seen.response, seen.model)
    address = sign.address or ""
    if address not in seen.after:
        return None
    before, after = seen.before.get(address), seen.after[address]
    if sign.where == "difference":
        return None if before is None else _match_difference(sign, before, after, seen.model)
    if sign.fresh is not None and _same(sign.fresh, before, after, seen.model):
        return None
    return _match_body(sign, after, seen.model)


def _match_log(sign: Sign, lines: Sequence[str]) -> list[Match]:
    """One match per line; one match with the sum where several lines are parts of one request's."""
    found = [
        (shown_from(line, matched), matched.groupdict() | _also(sign, lines[max(0, place - _ALSO_LINES) : place]))
        for place, line in enumerate(lines)
        if (matched := sign.expression.search(line))
    ]
    if not found:
        return []
    each = [(text, _digits(groups), groups.get("id")) for text, groups in found]
    if sign.sum:
        names = {name for _, counts, _ in each for name in counts}
        each = [(each[-1][0], {name: sum(counts.get(name, 0) for _, counts, _ in each) for name in names}, each[-1][2])]
    return [
        Match(sign=sign, text=text, counts=counts, holds=_holds(sign, counts), id=own) for text, counts, own in each
    ]


def _also(sign: Sign, before: Sequence[str]) -> dict[str, str | None]:
    """Groups from the lines just before a sign's own, for each expression from the nearest line that fits."""
    found: dict[str, str | None] = {}
    for expression in sign.expressions_before:
        matched = next((each for line in reversed(before) if (each := expression.search(line))), None)
        found |= {} if matched is None else matched.groupdict()
    return found


def shown_from(line: str, matched: re.Match[str]) -> str:
    """The line from the sign on, without the log's own dates and levels."""
    return line[matched.start() :].strip().rstrip(":")[:_SHOWN]


def _match_body(sign: Sign, body: Any, model: str) -> Match | None:
    values = {name: count_of(lookup(body, path, model=model)) for name, path in sign.counts.items()}
    counts = {name: value for name, value in values.items() if value is not None}
    shown = [f"{sign.counts[name]}={value}" for name, value in counts.items()]
    share = None if sign.share is None else lookup(body, sign.share, model=model)
    if isinstance(share, int | float) and math.isfinite(share) and "generated" in counts:
        counts["accepted"] = round(share * counts["generated"])
        shown.append(f"{sign.share}={share:.4g}")
    if sign.field is not None:
        value = lookup(body, sign.field, model=model)
        if value is None or not sign.expression.search(_as_text(value)):
            return None
        shown.insert(0, f"{sign.field}={_as_text(value)}")
    elif sign.positive is not None and sign.positive not in counts:
        return None
    elif not counts:
        return None
    return Match(sign=sign, text=", ".join(shown)[:_SHOWN], counts=counts, holds=_holds(sign, counts))


def _match_difference(sign: Sign, before: Any, after: Any, model: str) -> Match | None:
    found = {name: growth(before, after, path, model) for name, path in sign.counts.items()}
    counts = {name: value for name, value in found.items() if value is not None}
    if not counts or (sign.positive is not None and sign.positive not in counts):
        return None
    shown = ", ".join(f"{name} {value:+d}" for name, value in counts.items())
    text = f"{sign.address}: {shown}"
    return Match(sign=sign, text=text[:_SHOWN], counts=counts, holds=_holds(sign, counts))


def _holds(sign: Sign, counts: Mapping[str, int]) -> bool:
    return sign.positive is None or counts.get(sign.positive, 0) > 0


def _same(path: str, before: Any, after: Any, model: str) -> bool:
    return before is not None and bool(lookup(before, path, model=model) == lookup(after, path, model=model))


def _digits(groups: Mapping[str, str | None]) -> dict[str, int]:
    return {name: int(value) for name, value in groups.items() if value is not None and value.isdigit()}


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
