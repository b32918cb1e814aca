"""The course of a run: trials in time order, drift and readings of the machine."""

import math
from collections.abc import Iterable

from orchestrator.audit import AuditResult
from orchestrator.report.charts.timeline import MOST_PANELS, MOST_TOGETHER, timeline
from orchestrator.report.course import Course, course_of, thinned
from orchestrator.report.document import Absent, Picture, Section
from orchestrator.report.material import Material, metric_words, palette_of, rounds_words
from orchestrator.report.sections.round_lines import _finite
from orchestrator.report.sketches import round_strokes
from orchestrator.report.verdict import clause, drift_words, in_a_headline, told_drift
from orchestrator.report.words import (
    change,
    counted,
    percent,
    seconds,
    span,
)
from orchestrator.statistics.observations import ALL
from orchestrator.vocabulary import METRICS

MOST_SPOTS = 600  # drawn one by one
STEADY = 0.01
WORTH_TELLING_S = 0.5  # of waiting


def course_section(material: Material) -> Section | Absent:
    """Build the section of trials in time order."""
    by_time = not material.run.simulated
    course = course_of(material.trials, control=material.result.control, metric=material.result.metric, by_time=by_time)
    if not any(spot.relative is not None for spot in course.spots):
        return Absent(title="Trials in time order", reason="no trial with a value beside one of the control is stored")
    shown = thinned(course, MOST_SPOTS)
    ratios = {one.treatment: one.ratio for one in material.overall if one.ratio is not None}
    palette, lower = palette_of(material), METRICS[material.result.metric].lower_is_faster
    picture = Picture(
        key="trials",
        title=_course_title(material, course),
        detail=" ".join((*_course_detail(material, shown), *_machine_lines(material, course))),
        draw=lambda layout: timeline(shown, palette=palette, ratios=ratios, lower_is_faster=lower, layout=layout),
        sketch=lambda width: round_strokes(material.findings.speed_by_round, width),
    )
    return Section(
        key="trials",
        title="Reasons for the verdict",
        pictures=(picture,),
        lines=tuple(_drift_lines(material.result)),
    )


def _drift_lines(result: AuditResult) -> Iterable[str]:
    """Yield lines on the run's drift and the A/A floor."""
    if result.drift is None:
        yield f"Drift of the run: unknown ({result.drift_reason})."
    else:
        yield f"Drift of the run: {change(result.drift)} from the first control run to the last."
    for floor in result.floors:
        if floor.scope == ALL:
            effect = floor.effect
            ends = _finite(effect.ci_low), _finite(effect.ci_high)
            interval = "too few rounds for an interval" if None in ends else span(*ends, digits=3)
            yield f"A/A floor: the control against itself {effect.ratio:.3f} ({interval})."


def _course_title(material: Material, course: Course) -> str:
    machine = _machine_words(material, course)
    clear = [
        one for one in material.overall if one.verdict == "supported" and one.split is None and one.wins is not None
    ]
    if clear:
        one = max(clear, key=lambda each: abs(math.log(each.ratio or 1.0)))
        won = one.wins if one.direction == "faster" else one.rounds - (one.wins or 0)
        return f"{machine}; {in_a_headline(one.treatment)} was {one.direction} in {won} of {one.rounds} rounds"
    doubtful = [one for one in material.overall if one.verdict == "could_be_drift"]
    return f"{machine}; {clause(doubtful[0])}" if doubtful and material.run.randomised else machine


def _machine_words(material: Material, course: Course) -> str:
    """The machine's course in words: the drift that the answer names, where it names one."""
    told, moved = told_drift(material), course.drift_range
    if told is not None:
        return f"The machine {drift_words(told, material.result.metric)}"
    if moved is None:
        return "The run in time order"
    if abs(moved) <= STEADY:
        return f"The control's own level stayed within {percent(STEADY)}"
    return f"The control's own level moved by {percent(abs(moved))}"


def _course_detail(material: Material, course: Course) -> Iterable[str]:
    yield (
        f"{metric_words(material).capitalize()} of every trial, relative to the control's average on the same prompts"
        f" ({percent(1.0)}); {rounds_words(material)}; log scale: equal factors run parallel."
    )
    if course.drift:
        yield (
            "Grey band: the control's own level, smoothed: the drift of the machine. Dashed: that drift times the arm's"
            " ratio, where the arm is expected."
        )
    if course.drawn_together > 1:
        yield f"Each mark is the median of up to {course.drawn_together} trials, its line their middle half."
    if any(spot.state != "used" for spot in course.spots):
        yield (
            "Crosses: red for invalid trials, amber for excluded and interrupted ones; at the bottom if nothing was"
            " measured."
        )
    if len(material.treatments) > MOST_TOGETHER:
        shown = min(len(material.treatments), MOST_PANELS)
        across = "minutes of run time" if not material.run.simulated else "trials in their order"
        yield f"A panel an arm beside the control, {across} across; {shown} of {len(material.treatments)} arms."


def _machine_lines(material: Material, course: Course) -> Iterable[str]:
    if course.thermal_reason is not None:
        yield f"Thermal level: not recorded ({course.thermal_reason})."
    waits = [spot.wait_s for spot in course.spots if spot.wait_s is not None and spot.wait_s >= WORTH_TELLING_S]
    if waits:
        yield f"{counted(len(waits), 'trial')} waited for the machine, {seconds(sum(waits))} together."
    elif not material.run.simulated:
        yield "No trial had to wait for the machine."
    if not course.by_time:
        yield "Placed by their number, not by the clock: a simulation's clock has no meaning."
