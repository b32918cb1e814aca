"""Did what was asked for really run? Judges the signs that an engine gave for one generation. Pure.

Three separate answers, never folded into one: requested, engaged (on this very request), useful (something proposed
was accepted). An engine that gives no sign leaves `engaged` unknown (None), which is not the same as False; under the
policy `require` neither is enough.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workers.protocol import Evidence

# Mechanisms that run at every step and propose only where they find something: on prose there may be nothing.
_MAY_FIND_NOTHING = frozenset({"prompt_lookup"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The three answers for one generation, and why it must not be compared (None: it may)."""

    requested: bool
    engaged: bool | None
    useful: bool | None
    fault: str | None  # code: reason


def judge(evidence: Sequence[Evidence]) -> Judgement:
    """Fold the signs of one generation. A contradiction inside them counts as no evidence at all."""
    asked = [sign for sign in evidence if sign.requested]
    broken = next((problem for sign in evidence if (problem := _contradiction(sign))), None)
    if broken:
        return Judgement(requested=bool(asked), engaged=None, useful=None, fault=f"evidence_broken: {broken}")
    if not asked:
        return _judge_unrequested(evidence)
    engaged = _all(sign.engaged for sign in asked)
    useful = _all(sign.useful for sign in asked)
    return Judgement(requested=True, engaged=engaged, useful=useful, fault=_not_engaged(asked))


def _judge_unrequested(evidence: Sequence[Evidence]) -> Judgement:
    """Nothing was asked for: then nothing may have run."""
    ran = next((sign for sign in evidence if sign.engaged), None)
    fault = f"unrequested_mechanism: {ran.text}" if ran else None
    return Judgement(requested=False, engaged=ran is not None, useful=bool(ran and ran.useful), fault=fault)


def _not_engaged(asked: Iterable[Evidence]) -> str | None:
    for sign in asked:
        if sign.engaged is False:
            return f"not_engaged: {sign.text}"
        if sign.engaged is None:
            return f"engagement_unknown: {sign.text}"
    return None


def _contradiction(sign: Evidence) -> str | None:
    drafted, accepted = sign.drafted, sign.accepted
    if drafted is not None and accepted is not None and not 0 <= accepted <= drafted:
        return f"{accepted} accepted of {drafted} drafted ({sign.source})"
    if sign.engaged and drafted == 0 and sign.mechanism not in _MAY_FIND_NOTHING:
        return f"engaged without drafting anything ({sign.source})"
    return None


def _all(answers: Iterable[bool | None]) -> bool | None:
    """Three-valued and: False wins, then unknown."""
    seen = list(answers)
    if False in seen:
        return False
    return None if None in seen else True
