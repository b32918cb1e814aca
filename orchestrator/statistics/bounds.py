"""Bounds on the effect of lost trials, for losses that may depend on the arm. Pure.

Trials that a rule left out were measured all the same: the first attempts with all of them are what the arms did before
anybody chose (intention to treat). A trial without a value is given the worst: as many of the arm that lost more as it
lost more are put where its most adverse round stands, once for each direction (Lee 2009, with ranks for the tail).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from orchestrator.effects import Effect
from orchestrator.estimation.inversion import Floats
from orchestrator.statistics.comparability import Reason
from orchestrator.statistics.losses import PairLosses
from orchestrator.statistics.observations import ScopeTrials

EQUAL_LEVEL = 0.5  # of "no difference": two trials of one arm alone, p = 0.5, may hide 7 % of 20 rounds


def worst_cases(first: ScopeTrials, *, treatment: str, control: str) -> tuple[ScopeTrials, ...]:
    """The first attempts with missing trials at the lowest and at the highest; none when both miss as many."""
    has = [_complete(first, label, other) for label, other in ((treatment, control), (control, treatment))]
    lone = [sorted(has[0] - has[1]), sorted(has[1] - has[0])]
    more = len(lone[1]) - len(lone[0])
    both = sorted(has[0] & has[1])
    if more == 0 or not both:
        return ()
    missing, other = (treatment, control) if more > 0 else (control, treatment)
    rounds = lone[1 if more > 0 else 0][: abs(more)]
    gaps = _values(first, missing, both) - _values(first, other, both)
    return tuple(_filled(first, missing, other, rounds, float(gap)) for gap in (gaps.min(), gaps.max()))


def _complete(trials: ScopeTrials, label: str, other: str) -> set[int]:
    """The rounds in which a label lacks no cell that the other has there; one that it never has does not count."""
    own = trials.labels == label
    rounds = set(trials.rounds[own].tolist())
    if trials.cells is None:
        return rounds
    whose, number = trials.labels[trials.cells.trial], trials.rounds[trials.cells.trial]
    mine, others = (
        set(zip(number[whose == one].tolist(), trials.cells.cell[whose == one].tolist(), strict=True))
        for one in (label, other)
    )
    ever = {cell for _, cell in mine}
    return rounds - {at for at, cell in others - mine if cell in ever}


def _values(trials: ScopeTrials, label: str, rounds: Sequence[int]) -> Floats:
    own = trials.labels == label
    of_round = dict(zip(trials.rounds[own].tolist(), trials.y[own].tolist(), strict=True))
    return np.array([of_round[number] for number in rounds])


def _filled(trials: ScopeTrials, missing: str, other: str, rounds: Sequence[int], gap: float) -> ScopeTrials:
    """Return the trials with one of `missing` added after that of `other` in each of the rounds.

    A trial of `missing` that lacks some of its values gives way to it.
    """
    trials = trials.without((trials.labels == missing) & np.isin(trials.rounds, rounds))
    at = np.flatnonzero((trials.labels == other) & np.isin(trials.rounds, rounds))
    return replace(
        trials,
        cells=None,  # each trial is one number: a trial without a value lacks every cell
        y=np.insert(trials.y, at + 1, trials.y[at] + gap),
        rounds=np.insert(trials.rounds, at + 1, trials.rounds[at]),
        labels=np.insert(trials.labels, at + 1, missing),
        prompts=None if trials.prompts is None else np.insert(trials.prompts, at + 1, trials.prompts[at]),
    )


def limited(
    effect: Effect | None, bounds: Sequence[Effect | None], losses: PairLosses, *, names: tuple[str, str], margin: float
) -> Reason | None:
    """Return why the lost trials contradict the verdict of the kept ones, or None if they do not.

    "No difference" must hold with them as soon as one arm lost more, and is not said at all of an arm that may well
    fail more often: what it would have shown may be worse than any value that was measured. A difference must hold with
    them when the losses may well depend on the arm or on its place.

    Args:
        bounds: with the first attempts, and with the worst cases of what has no value.
        names: the treatment's and the control's.
    """
    if effect is None:
        return None
    same = _inside(effect, margin)
    if not (losses.depend or (same and losses.unequal)):
        return None
    if not same and effect.ci_low <= 1 <= effect.ci_high:
        return None
    known = [one for one in bounds if one is not None]
    agree = [_inside(one, margin) if same else _clear_like(one, effect) for one in known]
    fails_more = same and len(bounds) > 1 and losses.p_arm <= EQUAL_LEVEL
    if known and all(agree) and not fails_more:
        return None
    worst = None if fails_more or not known else known[agree.index(False)]
    span = "unknown" if worst is None else f"{worst.ratio:.3f} ({worst.ci_low:.3f} to {worst.ci_high:.3f})"
    text = (
        f"rounds lost, or without some values, because of {names[0]} alone: {losses.treatment}, because of {names[1]}"
        f" alone: {losses.control}"
        f" (p = {losses.p_arm:.3f} by arm, {losses.p_place:.3f} by place){_unknown(losses)}; with the first attempts"
        f" the effect could be {span}"
    )
    return Reason(code="losses", text=text)


def _unknown(losses: PairLosses) -> str:
    return f", because of an arm that is not stored: {losses.unknown}" if losses.unknown else ""


def _inside(effect: Effect, margin: float) -> bool:
    return effect.ci_low > 1 - margin and effect.ci_high < 1 / (1 - margin)


def _clear_like(one: Effect, effect: Effect) -> bool:
    return one.ci_low > 1 if effect.ratio > 1 else one.ci_high < 1
