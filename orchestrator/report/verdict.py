"""The top of a report: the verdict in one sentence, and a line per arm. Pure."""

import math
from collections.abc import Iterable, Sequence

from orchestrator.audit import Comparison
from orchestrator.report.material import Material
from orchestrator.report.words import listed, number, percent, shortened, times
from orchestrator.statistics.comparability import Scope
from orchestrator.statistics.findings import COURSE, PROMPT
from orchestrator.vocabulary import METRICS

HEADLINE_CHARACTERS = 44
SHORTER_CHARACTERS = (HEADLINE_CHARACTERS, 28, 20)  # of each arm's name in a sentence of several
HEADLINE_LIMIT = 100  # characters: two or three lines of a page, four of a phone
NOT_RANDOMISED = "not_randomised"  # code of the reason that names the drift which would explain a difference
TOLD_ONE_BY_ONE = 3  # treatments; more are counted
DRIFT_WORTH_TELLING = 0.02
TOLD_AS_TIMES = 2.0  # from this factor on written as "times as fast" instead of percent

_CLAUSES = {
    "no_difference": ("{} makes no difference", "{} make no difference"),
    "could_be_drift": ("{} is undecided", "{} are undecided"),
    "not_engaged": ("{} gave no proof that its mechanism ran", "{} gave no proof that their mechanisms ran"),
    "confounded": ("{} cannot be compared: something else differed too",) * 2,
    "underpowered": ("{} has too few rounds to tell", "{} have too few rounds to tell"),
}
_VARIES = {PROMPT: "varies from prompt to prompt", COURSE: "varies during the run"}
_COUNTED = {
    "no_difference": ("makes no difference", "make no difference"),
    "could_be_drift": ("is undecided", "are undecided"),
    "not_engaged": ("did not engage", "did not engage"),
    "confounded": ("cannot be compared", "cannot be compared"),
    "underpowered": ("has too few rounds", "have too few rounds"),
}


def verdict_sentence(material: Material) -> str:
    """Describe the whole run in one sentence; no single winner is named if parts of the run disagree."""
    if not material.run.randomised:
        return _unrandomised(material)
    found = material.overall
    if not found:
        return "Nothing to compare: the run has no arm besides its control."
    if all(one.rounds == 0 for one in found):
        return "Nothing to judge yet: no round is complete."
    if material.findings.recommendation.disagree:
        return material.findings.recommendation.sentence
    control = in_a_headline(material.result.control)
    if len(found) > TOLD_ONE_BY_ONE:
        return f"Of {len(found)} arms compared with {control}, {listed(list(_counts(found, _because(material))))}."
    said = _fitting(found, _because(material))
    whole = f"Against {control}, {said}"
    return said if len(whole) > HEADLINE_LIMIT else whole


def _fitting(found: Sequence[Comparison], drift: str) -> str:
    """The findings in a sentence, the arms' names shortened until it fits a headline."""
    made = [f"{listed(clauses(found, drift, limit=limit))}." for limit in SHORTER_CHARACTERS]
    return next((said for said in made if len(said) <= HEADLINE_LIMIT), made[-1])


def clause(one: Comparison, *, limit: int = HEADLINE_CHARACTERS) -> str:
    """State the finding on one arm, without the control's name.

    Args:
        limit: characters of the arm's name.
    """
    arm = shortened(one.treatment, limit)
    if one.split is not None:
        return f"{arm}: better for one thing and worse for another"
    if (varies := one.varies) is not None:  # its sizes are on the arm's own line
        how = _VARIES[varies.code]
        return f"{arm} is {one.direction}, but {how}" if one.direction else f"{arm} {how}"
    if one.verdict == "supported":
        return f"{arm} is {speed_words(one)}"
    return _CLAUSES[one.verdict][0].format(arm)


def clauses(found: Sequence[Comparison], drift: str = "", *, limit: int = HEADLINE_CHARACTERS) -> list[str]:
    """State the findings on several arms: those without a size that share a verdict are grouped.

    Args:
        drift: the reason that arms are undecided, appended to these.
        limit: characters of each arm's name.
    """
    parts = [
        clause(one, limit=limit) for one in found if one.verdict == "supported" or one.split is not None or one.varies
    ]
    for verdict, (_, plural) in _CLAUSES.items():
        same = [one for one in found if one.verdict == verdict and one.split is None and not one.varies]
        why = drift if verdict == "could_be_drift" else ""
        if len(same) == 1:
            parts.append(clause(same[0], limit=limit) + why)
        elif same:
            parts.append(plural.format(listed([shortened(one.treatment, limit) for one in same])) + why)
    return parts


def in_a_headline(arm: str) -> str:
    """Shorten an arm's name for a headline; the tables show it whole."""
    return shortened(arm, HEADLINE_CHARACTERS)


def speed_words(one: Comparison) -> str:
    """Format a difference in speed: `13 % faster`, `2.4 times as fast`, `56 % slower`."""
    speed = speed_of(one)
    if speed is None:
        return "not measured"
    if speed >= TOLD_AS_TIMES:
        return f"{number(speed, digits=2)} times as fast"
    return f"{percent(abs(speed - 1))} {'faster' if speed > 1 else 'slower'}"


def speed_of(one: Comparison) -> float | None:
    """Return the treatment's speed over the control's, whether a higher or a lower metric is faster."""
    if one.ratio is None:
        return None
    return 1 / one.ratio if METRICS[one.metric].lower_is_faster else one.ratio


def drift_words(drift: float, metric: str) -> str:
    """Describe a drift of the metric as a change of the machine's speed."""
    if METRICS[metric].lower_is_faster:
        return f"took {percent(abs(drift))} {'longer' if drift > 0 else 'less'} at the end than at the start"
    return f"{'lost' if drift < 0 else 'gained'} {percent(abs(drift))} of its speed"


def _counts(found: Sequence[Comparison], drift: str) -> Iterable[str]:
    for direction in ("faster", "slower"):
        arms = [one for one in found if one.verdict == "supported" and one.split is None and one.direction == direction]
        arms = [one for one in arms if one.varies is None]
        if arms:
            extreme = (max if direction == "faster" else min)(arms, key=lambda one: speed_of(one) or 1.0)
            verb = "is" if len(arms) == 1 else "are"
            most = f"{in_a_headline(extreme.treatment)}: {speed_words(extreme)}"
            most = f"most of all {most}" if len(arms) > 1 else most
            yield f"{len(arms)} {verb} {direction} ({most})"
    if split := [one for one in found if one.split is not None]:
        yield f"{len(split)} better for one thing and worse for another"
    if varying := [one for one in found if one.varies is not None and one.split is None]:
        verb = "depends" if len(varying) == 1 else "depend"
        yield f"{len(varying)} {verb} on the prompt or changed during the run"
    for verdict, (singular, plural) in _COUNTED.items():
        if count := sum(one.verdict == verdict and one.split is None and one.varies is None for one in found):
            yield f"{count} {singular if count == 1 else plural}{drift if verdict == 'could_be_drift' else ''}"


def _because(material: Material) -> str:
    """Return the drift that leaves arms undecided, as the end of a sentence; empty if there is none worth telling."""
    drift = told_drift(material)
    return "" if drift is None else f", because the machine {drift_words(drift, material.result.metric)}"


def told_drift(material: Material) -> float | None:
    """Return the change of the control from its first run to its last if it is worth telling, else None."""
    drift = material.result.drift
    if drift is None or abs(drift) < DRIFT_WORTH_TELLING or _within_floor(material, 1 + drift):
        return None
    return drift


def _within_floor(material: Material, ratio: float) -> bool:
    """Return whether two equal arms differ as much in this run: then two control runs show nothing about its drift."""
    return any(
        floor.effect.ci_low <= ratio <= floor.effect.ci_high
        for floor in material.result.floors
        if floor.scope == Scope()
    )


def _unrandomised(material: Material) -> str:
    """State the largest difference and that it proves nothing; each arm's line has the drift that would explain it."""
    found = [one for one in material.overall if one.ratio is not None]
    if not found:
        return "The order was not drawn at random, so nothing here can be distinguished from drift."
    one = max(found, key=lambda each: abs(math.log(each.ratio or 1.0)))
    pair = f"{in_a_headline(one.treatment)} and {in_a_headline(one.control)}"
    return f"The order was not drawn at random: the {times(one.ratio)} between {pair} may be drift."


def sentence(one: Comparison) -> str:
    """State the verdict on the two arms in a sentence."""
    pair = f"{one.treatment} against {one.control}"
    if one.split is not None:
        return f"{pair}: better for one thing and worse for another, so no overall winner"
    if (varies := one.varies) is not None:
        return f"{pair}: {varies.text}"
    if one.verdict == "supported" and (speed := speed_of(one)) is not None:
        return f"{one.treatment} is {speed_words(one)} {'as' if speed >= TOLD_AS_TIMES else 'than'} {one.control}"
    if one.verdict == "no_difference":
        return f"{pair} make no difference that matters"
    if one.verdict == "could_be_drift":
        return f"{pair}: the difference may come from the machine, not from the setting"
    return f"{pair}: {'; '.join(reason.text for reason in one.reasons[:2])}"
