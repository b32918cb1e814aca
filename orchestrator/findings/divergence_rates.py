"""Does an arm part from the control earlier than rounding makes another arm part? Pure.

One near tie is weak evidence: a fault that moves the logits by four times the rounding flips mostly tokens whose gap is
within twice the rounding, too. But it flips more of them, so the answers part earlier. Another arm of the same weights
whose passes have the same width, and at least as many of whose tokens come from such passes, shows what rounding does.

Each prompt counts once: which of the two arms parts first from the arm that both are held against. Where rounding is
all there is, either does with the same chance; prompts where both part at one place, or neither parts, say nothing (the
sign test, exact binomial, one-sided). The level is shared out over all pairs that were tested (Bonferroni).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from orchestrator.findings.records import Answer, ArmRecord
from orchestrator.findings.values import ArmLosslessness, PromptOutcome

LEVEL = 0.05  # of a false flag in a run
AS_MANY = 0.9  # of the arm's share of wide tokens: two arms' answers are not alike to the token

Place = tuple[float, float | None]  # turn, token index; None: compared by text
NEVER: Place = (math.inf, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """In how many prompts an arm parts before its peer, and in how many after it."""

    arm: ArmLosslessness
    peer: ArmLosslessness
    earlier: int
    later: int

    @property
    def p_value(self) -> float:
        """The chance of so many earlier ones or more, when either is as likely."""
        number = self.earlier + self.later
        return float(sum(math.comb(number, count) for count in range(self.earlier, number + 1)) / 2**number)


def with_rates(
    found: Sequence[ArmLosslessness], arms: Sequence[ArmRecord], answers: Sequence[Answer]
) -> list[ArmLosslessness]:
    """The same, with a word on each arm that parts earlier than rounding explains."""
    records = {arm.name: arm for arm in arms}
    wide = {arm.name: _wide_share(arm, [each for each in answers if each.arm == arm.name]) for arm in arms}
    pairs = [
        _pair(one, other)
        for one in found
        for other in found
        if one.against == other.against and _shows_rounding(records[one.arm], records[other.arm], wide)
    ]
    tested = [pair for pair in pairs if pair.earlier + pair.later]
    return [replace(one, too_early=_words([pair for pair in tested if pair.arm is one], len(tested))) for one in found]


def _shows_rounding(arm: ArmRecord, peer: ArmRecord, wide: Mapping[str, float | None]) -> bool:
    """Whether a peer's passes round at least as often as the arm's, and in the same way."""
    alike = arm.name != peer.name and arm.weights is not None and arm.weights == peer.weights
    mine, theirs = wide[arm.name], wide[peer.name]
    same_width = arm.width is not None and arm.width == peer.width
    return alike and same_width and mine is not None and theirs is not None and theirs >= AS_MANY * mine > 0


def _wide_share(arm: ArmRecord, answers: Iterable[Answer]) -> float | None:
    """Share of tokens that came from passes of more than one token; None where no step is known."""
    if arm.times_passes:
        return float((arm.width or 1) > 1)
    steps = [step for answer in answers for step in answer.steps or ()]
    tokens = sum(committed for _, _, committed in steps)
    return sum(committed for drafted, _, committed in steps if drafted) / tokens if tokens else None


def _pair(one: ArmLosslessness, other: ArmLosslessness) -> Pair:
    mine, theirs = _places(one.outcomes), _places(other.outcomes)
    both = [(mine[prompt], theirs[prompt]) for prompt in mine.keys() & theirs.keys()]
    return Pair(
        arm=one,
        peer=other,
        earlier=sum(_before(place, peers) for place, peers in both),
        later=sum(_before(peers, place) for place, peers in both),
    )


def _places(outcomes: Sequence[PromptOutcome]) -> dict[str, Place]:
    """Where each prompt's answers part first; prompts that could not be compared up to there are left out."""
    by_turn = sorted(outcomes, key=lambda one: (one.prompt_id, one.turn))
    found = {}
    for prompt, turns in groupby(by_turn, key=lambda one: one.prompt_id):
        parted = next((one for one in turns if one.outcome != "identical"), None)
        if parted is None:
            found[prompt] = NEVER
        elif parted.divergence is not None:
            found[prompt] = (float(parted.turn), parted.divergence.token_index)
    return found


def _before(one: Place, other: Place) -> bool:
    if one[0] != other[0] or one[1] is None or other[1] is None:
        return one[0] < other[0]
    return one[1] < other[1]


def _words(pairs: Sequence[Pair], tests: int) -> str | None:
    worst = min(pairs, key=lambda pair: pair.p_value, default=None)
    if worst is None or worst.p_value * tests > LEVEL:
        return None
    of = worst.earlier + worst.later
    return (
        f"{worst.arm.arm} parts from {worst.arm.against} before {worst.peer.arm}, whose passes are as wide, in"
        f" {worst.earlier} of {of} prompts where one of the two parts first (p = {worst.p_value:.2g}, pairs tested:"
        f" {tests}): earlier than rounding explains, whatever its near ties say"
    )
