"""Compare two arms' answers: token by token if both report token ids, else by their texts. Pure.

Only greedy answers can be compared: at a temperature above 0 two answers differ by chance. An arm whose own answers
differ is unknown, and so is every turn after one that is not identical: it may answer another conversation.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from orchestrator.findings.divergence_rates import with_rates
from orchestrator.findings.records import Answer, ArmRecord, Probed, plain_arm_of
from orchestrator.findings.values import (
    ArmLosslessness,
    ComparedBy,
    FirstDivergence,
    Losslessness,
    ProbeVerdict,
    PromptOutcome,
    TopToken,
)
from workers.sampling import sampler_words

CONTEXT_CHARACTERS = 40  # of text before and after the place where two answers diverge
AFTER = {
    "differs": "an earlier turn's answers differ already, so this turn answers another conversation",
    "unknown": "an earlier turn is unknown, so this turn may answer another conversation",
}

Asked = tuple[str, int]  # prompt id, turn
Answers = Mapping[Asked, Sequence[Answer]]
Probes = Mapping[tuple[str, str, int], Probed]  # arm, prompt id, turn


def losslessness(
    arms: Sequence[ArmRecord], answers: Sequence[Answer], *, control: str, probes: Probes
) -> Losslessness | None:
    """Compare every arm with the control, and arms of other weights also with the plain arm of their weights.

    Returns:
        None if there is nothing to compare: one arm with one answer to each prompt.
    """
    by_arm: dict[str, dict[Asked, list[Answer]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        by_arm[answer.arm][answer.key].append(answer)
    present = [arm for arm in arms if arm.name in by_arm]
    base = next((arm for arm in present if arm.name == control), None)
    if base is None or not (len(present) > 1 or any(len(each) > 1 for each in by_arm[control].values())):
        return None
    found = [_beside(arm, base, by_arm, probes) for arm in sorted(present, key=lambda arm: arm.name != control)]
    for arm in present:
        plain = plain_arm_of(arm, present)
        if arm.weights != base.weights and arm.speculates and plain is not None:
            found.append(_beside(arm, plain, by_arm, {}))
    return Losslessness(control=control, arms=tuple(with_rates(found, present, answers)))


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Return the index of the first difference (the end of the shorter if it is a prefix), or None if identical."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))


def _beside(arm: ArmRecord, other: ArmRecord, by_arm: Mapping[str, Answers], probes: Probes) -> ArmLosslessness:
    note = _why_not(arm, other)
    outcomes: list[PromptOutcome] = []
    parted: dict[str, str] = {}  # prompts with an earlier turn that is not identical, and the consequence
    for asked in sorted(by_arm[arm.name]):
        mine, theirs = by_arm[arm.name][asked], by_arm[other.name].get(asked, [])
        probe = probes.get((arm.name, *asked))
        outcome = _outcome(mine, theirs, note=note, parted=parted.get(asked[0]), probe=probe)
        if outcome.outcome != "identical":
            parted.setdefault(asked[0], AFTER[outcome.outcome])
        outcomes.append(outcome)
    return _summary(arm, other, outcomes, note)


def _why_not(arm: ArmRecord, other: ArmRecord) -> str | None:
    for one in (arm, other):
        if one.temperature != 0:
            return f"{one.name} samples at {sampler_words(one.sampler)}: only greedy answers can be compared"
    return None


def _summary(arm: ArmRecord, other: ArmRecord, outcomes: Sequence[PromptOutcome], note: str | None) -> ArmLosslessness:
    counts = {name: sum(one.outcome == name for one in outcomes) for name in ("identical", "differs", "unknown")}
    repeated = [one.deterministic for one in outcomes if one.deterministic is not None]
    parted = [one.divergence for one in outcomes if one.divergence is not None]
    places = [one.token_index for one in parted if one.token_index is not None]
    weights = None if arm.weights is None or other.weights is None else arm.weights == other.weights
    if note is None and weights is False:
        note = f"{arm.name} has other weights than {other.name}: other answers are to be expected"
    return ArmLosslessness(
        arm=arm.name,
        against=other.name,
        same_weights=weights,
        identical=counts["identical"],
        differs=counts["differs"],
        unknown=counts["unknown"],
        deterministic=all(repeated) if repeated else None,
        near_ties=sum(one.verdict == "near_tie" for one in parted),
        real=sum(one.verdict == "real" for one in parted),
        earliest=min(places, default=None),
        outcomes=tuple(outcomes),
        note=note,
    )


def _outcome(
    mine: Sequence[Answer], theirs: Sequence[Answer], *, note: str | None, parted: str | None, probe: Probed | None
) -> PromptOutcome:
    own, other = _deterministic(mine), _deterministic(theirs)
    compared_by = _compared_by(mine, theirs)
    reason = note or _incomparable(mine, theirs, parted=parted, compared_by=compared_by, own=own, other=other)
    divergence = None
    if reason is None and compared_by is not None:
        divergence = _divergence(mine, theirs[0], compared_by, probe)
    first = mine[0]
    return PromptOutcome(
        arm=first.arm,
        prompt_id=first.prompt_id,
        workload=first.workload,
        prompt_class=first.prompt_class,
        turn=first.turn,
        outcome="unknown" if reason else "differs" if divergence else "identical",
        reason=reason,
        compared_by=None if reason else compared_by,
        answers=len(mine),
        deterministic=own,
        other_deterministic=other,
        divergence=divergence,
    )


def _incomparable(
    mine: Sequence[Answer],
    theirs: Sequence[Answer],
    *,
    parted: str | None,
    compared_by: ComparedBy | None,
    own: bool | None,
    other: bool | None,
) -> str | None:
    if not theirs:
        return "the other arm has no answer to it"
    if parted:
        return parted
    hashes = {answer.prompt_sha256 for answer in (*mine, *theirs)} - {None}
    if compared_by == "token_ids" and len(hashes) > 1:
        return "the arms read different prompts: their token ids differ"
    if compared_by is None:
        return "an answer's text is not stored"
    if own is False:
        return f"it does not repeat itself (differs from its own first answer at {_where_unlike(mine)})"
    if other is False:
        return f"{theirs[0].arm} does not repeat itself"
    return None


def _where_unlike(answers: Sequence[Answer]) -> str:
    """Describe where the first differing answer diverges from the first answer, counted from 1."""
    found = _divergence(answers, answers[0], _compared_by(answers, ()) or "text", None)
    assert found is not None
    if found.token_index is None:
        return f"character {(found.character_index or 0) + 1}"
    return f"token {found.token_index + 1}"


def _compared_by(mine: Sequence[Answer], theirs: Sequence[Answer]) -> ComparedBy | None:
    both = (*mine, *theirs)
    if all(answer.token_ids_json not in (None, "[]") for answer in both):
        return "token_ids"
    return "text" if all(answer.text is not None for answer in both) else None


def _deterministic(answers: Sequence[Answer]) -> bool | None:
    """Return whether all are equal; None with fewer than two, with different prompts, or if they are not stored."""
    by = _compared_by(answers, ())
    if len(answers) < 2 or by is None or len({answer.prompt_sha256 for answer in answers}) > 1:
        return None
    return len({answer.token_ids_json if by == "token_ids" else answer.text for answer in answers}) == 1


def _divergence(
    mine: Sequence[Answer], other: Answer, compared_by: ComparedBy, probe: Probed | None
) -> FirstDivergence | None:
    """Return the divergence of the first of the arm's answers that differs."""
    for answer in mine:
        if compared_by == "token_ids" and answer.token_ids_json == other.token_ids_json:
            continue  # compared as stored: most answers are equal and need no parsing
        if compared_by == "token_ids":
            place = first_difference(answer.token_ids or (), other.token_ids or ())
        else:
            place = None if answer.text == other.text else 0
        if place is not None:
            return _first_divergence(answer, other, place if compared_by == "token_ids" else None, probe)
    return None


def _first_divergence(answer: Answer, other: Answer, place: int | None, probe: Probed | None) -> FirstDivergence:
    mine, theirs = answer.text or "", other.text or ""
    character = first_difference(_codes(mine), _codes(theirs))
    before = None if character is None else theirs[max(0, character - CONTEXT_CHARACTERS) : character]
    after = (None, None) if character is None else tuple(_after(text, character) for text in (theirs, mine))
    # Answers known by text have no token ids: the probe found their place from tokens that a server returned later.
    # A failed probe has no texts: those of the answers are kept.
    fitting = probe if probe is not None and place in (None, probe.token_index) else None
    return FirstDivergence(
        token_index=fitting.token_index if fitting else place,
        character_index=character,
        control_token=_at(other.token_ids, place),
        arm_token=_at(answer.token_ids, place),
        control_text=fitting.control_text if fitting and fitting.control_text is not None else after[0],
        arm_text=fitting.arm_text if fitting and fitting.arm_text is not None else after[1],
        context_text=fitting.context_text if fitting and fitting.context_text is not None else before,
        top=tuple(TopToken(token=t, text=w, log_probability=p) for t, w, p in fitting.top) if fitting else (),
        gap=fitting.gap if fitting else None,
        rounding=fitting.rounding if fitting else None,
        verdict=_verdict(fitting),
        reason=fitting.reason if fitting else _no_probe(place, probe),
    )


def _verdict(probe: Probed | None) -> ProbeVerdict:
    if probe is None or probe.verdict == "unknown":
        return "unknown"
    return "near_tie" if probe.verdict == "near_tie" else "real"


def _no_probe(place: int | None, probe: Probed | None) -> str:
    if place is None:
        return "compared by bytes: there is no known token to ask the model about"
    if probe is not None:
        return f"the probe looked at token {probe.token_index + 1}, the answers part at token {place + 1}"
    return "not probed: the model was not asked for its probabilities there"


def _codes(text: str) -> list[int]:
    return [ord(character) for character in text]


def _after(text: str, character: int) -> str | None:
    """Return the text after the character, or None if the text ends there."""
    return text[character : character + CONTEXT_CHARACTERS] or None


def _at(tokens: Sequence[int] | None, place: int | None) -> int | None:
    return tokens[place] if tokens is not None and place is not None and place < len(tokens) else None
