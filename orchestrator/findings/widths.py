"""Find the best verify width: expected gain and cost by width, for arms that differ in nothing else. Pure.

The gain is the tokens that rounds of a width commit along the text of the widest arm that ran (`replay`). Some rounds
are the same at any width: plain steps of a lookup that finds nothing, and copies longer than the width that was set.
With f(w) the share of the other rounds in the replay, and the mean cost of the fixed ones:

    gain(w)   tokens of the text / rounds of the replay
    cost(w)   f(w) x (verify(w) + draft(w)) + (1 - f(w)) x cost of fixed
    verify    T(w) / T(1) of the target, on straight lines between the timed widths
    draft     a cost per proposal for an engine that drafts token by token, one cost for one that drafts a whole block
    w = 1     plain decoding: gain 1, cost 1

The replay assumes that a draft is right or wrong at a token wherever the round started. Arms of other widths test this:
if one of them committed another number of tokens per round than its replay, the prediction is rejected, and the curve
holds the widths that ran, with their measured values.

If rounds ran that are wider than all timed passes, or the passes do not fit the rounds, verify + draft is interpolated
from the cost of whole rounds of the widths that ran. Nothing is extrapolated: a width is judged if so many tokens were
ever proposed, an arm was set to it or to a wider one, and its cost lies between known ones.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.findings.records import Answer, ArmRecord, unknown
from orchestrator.findings.replay import Text, is_free
from orchestrator.findings.rounds import Rounds
from orchestrator.findings.values import Figure, Interval, VerifyCost, WidthCurve, WidthPoint
from orchestrator.findings.verification import (
    NO_DRAFTING_MODEL,
    PASSES_PER_TOKEN,
    Measured,
    Passes,
    interpolated,
    outlasts_its_round,
    relative_to_one,
)

AGREEMENT = 0.05  # relative, of a replay with the accept length of an arm that ran the width


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An arm of a family, with its rounds in one scope."""

    arm: ArmRecord
    cost: VerifyCost
    answers: tuple[Rounds, ...]  # the rounds of each answer

    @property
    def width(self) -> int:
        """Return the width: families hold only arms with a known width."""
        return self.arm.width or 0

    @property
    def rounds(self) -> Rounds:
        """Return the rounds of all answers."""
        return Rounds.joined(self.answers)

    @property
    def free(self) -> Rounds:
        """Return the rounds whose width the arm's setting determines."""
        return self.rounds.only(is_free(self.rounds, self.width))

    @property
    def fixed(self) -> Rounds:
        """Return the rounds without a proposal, and copies beyond the width."""
        return self.rounds.only(~is_free(self.rounds, self.width))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of a round, in plain steps."""

    round: float
    verify: float | None
    draft: float | None
    interpolated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The gain of a width."""

    tokens: float  # per round, over all rounds
    share: float  # of rounds that the width applies to


CostOf = Callable[[int, float], Cost | None]  # by width and by the share of rounds that it applies to


def width_curves(
    arms: Sequence[ArmRecord],
    answers: Sequence[Answer],
    *,
    costs: Sequence[VerifyCost],
    passes: Passes,
    measured: Measured,
) -> tuple[WidthCurve, ...]:
    """Return a curve per family of arms and class; none if neither a second width nor a pass was timed."""
    families: dict[str, list[ArmRecord]] = defaultdict(list)
    for arm in arms:
        if arm.speculates and arm.width is not None:
            families[arm.family].append(arm)
    by_arm = {(cost.arm, cost.prompt_class): cost for cost in costs}
    scopes = list(dict.fromkeys(cost.prompt_class for cost in costs))
    found = []
    for family in families.values():
        for scope in scopes:
            members = [
                Member(arm=arm, cost=by_arm[arm.name, scope], answers=_rounds(arm, answers, scope))
                for arm in family
                if (arm.name, scope) in by_arm
            ]
            curve = _curve(members, passes, {arm: each for (arm, where), each in measured.items() if where == scope})
            found += [curve] if curve is not None else []
    return tuple(found)


def _rounds(arm: ArmRecord, answers: Sequence[Answer], scope: str | None) -> tuple[Rounds, ...]:
    each = (
        Rounds.of([answer])
        for answer in answers
        if answer.measured and answer.arm == arm.name and scope in (None, answer.prompt_class)
    )
    return tuple(rounds for rounds in each if len(rounds))


def _curve(members: Sequence[Member], passes: Passes, measured: Mapping[str, Interval]) -> WidthCurve | None:
    widest = max((each for each in members if len(each.free)), key=lambda each: each.width, default=None)
    text = None if widest is None else Text.of(widest.answers, width=widest.width)
    if widest is None or text is None:
        return None
    refused = _disagreement(widest, text, members)
    gains = _replayed(widest, text) if refused is None else _as_they_ran(members)
    cost_of, source = _costs(members, passes)
    by_width = {each.width: (each.arm.name, each.cost) for each in members}
    points = [
        _point(width, gain.tokens, cost, by_width.get(width), measured)
        for width, gain in sorted(gains.items())
        if (cost := cost_of(width, gain.share)) is not None
    ]
    if len(points) < 2:
        return None
    best = best_width({point.width: point.predicted for point in points})
    named = refused is None and len(points) > 2
    first = members[0]
    ran = {point.width: point.measured.ratio for point in points if point.measured is not None}
    return WidthCurve(
        arms=_shared_words([each.arm.name for each in members]),
        engine=first.arm.engine,
        checkpoint=first.arm.checkpoint or "unknown",
        draft=first.arm.draft,
        prompt_class=first.cost.prompt_class,
        points=tuple(points),
        best=Figure(value=float(best), source=source) if named else unknown(refused or _why_no_best(members)),
        at_edge=named and best == points[-1].width,
        best_measured=best_width(ran | {1: 1.0}) if ran else None,
        source=source,
        refused=refused,
    )


def _disagreement(widest: Member, text: Text, members: Sequence[Member]) -> str | None:
    """Return why the replay does not hold, or None if no arm of another width contradicts it.

    The replayed answers end where they ended, as those of the other arms do.
    """
    for other in members:
        ran = other.rounds.accept_length
        if other.width >= widest.width or ran is None:
            continue
        replayed = text.walked(other.width, to_the_end=True).accept_length
        if abs(replayed / ran - 1) > AGREEMENT:
            return (
                f"the rounds of {widest.arm.name}, replayed at width {other.width}, commit {replayed:.2f} tokens each,"
                f" but {other.arm.name} committed {ran:.2f}: more than {AGREEMENT:.0%} apart"
            )
    return None


def _replayed(widest: Member, text: Text) -> dict[int, Gain]:
    """Return the gain of every width up to the most tokens that the arm checked at once; plain decoding commits one."""
    walks = {
        width: text.walked(width, to_the_end=False) for width in range(2, int(widest.free.drafted.max(initial=0)) + 2)
    }
    return {1: _ONE} | {width: Gain(tokens=walk.accept_length, share=walk.share) for width, walk in walks.items()}


def _as_they_ran(members: Sequence[Member]) -> dict[int, Gain]:
    """Return the measured gain of the widths that ran."""
    return {1: _ONE} | {
        each.width: Gain(tokens=length, share=len(each.free) / len(each.rounds))
        for each in members
        if (length := each.rounds.accept_length) is not None
    }


def _mixed(free: float, fixed: float | None, share: float) -> float:
    """Return the mean over all rounds; `fixed` is None if there are no fixed rounds."""
    return free if fixed is None else share * free + (1 - share) * fixed


def _why_no_best(members: Sequence[Member]) -> str:
    also = "; the passes that were timed outlast the rounds that they are part of" if _outlast(members) else ""
    return f"fewer than two widths to choose from{also}"


def _outlast(members: Sequence[Member]) -> bool:
    return any(outlasts_its_round(verify=each.cost.verify_cost, round_cost=each.cost.round_cost) for each in members)


def _shared_words(names: Sequence[str]) -> str:
    """Return the common words in the names of arms that differ only in their width."""
    return " ".join(word for word in names[0].split() if all(word in name.split() for name in names))


def best_width(predicted: Mapping[int, float]) -> int:
    """Return the width with the largest speed-up, the narrowest among equals."""
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


def _costs(members: Sequence[Member], passes: Passes) -> tuple[CostOf, str]:
    """Return the cost of a round by width, and its source: timed passes, unless wider rounds ran than were timed, or
    the passes outlast the rounds that they are part of.
    """
    fixed = Rounds.joined(each.fixed for each in members)
    whole = {each.width: cost for each in members if each.width and (cost := _whole_round(each)) is not None}
    timed = [passes.target[each.arm.name] for each in members if each.arm.name in passes.target]
    drafting, drafter = _drafting(members)
    verify = relative_to_one(max(timed, key=lambda each: len(each.seconds))) if timed else {}
    known = {width: cost for width in fixed.widths if (cost := interpolated(verify, width)) is not None}
    fits = not _outlast(members) and (not len(fixed) or fixed.weighted(known) is not None)
    if verify and drafting is not None and fits and max(verify) >= max(whole, default=1):
        return _from_passes(verify, drafting, fixed.weighted(known)), f"{timed[0].source}{drafter}"
    plain_s = members[0].cost.plain_s.value
    fixed_cost = fixed.step_s / plain_s if plain_s and fixed.step_s is not None else None
    return _from_rounds(whole, fixed_cost), "whole rounds, on straight lines between the widths that ran"


def _whole_round(member: Member) -> float | None:
    """Return the time of a full round: rounds truncated by an answer's end are cheaper and left out."""
    plain_s, free = member.cost.plain_s.value, member.free
    if member.cost.round_cost.value is None or not plain_s or not len(free):
        return None
    seconds = free.seconds[free.drafted == member.width - 1]
    step_s = float(np.median(seconds)) if len(seconds) else free.step_s
    return None if step_s is None else step_s / plain_s


def _drafting(members: Sequence[Member]) -> tuple[Callable[[int], float] | None, str]:
    """Return the drafter's share of a free round by its width (None if no arm shows it), and its source."""
    engine = members[0].arm.engine
    if engine in NO_DRAFTING_MODEL:
        return (lambda width: 0.0), ""
    known = [(each.cost.draft_cost.value, each) for each in members if each.rounds.proposing]
    shares = [(share, each) for share, each in known if share is not None]
    if not shares:
        return None, ""
    timed = all(each.cost.independent for _, each in shares)
    source = ", and the drafter's pass" if timed else ", and the rest of the rounds as the drafter's share"
    if engine in PASSES_PER_TOKEN:
        a_token = float(np.mean([share / each.rounds.drafted.mean() for share, each in shares]))
        return (lambda width: (width - 1) * a_token), source
    a_block = float(np.mean([share / each.rounds.proposing for share, each in shares if each.rounds.proposing]))
    return (lambda width: a_block), source


def _from_passes(verify: Mapping[int, float], drafting: Callable[[int], float], fixed: float | None) -> CostOf:
    def cost_of(width: int, share: float) -> Cost | None:
        known = interpolated(verify, width)
        if width == 1 or known is None:
            return _PLAIN if width == 1 else None
        checked, drafted = _mixed(known, fixed, share), share * drafting(width)
        return Cost(round=checked + drafted, verify=checked, draft=drafted, interpolated=width not in verify)

    return cost_of


def _from_rounds(whole: Mapping[int, float], fixed: float | None) -> CostOf:
    def cost_of(width: int, share: float) -> Cost | None:
        value = interpolated(whole, width)
        if width == 1 or value is None:
            return _PLAIN if width == 1 else None
        return Cost(round=_mixed(value, fixed, share), verify=None, draft=None, interpolated=width not in whole)

    return cost_of


_ONE = Gain(tokens=1.0, share=1.0)
_PLAIN = Cost(round=1.0, verify=1.0, draft=0.0, interpolated=False)
