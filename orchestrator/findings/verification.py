"""The cost and the yield of verification, for each speculative arm. Pure; docs/meaning.md has the formulas.

In units of a plain step of the same weights in the same run, a verify round costs `verify + draft` and yields
`accept_length` tokens, so speculation is worth accept_length / (verify + draft) (Leviathan et al. 2023, theorem 3.8,
with the verification's cost measured instead of taken as 1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.findings.records import Answer, ArmRecord, PassTimes, plain_arm_of, unknown
from orchestrator.findings.rounds import Rounds, plain_seconds
from orchestrator.findings.values import Figure, Interval, PassCurve, VerifyCost
from workers.sampling import sampler_words

# In these engines the drafting model runs once per proposal; in others once per round, for a whole block.
PASSES_PER_TOKEN = frozenset({"mlx_lm_draft", "mlx_lm_server_draft", "mtp"})
NO_DRAFTING_MODEL = frozenset({"prompt_lookup"})
ADDS_UP = 0.8  # passes must add up to at least this share of a round, and may exceed it by at most the same factor
OF_PASSES = "accept length / (verify + draft)"  # source of a prediction that is independent of the rounds' times
LEAST_STEPS = 5  # fewer plain steps or rounds do not give a usable median

Measured = Mapping[tuple[str, str | None], Interval]  # arm over its plain arm in decode_tps, by arm and class


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """The known times of passes, by arm."""

    target: Mapping[str, PassTimes]
    draft: Mapping[str, PassTimes]


def passes_of(
    arms: Sequence[ArmRecord],
    answers: Sequence[Answer],
    *,
    target: Mapping[str, PassTimes],
    draft: Mapping[str, PassTimes],
) -> Passes:
    """Return the times by arm. Arms that time passes, interleaved with all others, come before the probe.

    An arm whose target was not timed takes the times of one with the same weights.

    Args:
        target, draft: the probe's times, by the arm that was asked.
    """
    by_weights: dict[str | None, PassTimes] = {}
    for arm in reversed(arms):
        if arm.weights is not None and arm.name in target:
            by_weights[arm.weights] = target[arm.name]
    for weights in {arm.weights for arm in arms if arm.times_passes and arm.weights is not None}:
        timed = {arm.name: arm for arm in arms if arm.times_passes and arm.weights == weights and arm.width}
        seconds = {
            arm.width: float(np.median(steps))
            for name, arm in timed.items()
            if arm.width is not None
            and len(steps := plain_seconds(each for each in answers if each.measured and each.arm == name))
        }
        if 1 in seconds:
            source = f"interleaved passes of {len(seconds)} widths in this run (engine verify_cost)"
            by_weights[weights] = PassTimes(arm=next(iter(timed)), role="target", seconds=seconds, source=source)
    shared = {arm.name: by_weights[arm.weights] for arm in arms if arm.weights in by_weights}
    return Passes(target={**target, **shared}, draft=draft)


def verify_costs(
    arms: Sequence[ArmRecord], answers: Sequence[Answer], *, passes: Passes, measured: Measured
) -> tuple[VerifyCost, ...]:
    """Compute the costs of each speculative arm: over all classes, then in each class if there are several."""
    used = [answer for answer in answers if answer.measured]
    classes = sorted({answer.prompt_class for answer in used})
    scopes: list[str | None] = [None, *classes] if len(classes) > 1 else [None]
    return tuple(
        _cost(arm, plain_arm_of(arm, arms), scope, used, passes, measured.get((arm.name, scope)))
        for arm in arms
        if arm.speculates
        for scope in scopes
        if scope is None or any(answer.arm == arm.name and answer.prompt_class == scope for answer in used)
    )


def _cost(
    arm: ArmRecord,
    plain: ArmRecord | None,
    scope: str | None,
    used: Sequence[Answer],
    passes: Passes,
    measured: Interval | None,
) -> VerifyCost:
    mine = [answer for answer in used if answer.arm == arm.name and scope in (None, answer.prompt_class)]
    rounds = Rounds.of(mine)
    plain_s = _plain_s(arm, plain, scope, used)
    round_cost = _round_cost(rounds, mine, plain_s)
    verify = verify_cost_of(rounds, passes.target.get(arm.name))
    timed = _timed_draft(arm, rounds, plain_s, passes.draft.get(arm.name))
    draft = timed or what_is_left(verify=verify, round_cost=round_cost)
    predicted = predicted_speedup(rounds.accept_length, verify=verify, draft=timed, round_cost=round_cost)
    return VerifyCost(
        arm=arm.name,
        prompt_class=scope,
        width=arm.width,
        rounds_timed=len(rounds),
        accept_length=rounds.accept_length,
        proposing=rounds.proposing,
        acceptance_by_position=rounds.chances(),
        step_s=rounds.step_s,
        plain_arm=None if plain is None else plain.name,
        plain_s=plain_s,
        round_cost=round_cost,
        verify_cost=verify,
        draft_cost=draft,
        predicted=predicted,
        independent=predicted.source == OF_PASSES,
        measured=measured,
        one_more=one_more(rounds, round_cost=round_cost),
        doubt=doubt(verify=verify, draft=draft, round_cost=round_cost),
    )


def _plain_s(arm: ArmRecord, plain: ArmRecord | None, scope: str | None, used: Sequence[Answer]) -> Figure:
    if plain is None:
        return unknown(
            f"no plain arm of {arm.checkpoint} at {sampler_words(arm.sampler)} ran beside it, so a plain step was not "
            "timed"
        )
    seconds = plain_seconds(
        answer for answer in used if answer.arm == plain.name and scope in (None, answer.prompt_class)
    )
    if len(seconds) < LEAST_STEPS:
        return unknown(f"{plain.name}: fewer than {LEAST_STEPS} plain steps are timed")
    return Figure(value=float(np.median(seconds)), source=f"median of {len(seconds)} steps of {plain.name}")


def _round_cost(rounds: Rounds, mine: Sequence[Answer], plain_s: Figure) -> Figure:
    if not mine:
        return unknown("no finished answer of it is stored")
    if rounds.step_s is None or len(rounds) < LEAST_STEPS:
        has_steps = any(answer.steps for answer in mine)
        return unknown(
            f"fewer than {LEAST_STEPS} verify rounds are timed"
            if has_steps
            else "the engine does not report its verify rounds"
        )
    if plain_s.value is None:
        return unknown(plain_s.source)
    return Figure(value=rounds.step_s / plain_s.value, source=f"{len(rounds)} verify rounds over plain steps")


def verify_cost_of(rounds: Rounds, times: PassTimes | None) -> Figure:
    """Return the target's T(width) / T(1), averaged over the widths of the rounds."""
    if times is None or 1 not in times.seconds:
        return unknown("the time of a pass by its width was not measured: see sweep=verify_cost")
    known = {width: cost for width in rounds.widths if (cost := interpolated(relative_to_one(times), width))}
    value = rounds.weighted(known)
    if value is None:
        widest = max(times.seconds)
        return unknown(f"no verify round, or one wider than the passes that were timed (up to {widest} tokens)")
    return Figure(value=value, source=times.source)


def _timed_draft(arm: ArmRecord, rounds: Rounds, plain_s: Figure, times: PassTimes | None) -> Figure | None:
    """Return the drafter's share from its own passes, or None if they were not timed."""
    if arm.engine in NO_DRAFTING_MODEL:
        return Figure(value=0.0, source="no model drafts: proposals are copied from the context")
    if times is None or not plain_s.value or not len(rounds):
        return None
    by_token = arm.engine in PASSES_PER_TOKEN
    width = 1 if by_token else max(times.seconds, default=1)
    if width not in times.seconds:
        return None
    passes = float(rounds.drafted.mean() if by_token else (rounds.drafted > 0).mean())
    share = passes * times.seconds[width] / plain_s.value
    return Figure(value=share, source=f"{passes:.2f} drafting passes of {width} a round, {times.source}")


def what_is_left(*, verify: Figure, round_cost: Figure) -> Figure:
    """Return the drafter's share as the rest of the round after verification: nothing if that takes the whole round."""
    if round_cost.value is None or verify.value is None:
        reason = "neither the drafting pass nor the verification was timed on its own"
        return unknown(round_cost.source if round_cost.value is None else reason)
    if outlasts_its_round(verify=verify, round_cost=round_cost):
        return unknown("the verification's passes took longer alone than the rounds that they are part of")
    nothing = ": nothing within noise" if verify.value > round_cost.value else ""
    left = max(0.0, round_cost.value - verify.value)
    return Figure(value=left, source=f"the rest of the round after verification{nothing}")


def outlasts_its_round(*, verify: Figure, round_cost: Figure) -> bool:
    """Return whether passes of verification took longer, beyond noise, than the whole rounds that they are part of:
    then they cannot describe these rounds.
    """
    return bool(verify.value is not None and round_cost.value and verify.value > round_cost.value / ADDS_UP)


def predicted_speedup(
    accept_length: float | None, *, verify: Figure, draft: Figure | None, round_cost: Figure
) -> Figure:
    """Return accept_length / (verify + draft) if both were timed, else accept_length / round_cost.

    Args:
        draft: from its own passes; None: it is only the rest of the round, and would give the same as the round.
    """
    if accept_length is None:
        return unknown(round_cost.source)
    if verify.value and draft is not None and draft.value is not None:
        return Figure(value=accept_length / (verify.value + draft.value), source=OF_PASSES)
    if round_cost.value is None:
        return unknown(round_cost.source)
    return Figure(value=accept_length / round_cost.value, source="accept length / cost of the round as a whole")


def doubt(*, verify: Figure, draft: Figure, round_cost: Figure) -> str | None:
    """Return a remark if timed passes and timed rounds do not add up."""
    if verify.value is None or not round_cost.value:
        return None
    if draft.value is None and outlasts_its_round(verify=verify, round_cost=round_cost):
        return (
            f"verify alone makes {verify.value / round_cost.value:.0%} of a round as it was timed: the machine had"
            " changed when the passes were timed; the drafter's share is unknown, and no widths are judged by them"
        )
    if draft.value is None:
        return None
    share = (verify.value + draft.value) / round_cost.value
    if ADDS_UP <= share <= 1 / ADDS_UP:
        return None
    return (
        f"verify and draft make {share:.0%} of a round as it was timed: the machine had changed when the passes were"
        " timed, or the engine's loop costs the rest; accept length over the round is the safer prediction"
    )


def one_more(rounds: Rounds, *, round_cost: Figure) -> Figure:
    """Return the speed-up if each proposing round committed one more token at the same cost.

    The formula is (accept_length + share of rounds that propose) / round_cost: a round without a proposal commits one
    token, however good the drafter is.
    """
    if rounds.accept_length is None or not rounds.proposing or round_cost.value is None:
        return unknown("no round proposed anything" if rounds.proposing == 0 else round_cost.source)
    proposing = rounds.only(rounds.drafted > 0)
    room, length = float(proposing.drafted.mean()) + 1, float(proposing.committed.mean())
    if length + 1 > room:
        return unknown(f"a round of {room:.3g} commits {room:.3g} tokens at most, and commits {length:.2f} already")
    more = (rounds.accept_length + rounds.proposing) / round_cost.value
    return Figure(value=more, source="(accept length + share of rounds that propose) / cost of a round")


def no_checks(costs: Sequence[VerifyCost]) -> list[str]:
    """Name the arms whose prediction comes from the measured rounds themselves: it agrees in any case.

    Args:
        costs: over all classes.
    """
    unchecked = [cost for cost in costs if cost.predicted.value is not None and not cost.independent]
    rest = [cost.arm for cost in unchecked if None not in (cost.verify_cost.value, cost.draft_cost.value)]
    whole = [cost.arm for cost in unchecked if cost.arm not in rest]
    lines = [f"{', '.join(rest)}: draft is only round - verify, and predicted is tokens / round"] if rest else []
    lines += [f"{', '.join(whole)}: predicted is tokens / round"] if whole else []
    return [f"{line}: no check of measured" for line in lines]


def proposing_words(cost: VerifyCost) -> str | None:
    """State how many of an arm's rounds propose anything, if not all do."""
    if cost.proposing is None or cost.proposing == 1:
        return None
    proposing = round(cost.proposing * cost.rounds_timed)
    return f"{proposing} of its {cost.rounds_timed} rounds propose anything; the others are plain steps, at any width"


def relative_to_one(times: PassTimes) -> dict[int, float]:
    """Return T(width) / T(1); empty if a pass of one token was not timed."""
    one = times.seconds.get(1)
    return {width: seconds / one for width, seconds in sorted(times.seconds.items())} if one else {}


def interpolated(known: Mapping[int, float], width: int) -> float | None:
    """Interpolate linearly between the nearest known widths; None outside them: nothing is extrapolated."""
    if width in known:
        return known[width]
    below, above = [w for w in known if w < width], [w for w in known if w > width]
    if not below or not above:
        return None
    low, high = max(below), min(above)
    return known[low] + (known[high] - known[low]) * (width - low) / (high - low)


def pass_curves(arms: Sequence[ArmRecord], passes: Passes) -> tuple[PassCurve, ...]:
    """Return T(width) once per timed checkpoint, from the arm with the most widths."""
    found: dict[tuple[str, str], PassCurve] = {}
    for role, timed in (("target", passes.target), ("draft", passes.draft)):
        for arm in arms:
            times = timed.get(arm.name)
            name = arm.checkpoint if role == "target" else arm.draft
            if times is None or name is None:
                continue
            old = found.get((role, name))
            if old is None or len(old.seconds) < len(times.seconds):
                found[role, name] = PassCurve(
                    checkpoint=name,
                    role="target" if role == "target" else "draft",
                    seconds=tuple(sorted(times.seconds.items())),
                    cost=tuple(relative_to_one(times).items()),
                    source=times.source,
                )
    return tuple(found.values())
