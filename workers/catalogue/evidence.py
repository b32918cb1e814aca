"""The evidence for one request, from the signs that it left. Pure.

Three questions stay apart: was the mechanism requested, did it engage, was it useful.
"""

from collections.abc import Iterator, Sequence

from workers.catalogue import binding
from workers.catalogue.binding import Bond, Decision, Usage, Window
from workers.catalogue.matches import Match, Seen, find, shown_from, window_of
from workers.catalogue.signs import ANY, Preset
from workers.catalogue.values import lookup
from workers.protocol import Evidence


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
    """True if no later sign can change the evidence. A counter that has not moved may still move."""
    if evidence.engaged is not False:
        return bool(evidence.engaged)
    return evidence.source.endswith((", log", ", response", ", state"))


def unpaid(preset: Preset, lines: Sequence[str], owed: Sequence[Usage]) -> list[int]:
    """Indexes of the earlier requests whose line is not among these; each line belongs to one request."""
    traces = [match.trace for match in find(preset, Seen(lines=lines)) if _speaks(match)]
    left = []
    for number, usage in enumerate(owed):
        bonds = [binding.bond(trace, Window(usage=usage)) for trace in traces]
        if Bond.equal in bonds:
            del traces[bonds.index(Bond.equal)]
        else:
            left.append(number)
    return left


def explain(preset: Preset, lines: Sequence[str], *, mechanism: str) -> str | None:
    """The newest line, from the load or an earlier request, that states why the mechanism does not run.

    It explains why a request left no sign of its own; evidence it is not.
    """
    against = [sign for sign in preset.signs if sign.where == "log" and sign.meaning == "fell_back"]
    applicable = [sign for sign in against if sign.mechanism in (mechanism, ANY)]
    for sign in applicable:  # in the catalogue's order: the cause before what follows from it
        for line in reversed(lines):
            if (matched := sign.expression.search(line)) is not None:
                return shown_from(line, matched)
    return None


def copies(preset: Preset, seen: Seen) -> Evidence | None:
    """Evidence on tokens copied from the context instead of drafted; None if the server states no such count.

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


def figures(preset: Preset, seen: Seen) -> Iterator[tuple[str, float]]:
    """The server's own figures, by name, as far as its answer holds them."""
    for name, path in preset.figures.items():
        value = lookup(seen.response, path, model=seen.model)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)


def _is_ours(match: Match, window: Window) -> bool:
    """True if something binds the match to the request."""
    whole = binding.fault(match.sign.where, window) is None
    return whole and binding.bond(match.trace, window) in (Bond.own, Bond.equal)


def _speaks(match: Match) -> bool:
    """True if the match is evidence for or against; a fall-back counter that did not move is neither."""
    return match.sign.meaning == "engaged" or (match.sign.meaning != "useful" and match.holds)


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
    habit = "does not always give one" if signs else "gives none: set design.evidence=record to measure it anyway"
    text = f"no sign of {mechanism} on this request, and {preset.title} {habit}"
    if always:
        text = f"nothing to read the signs of {preset.title} from: set engine.log_file or engine.log_command"
    return _evidence(mechanism, preset, engaged=None, useful=None, text=text)


def _tells_in_response(preset: Preset, mechanism: str) -> bool:
    return any(sign.where == "response" and sign.mechanism in (mechanism, ANY) for sign in preset.signs)


def _useful(match: Match) -> bool | None:
    """True if a token that the mechanism itself proposed was accepted; None if unknown.

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
    """Return whether every verify step took its proposal from the context, so that the mechanism never ran."""
    cycles, copies = match.counts.get("cycles"), match.counts.get("copy_cycles")
    return match.sign.copies and copies is not None and bool(cycles) and copies == cycles


def _judge_plain(preset: Preset, matches: Sequence[Match], window: Window) -> Evidence:
    """Evidence where no mechanism was requested.

    A sign that may belong to another request counts here as well: such decoding is not known to be plain.
    """
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
    """Keep counts only if accepted is a part of drafted: another denominator would give another rate."""
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
