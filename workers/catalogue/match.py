"""From what was seen during one request to the evidence for it. Pure.

Everything comes from that request alone: the lines printed between its start and its end, the JSON of its own answer,
counters after minus before. Three questions stay apart: was the mechanism requested, did it engage, was it useful.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.catalogue.signs import ANY, Preset, Sign
from workers.protocol import Evidence

_SHOWN = 300  # characters of a sign that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one request left behind.

    Attributes:
        lines: the log's, None: there is no log to read.
        response: the stream's chunks, every key but the choices, the last value of each.
        before, after: for each address, what it answered; an address that did not answer is missing.
    """

    lines: Sequence[str] | None = None
    response: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A sign that was there."""

    sign: Sign
    text: str
    counts: Mapping[str, int]
    holds: bool  # False: the counter is there and says that it did not happen


def find(preset: Preset, seen: Seen) -> list[Match]:
    """Every sign of the preset that the request left, in the catalogue's order."""
    applicable = (sign for sign in preset.signs if sign.applies_to(seen.version))
    return [match for sign in applicable if (match := _match(sign, seen)) is not None]


def judge_request(preset: Preset, seen: Seen, *, mechanism: str | None) -> Evidence:
    """The evidence for one request.

    Args:
        mechanism: what was requested; None: plain decoding, which any sign of a mechanism contradicts.
    """
    matches = [match for match in find(preset, seen) if match.sign.meaning != "not_evidence"]
    if mechanism is None:
        return _judge_plain(preset, matches)
    relevant = [match for match in matches if match.sign.mechanism in (mechanism, ANY)]
    if (others := _other_requests(relevant)) is not None:
        text = f"{others.text}: another client used the server during this request"
        return _evidence(mechanism, preset, engaged=None, useful=None, text=text)
    against = [match for match in relevant if _speaks_against(match)]
    speaking = [match for match in relevant if match.sign.meaning == "engaged" and match.holds]
    if against:
        return _not_engaged(mechanism, preset, against[0], speaking)
    if speaking:
        return _engaged(mechanism, preset, speaking, relevant)
    return _absent(mechanism, preset, seen)


def decided(preset: Preset, seen: Seen, *, mechanism: str | None) -> bool:
    """Whether some sign has already spoken for or against what was requested: nothing more need be waited for."""
    speaking = (match.sign for match in find(preset, seen) if match.holds)
    silent = ("not_evidence", "useful")
    return any(sign.meaning not in silent and sign.mechanism in (mechanism, ANY) for sign in speaking)


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


def _match(sign: Sign, seen: Seen) -> Match | None:
    if sign.where == "log":
        return _match_log(sign, seen.lines or ())
    if sign.where == "response":
        return _match_body(sign, {}, seen.response, seen.model)
    address = sign.address or ""
    if address not in seen.after:
        return None
    before, after = seen.before.get(address), seen.after[address]
    if sign.where == "difference":
        return None if before is None else _match_difference(sign, before, after, seen.model)
    if sign.fresh is not None and _same(sign.fresh, before, after, seen.model):
        return None
    return _match_body(sign, before, after, seen.model)


def _match_log(sign: Sign, lines: Sequence[str]) -> Match | None:
    found = [(line, matched) for line in lines if (matched := sign.expression.search(line))]
    if not found:
        return None
    each = [_digits(matched.groupdict()) for _, matched in found]
    counts = each[-1]
    if sign.sum:
        counts = {name: sum(one.get(name, 0) for one in each) for name in {key for one in each for key in one}}
    return Match(sign=sign, text=_from(*found[-1]), counts=counts, holds=_holds(sign, counts))


def _from(line: str, matched: re.Match[str]) -> str:
    """The line from the sign on, without the log's own dates and levels."""
    return line[matched.start() :].strip().rstrip(":")[:_SHOWN]


def _match_body(sign: Sign, before: Any, body: Any, model: str) -> Match | None:
    values = {name: lookup(body, path, model=model) for name, path in sign.counts.items()}
    counts = {name: int(value) for name, value in values.items() if isinstance(value, int | float)}
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
    counts = {}
    for name, path in sign.counts.items():
        new, old = lookup(after, path, model=model), lookup(before, path, model=model)
        if isinstance(new, int | float):
            # A counter that appears with its first use started at 0.
            counts[name] = int(new) - (int(old) if isinstance(old, int | float) else 0)
    if not counts or (sign.positive is not None and sign.positive not in counts):
        return None
    shown = ", ".join(f"{name} +{value}" for name, value in counts.items())
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


def _speaks_against(match: Match) -> bool:
    if match.sign.meaning in ("fell_back", "disabled_mid_request"):
        return match.holds
    return match.sign.meaning == "engaged" and not match.holds


def _other_requests(matches: Sequence[Match]) -> Match | None:
    """A counter of requests that moved by more than this one."""
    return next((match for match in matches if match.counts.get("requests", 1) > 1), None)


def _not_engaged(mechanism: str, preset: Preset, against: Match, speaking: Sequence[Match]) -> Evidence:
    text = against.text
    if against.sign.meaning == "disabled_mid_request" or speaking:
        text = f"ran for a part of the request only: {text}"
    return _evidence(
        mechanism, preset, engaged=False, useful=any(_accepted(match) for match in speaking), text=text, match=against
    )


def _engaged(mechanism: str, preset: Preset, speaking: Sequence[Match], relevant: Sequence[Match]) -> Evidence:
    """The sign with the most counts speaks."""
    best = max(speaking, key=lambda match: len(match.counts.keys() & {"drafted", "accepted"}))
    if (copied := next((match for match in speaking if _only_copied(match)), None)) is not None:
        text = f"every verify step was copied from the context, none was drafted: {copied.text}"
        return _evidence(mechanism, preset, engaged=False, useful=False, text=text, match=copied)
    useful = _useful(best)
    if any(match.sign.meaning == "useful" and match.holds for match in relevant):
        useful = True
    text = best.text
    if useful is None and best.sign.copies:
        text += "; accepted tokens may be copies from the context: whether a drafted one was accepted is unknown"
    return _evidence(mechanism, preset, engaged=True, useful=useful, text=text, match=best)


def _absent(mechanism: str, preset: Preset, seen: Seen) -> Evidence:
    always = preset.absence.get(mechanism) == "not_engaged"
    readable = seen.lines is not None or bool(seen.after) or _tells_in_response(preset, mechanism)
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
    for match in find(preset, seen):
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


def _judge_plain(preset: Preset, matches: Sequence[Match]) -> Evidence:
    ran = next((match for match in matches if match.sign.meaning in ("engaged", "useful") and match.holds), None)
    if ran is not None:
        useful = bool(_accepted(ran))
        return _evidence("plain", preset, engaged=True, useful=useful, text=ran.text, match=ran, requested=False)
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
