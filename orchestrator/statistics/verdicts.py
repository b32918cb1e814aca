"""The six verdicts and their conditions, in the order in which they are tried. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.effects import Effect
from orchestrator.schedule import minimum_rounds
from orchestrator.statistics.comparability import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All that a verdict depends on."""

    effect: Effect | None  # None: no complete round
    floor: Effect | None  # the control against its second entry; None: it has none
    idle: tuple[Reason, ...]  # signs that a requested mechanism did not run
    confounders: tuple[Reason, ...]
    family_p: float | None  # None: no family, one treatment only
    family_size: int
    carry_over: Reason | None  # trials change the ones after them
    alpha: float
    margin: float
    squares: int | None = None  # of a Williams design, in which arms are only exchanged over whole squares; else None
    doubts: tuple[Reason, ...] = ()  # against "supported"
    limits: tuple[Reason, ...] = ()  # against "supported" and against "no difference"
    unlike: tuple[Reason, ...] = ()  # against "no difference": differences that the mean does not show


def decide(case: Case) -> tuple[str, tuple[Reason, ...]]:
    """Return the verdict and the reasons that decided it."""
    if case.idle:
        return "not_engaged", case.idle
    if case.confounders:
        return "confounded", case.confounders
    needed = minimum_rounds(case.alpha)
    if case.squares is not None and case.squares < needed:
        text = f"{case.squares} Williams squares; a level of {case.alpha:g} needs {needed}"
        return "underpowered", (Reason(code="too_few_rounds", text=text),)
    if case.effect is None or case.effect.rounds < needed:
        complete = case.effect.rounds if case.effect else 0
        rounds = "1 complete round" if complete == 1 else f"{complete} complete rounds"
        text = f"{rounds}; a level of {case.alpha:g} needs {needed}"
        return "underpowered", (Reason(code="too_few_rounds", text=text),)
    return _weigh(case, case.effect)


def _weigh(case: Case, effect: Effect) -> tuple[str, tuple[Reason, ...]]:
    inside = lies_inside(effect, case.margin)
    if inside and case.unlike:
        return "could_be_drift", (*case.unlike, *case.limits)
    if inside and not case.limits:
        text = f"the interval {_span(effect)} lies inside the margin of {case.margin:.1%}"
        return "no_difference", (Reason(code="inside_margin", text=text),)
    if against := tuple(_doubts(case, effect)):
        return "could_be_drift", against
    return "supported", tuple(_supports(case, effect))


def lies_inside(effect: Effect, margin: float) -> bool:
    """Return whether the whole interval lies inside the margin."""
    return effect.ci_low > 1 - margin and effect.ci_high < 1 / (1 - margin)


def _doubts(case: Case, effect: Effect) -> Sequence[Reason]:
    found = []
    if effect.ci_low <= 1 <= effect.ci_high:
        found.append(Reason(code="interval_includes_1", text=f"the interval {_span(effect)} includes 1"))
    floor = case.floor
    if floor is not None and not _clear(effect, floor):
        text = f"{effect.ratio:.3f} ({_span(effect)}) is not clear of the A/A floor {floor.ratio:.3f} ({_span(floor)})"
        found.append(Reason(code="inside_floor", text=text))
    if not found and case.family_p is not None and case.family_p > case.alpha:
        text = f"the largest of {case.family_size} comparisons looks like this by chance with p = {case.family_p:.3f}"
        found.append(Reason(code="one_of_many", text=text))
    if case.carry_over is not None:
        found.append(case.carry_over)
    return [*found, *case.doubts, *case.limits]


def _supports(case: Case, effect: Effect) -> Sequence[Reason]:
    found = [Reason(code="clear_of_1", text=f"the interval {_span(effect)} is clear of 1")]
    if case.floor is None:
        text = "the control was not entered twice: no A/A floor to be clear of"
        found.append(Reason(code="no_floor", text=text))
    else:
        text = f"clear of the A/A floor {case.floor.ratio:.3f} ({_span(case.floor)})"
        found.append(Reason(code="clear_of_floor", text=text))
    if case.family_p is not None:
        text = f"p = {case.family_p:.4f} for the family of {case.family_size} comparisons"
        found.append(Reason(code="clear_in_family", text=text))
    return found


def _clear(effect: Effect, floor: Effect) -> bool:
    """Return whether neither ratio lies in the other's interval.

    Intervals that do not touch at all would count the same noise twice: the power for 5 % at eight rounds would fall
    from 0.98 to 0.75 under a saturating drift.
    """
    return not (effect.ci_low <= floor.ratio <= effect.ci_high or floor.ci_low <= effect.ratio <= floor.ci_high)


def _span(effect: Effect) -> str:
    return f"{effect.ci_low:.3f} to {effect.ci_high:.3f}"
