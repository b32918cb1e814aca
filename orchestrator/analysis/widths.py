"""Which verify width would be the best? Expected gain and cost by width, for arms that differ in nothing else. Pure.

    gain(w)   1 + sum over i < w of the chance that proposals 1..i are all accepted, from all rounds of these arms
    cost(w)   T(w) / T(1) of the target, on straight lines between the timed widths, and the drafter's share: so much a
              proposal for an engine that drafts token by token, one share for one that drafts a block at once; or,
              where wider rounds ran than passes were timed, the cost of whole rounds between the widths that ran
    w = 1     plain decoding: gain 1, cost 1

Nothing is extrapolated: a width is judged when so many tokens were ever proposed and its cost lies between known ones.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.findings import Figure, Interval, VerifyCost, WidthCurve, WidthPoint
from orchestrator.analysis.records import Answer, ArmRecord, unknown
from orchestrator.analysis.rounds import Rounds, expected_accept_length
from orchestrator.analysis.verification import (
    NO_DRAFTING_MODEL,
    PASSES_PER_TOKEN,
    Measured,
    Passes,
    interpolated,
    relative_to_one,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of a round of one width, in plain steps."""

    round: float
    verify: float | None
    draft: float | None
    interpolated: bool


CostOf = Callable[[int], Cost | None]


def width_curves(
    arms: Sequence[ArmRecord],
    answers: Sequence[Answer],
    *,
    costs: Sequence[VerifyCost],
    passes: Passes,
    measured: Measured,
) -> tuple[WidthCurve, ...]:
    """A curve for each family of arms and class; none where neither a second width nor a pass was timed."""
    families: dict[str, list[ArmRecord]] = defaultdict(list)
    for arm in arms:
        if arm.speculates and arm.width is not None:
            families[arm.family].append(arm)
    by_arm = {(cost.arm, cost.prompt_class): cost for cost in costs}
    scopes = list(dict.fromkeys(cost.prompt_class for cost in costs))
    found = []
    for members in families.values():
        names = {arm.name for arm in members}
        mine = [answer for answer in answers if answer.measured and answer.arm in names]
        for scope in scopes:
            own = [(arm, by_arm[arm.name, scope]) for arm in members if (arm.name, scope) in by_arm]
            rounds = Rounds.of(answer for answer in mine if scope in (None, answer.prompt_class))
            curve = _curve(
                own, rounds, passes, {arm: each for (arm, where), each in measured.items() if where == scope}
            )
            found += [curve] if curve is not None else []
    return tuple(found)


def _curve(
    members: Sequence[tuple[ArmRecord, VerifyCost]], rounds: Rounds, passes: Passes, measured: Mapping[str, Interval]
) -> WidthCurve | None:
    if not members or not len(rounds):
        return None
    cost_of, widest, source = _costs(members, rounds, passes)
    chances = rounds.chances()
    by_width = {arm.width: (arm.name, cost) for arm, cost in members}
    points = [
        _point(width, gain, cost, by_width.get(width), measured)
        for width in range(1, min(widest, len(chances) + 1) + 1)
        if (gain := expected_accept_length(chances, width)) is not None and (cost := cost_of(width)) is not None
    ]
    if len(points) < 2:
        return None
    best = best_width({point.width: point.predicted for point in points})
    first = members[0][0]
    ran = {point.width: point.measured.ratio for point in points if point.measured is not None}
    return WidthCurve(
        arms=_shared_words([arm.name for arm, _ in members]),
        engine=first.engine,
        checkpoint=first.checkpoint or "unknown",
        draft=first.draft,
        prompt_class=members[0][1].prompt_class,
        points=tuple(points),
        best=Figure(value=float(best), source=source)
        if len(points) > 2
        else unknown("fewer than two widths to choose from"),
        at_edge=len(points) > 2 and best == points[-1].width,
        best_measured=best_width(ran | {1: 1.0}) if ran else None,
        source=source,
    )


def _shared_words(names: Sequence[str]) -> str:
    """Of arms that differ in their width alone, what else they are called."""
    return " ".join(word for word in names[0].split() if all(word in name.split() for name in names))


def best_width(predicted: Mapping[int, float]) -> int:
    """The width with the largest speed-up; of equal ones the narrowest."""
    return min(predicted, key=lambda width: (-predicted[width], width))


def _point(
    width: int,
    gain: float,
    cost: Cost,
    ran: tuple[str, VerifyCost] | None,
    measured: Mapping[str, Interval],
) -> WidthPoint:
    arm, own = ran if ran is not None else (None, None)
    return WidthPoint(
        width=width,
        accept_length=gain,
        verify_cost=cost.verify,
        draft_cost=cost.draft,
        round_cost=cost.round,
        predicted=gain / cost.round,
        interpolated=cost.interpolated,
        arm=arm,
        measured_accept_length=None if own is None else own.accept_length,
        measured=None if arm is None else measured.get(arm),
    )


def _costs(members: Sequence[tuple[ArmRecord, VerifyCost]], rounds: Rounds, passes: Passes) -> tuple[CostOf, int, str]:
    """The cost of any width, the widest that is known, and where that is known from: timed passes, unless wider ones
    ran than were timed.
    """
    known = {arm.width: value for arm, cost in members if arm.width and (value := _whole_round(arm, cost, rounds))}
    timed = [passes.target[arm.name] for arm, _ in members if arm.name in passes.target]
    drafting = _drafting(members)
    verify = relative_to_one(max(timed, key=lambda each: len(each.seconds))) if timed else None
    if verify and drafting is not None and max(verify) >= max(known, default=1):
        return _from_passes(verify, drafting), max(verify), f"{timed[0].source}, and the drafter's share of the rounds"
    return _from_rounds(known), max(known, default=1), "whole rounds, on straight lines between the widths that ran"


def _whole_round(arm: ArmRecord, cost: VerifyCost, rounds: Rounds) -> float | None:
    """What a round takes that proposed all it could: the end of an answer cuts others short, which are cheaper."""
    if cost.round_cost.value is None or cost.plain_s.value is None or arm.width is None:
        return cost.round_cost.value
    seconds = rounds.seconds[rounds.drafted == arm.width - 1]
    return float(np.median(seconds)) / cost.plain_s.value if len(seconds) else cost.round_cost.value


def _drafting(members: Sequence[tuple[ArmRecord, VerifyCost]]) -> Callable[[int], float] | None:
    """The drafter's share by width; None where no arm tells it."""
    engine = members[0][0].engine
    if engine in NO_DRAFTING_MODEL:
        return lambda width: 0.0
    shares = [(arm.width, cost.draft_cost.value) for arm, cost in members if cost.draft_cost.value is not None]
    if engine in PASSES_PER_TOKEN:
        each = [share / (width - 1) for width, share in shares if width is not None and width > 1]
        return (lambda width: (width - 1) * sum(each) / len(each)) if each else None
    return (lambda width: sum(share for _, share in shares) / len(shares)) if shares else None


def _from_passes(verify: Mapping[int, float], drafting: Callable[[int], float]) -> CostOf:
    def cost_of(width: int) -> Cost | None:
        known = interpolated(verify, width)
        if width == 1 or known is None:
            return _PLAIN if width == 1 else None
        draft = drafting(width)
        return Cost(round=known + draft, verify=known, draft=draft, interpolated=width not in verify)

    return cost_of


def _from_rounds(known: Mapping[int, float]) -> CostOf:
    def cost_of(width: int) -> Cost | None:
        value = interpolated(known, width)
        if width == 1 or value is None:
            return _PLAIN if width == 1 else None
        return Cost(round=value, verify=None, draft=None, interpolated=width not in known)

    return cost_of


_PLAIN = Cost(round=1.0, verify=1.0, draft=0.0, interpolated=False)
