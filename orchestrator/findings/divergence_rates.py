"""Test whether an arm diverges from the control earlier than rounding explains. Pure.

One near tie is weak evidence: a fault that moves the logits by four times the rounding flips mostly tokens whose gap is
within twice the rounding, too. But it flips more of them, so the answers diverge earlier. The effect of rounding alone
is seen in another arm (the peer) with the same weights and width, and at least as many tokens from such passes.

Each prompt counts once: which of the two arms diverges first from the arm that both are compared with. If there is only
rounding, both have the same chance; prompts where both diverge at one place, or neither diverges, do not count (the
sign test, exact binomial, one-sided). The level is divided among all pairs that are tested (Bonferroni).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from orchestrator.findings.records import Answer, ArmRecord
from orchestrator.findings.values import ArmLosslessness, PromptOutcome

LEVEL = 0.05  # of a false flag in a run
AS_MANY = 0.9  # of the arm's share of wide tokens: two arms' answers are not equal in every token

Place = tuple[float, float | None]  # turn, token index; None: compared by text
NEVER: Place = (math.inf, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The number of prompts in which an arm diverges before its peer, and after it."""

    arm: ArmLosslessness
    peer: ArmLosslessness
    earlier: int
    later: int

    @property
    def p_value(self) -> float:
        """Return the chance of at least so many earlier ones if both are equally likely."""
        number = self.earlier + self.later
        return float(sum(math.comb(number, count) for count in range(self.earlier, number + 1)) / 2**number)


def with_rates(
    found: Sequence[ArmLosslessness], arms: Sequence[ArmRecord], answers: Sequence[Answer]
) -> list[ArmLosslessness]:
    """Return the findings with a remark on each arm that diverges earlier than rounding explains."""
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
    """Return whether a peer's passes round at least as often as the arm's, and in the same way."""
    alike = arm.name != peer.name and arm.weights is not None and arm.weights == peer.weights
    mine, theirs = wide[arm.name], wide[peer.name]
    same_width = arm.width is not None and arm.width == peer.width
    return alike and same_width and mine is not None and theirs is not None and theirs >= AS_MANY * mine > 0


def _wide_share(arm: ArmRecord, answers: Iterable[Answer]) -> float | None:
    """Return the share of tokens that came from passes of more than one token, or None if no step is known."""
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
    """Return the first divergence in each prompt; prompts that could not be compared up to it are left out."""
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
        f"{worst.arm.arm} diverges from {worst.arm.against} before {worst.peer.arm}, whose passes are as wide, in"
        f" {worst.earlier} of the {of} prompts in which one of the two is first (p = {worst.p_value:.2g}, pairs"
        f" tested: {tests}): earlier than rounding explains, whatever its near ties suggest"
    )
