"""From what was seen during one request to the evidence for it. Pure.

Everything comes from that request's window: the lines printed from its start to its end, the JSON of its own answer,
counters after minus before. `binding` decides which of these signs are the request's own. Three questions stay apart:
was the mechanism requested, did it engage, was it useful.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workers.catalogue import binding
from workers.catalogue.binding import Bond, Decision, Trace, Usage, Window
from workers.catalogue.signs import ANY, Preset, Sign
from workers.protocol import Evidence

_SHOWN = 300  # characters of a sign that are kept
_ALSO_LINES = 4  # how far before a line its `also` may stand


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one request left behind.

    Attributes:
        lines: the log's, None: there is no log to read.
        response: the stream's chunks, every key but the choices, the last value of each.
        before, after: for each address, what it answered; an address that did not answer is missing.
        window: our own usage, and the identities of the log and of the process; what the addresses and the answer tell
            of the server's traffic is added here.
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
    """A sign that was there."""

    sign: Sign
    text: str
    counts: Mapping[str, int]
    holds: bool  # False: the counter is there and says that it did not happen
    id: str | None = None  # the request's, where the sign bears one

    @property
    def trace(self) -> Trace:
        """As binding sees it."""
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


def judge_request(preset: Preset, seen: Seen, *, mechanism: str | None) -> Evidence:
    """The evidence for one request.

    Args:
        mechanism: what was requested; None: plain decoding, which any sign of a mechanism contradicts.
    """
    window = window_of(preset, seen)
    matches = [match for match in find(preset, seen) if match.sign.meaning != "not_evidence"]
    if mechanism is None:
        return _judge_plain(preset, matches, window)
    relevant = [match for match in matches if match.sign.mechanism in (mechanism, ANY)]
    speaking = [(match, match.trace) for match in relevant if _speaks(match)]
    decision = binding.decide([trace for _, trace in speaking], window)
    if decision is None:
        return _absent(mechanism, preset, seen, window)
    if decision.engaged is None:
        return _evidence(mechanism, preset, engaged=None, useful=None, text=decision.reason)
    match = next(match for match, trace in speaking if trace is decision.trace)
    bound = [match for match in relevant if _is_ours(match, window)]
    if decision.engaged:
        return _engaged(mechanism, preset, match, bound)
    return _not_engaged(mechanism, preset, match, bound, decision)


def is_final(evidence: Evidence) -> bool:
    """Whether nothing that may still come could change it: a sign spoke. A counter that stood still may yet move."""
    if evidence.engaged is not False:
        return bool(evidence.engaged)
    return evidence.source.endswith((", log", ", response", ", state"))


def unpaid(preset: Preset, lines: Sequence[str], owed: Sequence[Usage]) -> list[int]:
    """Of our earlier requests, the places of those whose own line is not among these: each line is one request's."""
    traces = [match.trace for match in find(preset, Seen(lines=lines)) if _speaks(match)]
    left = []
    for number, usage in enumerate(owed):
        bonds = [binding.bond(trace, Window(usage=usage)) for trace in traces]
        if Bond.equal in bonds:
            del traces[bonds.index(Bond.equal)]
        else:
            left.append(number)
    return left


def window_of(preset: Preset, seen: Seen) -> Window:
    """The window, with what the server's addresses and its answer tell of it."""
    address = preset.traffic.get("address", "")
    before, after = seen.before.get(address), seen.after.get(address)

    def moved(name: str) -> int | None:
        return _moved(before, after, preset.traffic.get(name), seen.model)

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


def _is_ours(match: Match, window: Window) -> bool:
    """Whether something binds it to the request."""
    whole = binding.fault(match.sign.where, window) is None
    return whole and binding.bond(match.trace, window) in (Bond.own, Bond.equal)


def _speaks(match: Match) -> bool:
    """For or against: a fall-back counter that did not move says nothing."""
    return match.sign.meaning == "engaged" or (match.sign.meaning != "useful" and match.holds)


def _silent(sign: Sign, seen: Seen) -> bool:
    """The answer has this sign's place, and the sign is not there."""
    if sign.place is None or lookup(seen.response, sign.place, model=seen.model) is None:
        return False
    return _match_body(sign, seen.response, seen.model) is None


def _running(value: Any) -> int:
    """How many requests run, from a count or from what describes the one that does."""
    number = _number(value)
    return int(bool(value)) if number is None else number


def _moved(before: Any, after: Any, path: str | None, model: str) -> int | None:
    """A counter that appears with its first use started at 0. None: it is not there."""
    if path is None or (new := _number(lookup(after, path, model=model))) is None:
        return None
    old = lookup(before, path, model=model)
    return new - (_number(old) or 0)


def _number(value: Any) -> int | None:
    """A count; None: what is there is none, as `true`, a text or an infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value)


def explain(preset: Preset, lines: Sequence[str], *, mechanism: str) -> str | None:
    """The newest line, of the load or of an earlier request, that says why the mechanism does not run.

    It explains why a request left no sign of its own; evidence it is not.
    """
    against = [sign for sign in preset.signs if sign.where == "log" and sign.meaning == "fell_back"]
    applicable = [sign for sign in against if sign.mechanism in (mechanism, ANY)]
    for sign in applicable:  # in the catalogue's order: the cause before what follows from it
        for line in reversed(lines):
            if (matched := sign.expression.search(line)) is not None:
                return _from(line, matched)
    return None


def lookup(body: Any, path: str, *, model: str = "") -> Any:
    """The value at a path such as `a.b[id={model}].c`; None where it does not lead anywhere.

    `[key=text]` takes the element of a list whose key is that text, `[]` the only element. A path may name a key that
    holds dots whole, as metrics' names do.
    """
    if isinstance(body, Mapping) and path in body:
        return body[path]
    for step in re.findall(r"[^.\[\]]+(?:\[[^\]]*\])?", path):
        name, _, rest = step.partition("[")
        body = body.get(name) if isinstance(body, Mapping) else None
        if rest:
            body = _element(body, rest.removesuffix("]"), model)
        if body is None:
            return None
    return body


def parse_prometheus(text: str) -> dict[str, float]:
    """Metrics by name, summed over their labels. Lines that are none are passed over."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if matched := re.match(r"([A-Za-z_:][\w:]*)(?:\{.*\})?\s+([-+.\deE]+|NaN|[-+]?Inf)(?:\s+\d+)?$", line.strip()):
            found[matched[1]] = found.get(matched[1], 0.0) + float(matched[2])
    return found


def _element(body: Any, selector: str, model: str) -> Any:
    if not isinstance(body, Sequence) or isinstance(body, str):
        return None
    if not selector:
        return body[0] if len(body) == 1 else None
    key, _, wanted = selector.partition("=")
    wanted = wanted.replace("{model}", model)
    return next((each for each in body if isinstance(each, Mapping) and str(each.get(key)) == wanted), None)


# ---- signs ----


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
    """One a line; of a sign whose lines are parts of one request's, one with their sum."""
    found = [
        (_from(line, matched), matched.groupdict() | _also(sign, lines[max(0, place - _ALSO_LINES) : place]))
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
    """What the lines just before a sign's own tell of the same request: of each expression, the nearest line."""
    found: dict[str, str | None] = {}
    for expression in sign.expressions_before:
        matched = next((each for line in reversed(before) if (each := expression.search(line))), None)
        found |= {} if matched is None else matched.groupdict()
    return found


def _from(line: str, matched: re.Match[str]) -> str:
    """The line from the sign on, without the log's own dates and levels."""
    return line[matched.start() :].strip().rstrip(":")[:_SHOWN]


def _match_body(sign: Sign, body: Any, model: str) -> Match | None:
    values = {name: _number(lookup(body, path, model=model)) for name, path in sign.counts.items()}
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
    found = {name: _moved(before, after, path, model) for name, path in sign.counts.items()}
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


# ---- judging ----


def _not_engaged(
    mechanism: str, preset: Preset, against: Match, bound: Sequence[Match], decision: Decision
) -> Evidence:
    text = against.text
    if against.sign.meaning == "disabled_mid_request" or decision.partly:
        text = f"ran for a part of the request only: {text}"
    useful = any(_accepted(match) for match in bound)
    return _evidence(mechanism, preset, engaged=False, useful=useful, text=text, match=against)


def _engaged(mechanism: str, preset: Preset, match: Match, bound: Sequence[Match]) -> Evidence:
    if (copied := next((other for other in bound if _only_copied(other)), None)) is not None:
        text = f"every verify step was copied from the context, none was drafted: {copied.text}"
        return _evidence(mechanism, preset, engaged=False, useful=False, text=text, match=copied)
    useful = _useful(match)
    if any(other.sign.meaning == "useful" and other.holds for other in bound):
        useful = True
    text = match.text
    if useful is None and match.sign.copies:
        text += "; accepted tokens may be copies from the context: whether a drafted one was accepted is unknown"
    return _evidence(mechanism, preset, engaged=True, useful=useful, text=text, match=match)


def _absent(mechanism: str, preset: Preset, seen: Seen, window: Window) -> Evidence:
    always = preset.absence.get(mechanism) == "not_engaged"
    readable = seen.lines is not None or bool(seen.after) or _tells_in_response(preset, mechanism)
    places = (("log", seen.lines is not None), ("state", bool(seen.after)))
    broken = [reason for where, there in places if there and (reason := binding.fault(where, window)) is not None]
    if broken:
        return _evidence(mechanism, preset, engaged=None, useful=None, text=broken[0])
    if always and readable:
        text = f"{preset.title} always says when it uses {mechanism}, and did not"
        return _evidence(mechanism, preset, engaged=False, useful=False, text=text)
    signs = [sign for sign in preset.signs if sign.meaning == "engaged" and sign.mechanism in (mechanism, ANY)]
    habit = "does not always give one" if signs else "gives none: design.evidence=record measures it all the same"
    text = f"no sign of {mechanism} on this request, and {preset.title} {habit}"
    if always:
        text = f"nothing to read the signs of {preset.title} from: set engine.log_file or engine.log_command"
    return _evidence(mechanism, preset, engaged=None, useful=None, text=text)


def _tells_in_response(preset: Preset, mechanism: str) -> bool:
    return any(sign.where == "response" and sign.mechanism in (mechanism, ANY) for sign in preset.signs)


def _useful(match: Match) -> bool | None:
    """Whether something that the mechanism itself proposed was accepted.

    Where accepted tokens hold copies, at most `copied` of them are: more than that, and the mechanism had some.
    """
    accepted = _accepted(match)
    if accepted is None or not accepted or not match.sign.copies:
        return None if accepted is None else accepted > 0
    copied = match.counts.get("copied")
    if copied is None:
        return None
    return True if accepted > copied else None


def _only_copied(match: Match) -> bool:
    """Every verify step took its proposal from the context: the mechanism ran at none."""
    cycles, copies = match.counts.get("cycles"), match.counts.get("copy_cycles")
    return match.sign.copies and copies is not None and bool(cycles) and copies == cycles


def copies(preset: Preset, seen: Seen) -> Evidence | None:
    """What the server copied from the context instead of drafting, told apart; None: it states no such count.

    Copying is allowed, not requested: whether it ran decides nothing. How many copied tokens were accepted is unknown.
    """
    window = window_of(preset, seen)
    for match in find(preset, seen):
        if not _is_ours(match, window):
            continue
        steps = match.counts.get("copy_cycles")
        if match.sign.copies and steps is not None:
            return Evidence(
                mechanism="copy_drafts",
                requested=False,
                engaged=None if steps else False,
                useful=None if steps else False,
                source=f"{preset.title}, {match.sign.where}",
                text=f"{match.counts.get('copied', 0)} tokens copied from the context in {steps} verify steps",
                drafted=match.counts.get("copied"),
                accepted=None if steps else 0,
            )
    return None


def _judge_plain(preset: Preset, matches: Sequence[Match], window: Window) -> Evidence:
    """Here a sign that may be another request's counts all the same: what cannot be told apart is not plain."""
    ran = next((match for match in matches if match.sign.meaning in ("engaged", "useful") and match.holds), None)
    if ran is not None:
        text = (
            ran.text
            if _is_ours(ran, window)
            else f"{ran.text} (perhaps another client's: it cannot be bound to a request)"
        )
        useful = bool(_accepted(ran))
        return _evidence("plain", preset, engaged=True, useful=useful, text=text, match=ran, requested=False)
    text = f"no sign of speculation from {preset.title}"
    return _evidence("plain", preset, engaged=False, useful=False, text=text, requested=False)


def _accepted(match: Match) -> int | None:
    return match.counts.get("accepted")


def _evidence(
    mechanism: str,
    preset: Preset,
    *,
    engaged: bool | None,
    useful: bool | None,
    text: str,
    match: Match | None = None,
    requested: bool = True,
) -> Evidence:
    """Counts are kept only where accepted is a part of drafted: another denominator would make another rate."""
    counts = {} if match is None or match.sign.denominator != "drafted" else match.counts
    source = preset.title if match is None else f"{preset.title}, {match.sign.where}"
    return Evidence(
        mechanism=mechanism,
        requested=requested,
        engaged=engaged,
        useful=useful,
        source=source,
        text=text,
        drafted=counts.get("drafted"),
        accepted=counts.get("accepted"),
    )


def figures(preset: Preset, seen: Seen) -> Iterator[tuple[str, float]]:
    """The server's own figures, by name, as far as its answer holds them."""
    for name, path in preset.figures.items():
        value = lookup(seen.response, path, model=seen.model)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)
