"""The results: trials in time order, ratios, rounds, arms in numbers, and the composition of two factors."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.audit import AuditResult, BestSet, Comparison
from orchestrator.report.charts.ratios import EffectRow, RoundPanel, by_round, forest
from orchestrator.report.charts.theme import Palette
from orchestrator.report.charts.timeline import MOST_PANELS, MOST_TOGETHER, timeline
from orchestrator.report.course import Course, course_of, thinned
from orchestrator.report.document import Absent, Cell, Grid, Picture, Section
from orchestrator.report.material import Material
from orchestrator.report.sketches import ratio_strokes, round_strokes
from orchestrator.report.verdict import clause, in_a_headline, speed_of
from orchestrator.report.words import (
    MISSING,
    change,
    counted,
    decimals,
    listed,
    number,
    p_value,
    percent,
    seconds,
    size,
    span,
    times,
)
from orchestrator.schedule import AA_LABEL
from orchestrator.statistics.observations import ALL, ArmSummary, round_values
from orchestrator.statistics.run_drift import RUN_DRIFT
from orchestrator.vocabulary import METRICS, VERDICTS, mark

MOST_SPOTS = 600  # drawn one by one
MOST_ROUNDS = 80  # drawn one by one in a panel
MOST_ROUND_PANELS = 12
MOST_ROWS = 40
MOST_SKETCHED = 24  # drawn with characters; the table has all of them
STEADY = 0.01
NOT_RANDOMISED = "the order was not drawn at random: no interval and no test is valid"
WORTH_TELLING_S = 0.5  # of waiting


def palette_of(material: Material) -> Palette:
    control = material.result.control
    return Palette(control=control, arms=tuple(arm.name for arm in material.plan.arms if arm.name != control))


def rounds_of(material: Material) -> int:
    """Return the largest number of complete rounds of any comparison."""
    return max((one.rounds for one in material.overall), default=0)


def rounds_words(material: Material) -> str:
    return counted(rounds_of(material), "complete round") if material.run.randomised else "no rounds"


def metric_words(material: Material) -> str:
    return METRICS[material.result.metric].words


# ---- the first picture ----


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
    moved = None if course.drift_range is None else abs(course.drift_range)  # of the band that is drawn
    if moved is None:
        machine = "The run in time order"
    elif moved <= STEADY:
        machine = f"The control's own level stayed within {percent(STEADY)}"
    else:
        machine = f"The control's own level moved by {percent(moved)} during the run"
    clear = [
        one for one in material.overall if one.verdict == "supported" and one.split is None and one.wins is not None
    ]
    if clear:
        one = max(clear, key=lambda each: abs(math.log(each.ratio or 1.0)))
        won = one.wins if one.direction == "faster" else one.rounds - (one.wins or 0)
        return f"{machine}; {in_a_headline(one.treatment)} was {one.direction} in {won} of {one.rounds} rounds"
    doubtful = [one for one in material.overall if one.verdict == "could_be_drift"]
    return f"{machine}; {clause(doubtful[0])}" if doubtful and material.run.randomised else machine


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


# ---- ratios ----


def effects_section(material: Material) -> Section | Absent:
    """Build the section of ratios with intervals, over all and by scope."""
    result = material.result
    known = [one for one in result.comparisons if one.ratio is not None]
    if not material.run.randomised:
        return Absent(title="Ratios with their intervals", reason=NOT_RANDOMISED)
    if not known:
        return Absent(title="Ratios with their intervals", reason="no round holds both an arm and the control")
    pictures = [_forest(material, "ratios", _overall_title(material), [_row(one) for one in known if one.over_all])]
    parts = [one for one in known if not one.over_all]
    if parts:
        rows = list(_grouped(parts))
        pictures.append(_forest(material, "ratios-by-scope", _parts_title(parts), rows[:MOST_ROWS]))
    return Section(
        key="ratios", title="How much, and how sure", pictures=tuple(pictures), grids=tuple(_effect_grids(material))
    )


def _forest(material: Material, key: str, title: str, rows: Sequence[EffectRow]) -> Picture:
    palette, result = palette_of(material), material.result
    floor = any(row.floor_low is not None for row in rows)
    detail = (
        f"Ratio of {metric_words(material)} to {result.control} with its {percent(1 - result.alpha)} interval,"
        f" {rounds_words(material)}. Light band: within {percent(result.margin)} of 1, no"
        " difference that matters."
    )
    if floor:
        detail += " Dark band: the control against itself (A/A), the difference that two equal arms show here."
    lower = METRICS[result.metric].lower_is_faster
    return Picture(
        key=key,
        title=title,
        detail=detail,
        draw=lambda layout: forest(rows, palette=palette, margin=result.margin, lower_is_faster=lower, layout=layout),
        sketch=(lambda width: ratio_strokes(rows, width)) if len(rows) <= MOST_SKETCHED else None,
    )


def _row(one: Comparison) -> EffectRow:
    return EffectRow(
        label=one.treatment,
        arm=one.treatment,
        verdict=one.verdict,
        ratio=one.ratio,
        low=one.ci_low,
        high=one.ci_high,
        floor_low=one.aa_low,
        floor_high=one.aa_high,
    )


def _grouped(parts: Sequence[Comparison]) -> Iterable[EffectRow]:
    for scope in dict.fromkeys(one.scope for one in parts):
        yield EffectRow(label=scope.words, arm=None)
        yield from (_row(one) for one in parts if one.scope == scope)


def _overall_title(material: Material) -> str:
    found = material.overall
    clear = [one for one in found if one.verdict == "supported"]
    if not clear:
        return (
            "No arm differs clearly from the control"
            if len(found) > 1
            else f"{clause(found[0])[:1].upper()}{clause(found[0])[1:]}"
        )
    if len(clear) == len(found):
        return "Every arm is clear of 1 and of the A/A comparison" if len(found) > 1 else _clear_title(clear[0])
    names = [in_a_headline(one.treatment) for one in clear]
    return (
        f"Clearly different from the control: {', '.join(names)}"
        if len(names) <= 3
        else f"{len(clear)} of {len(found)} arms differ clearly"
    )


def _clear_title(one: Comparison) -> str:
    if one.split is not None or one.varies is not None:
        return clause(one)
    return f"{clause(one)}: clear of 1 and of the A/A comparison"


def _parts_title(parts: Sequence[Comparison]) -> str:
    ways: dict[str, set[bool]] = {}
    for one in parts:
        if one.verdict == "supported" and (speed := speed_of(one)) is not None:
            ways.setdefault(one.treatment, set()).add(speed > 1)
    if not ways:
        return "By kind of prompt, workload and turn: no part alone has enough rounds or a clear difference"
    split = [in_a_headline(arm) for arm, found in ways.items() if len(found) > 1]
    if split:
        return f"It depends on the prompts: {listed(split[:3])} faster in some parts and slower in others"
    return "Each arm's result has the same direction in every part that can be judged"


def _effect_grids(material: Material) -> Iterable[Grid]:
    """Yield the table of the best arm by scope, if results differ by scope; then that of every comparison."""
    found = material.findings.recommendation.by_scope
    if len(found) > 1:
        rows = tuple(
            (
                one.scope,
                METRICS[one.metric].words,
                one.better,
                one.other,
                f"{times(one.times)} ({span(one.ci_low, one.ci_high)})",
                str(one.rounds),
            )
            for one in found
        )
        columns = ("for", "by", "better", "than", "as fast", "rounds")
        yield Grid(columns=columns, rows=rows, numeric=frozenset((4, 5)), caption="Best arm by use", extra=True)
    yield _ratio_grid(material)


def _ratio_grid(material: Material) -> Grid:
    result = material.result
    rows = tuple(
        (
            one.treatment,
            one.scope.words,
            decimals(one.ratio),
            span(one.ci_low, one.ci_high, digits=3),
            p_value(one.p_value),
            MISSING if one.wins is None else f"{one.wins}/{one.rounds}",
            verdict_cell(one.verdict, one.direction if one.split is None else None),
            "; ".join(reason.text for reason in one.reasons[:2]),
        )
        for one in result.comparisons
    )
    interval = f"{percent(1 - result.alpha)} interval"
    return Grid(
        columns=("arm", "prompts", "ratio", interval, "p", "won", "verdict", "because"),
        rows=rows,
        numeric=frozenset((2, 3, 4, 5)),
        caption=f"Every comparison: {metric_words(material)}, treatment over control {result.control}",
        below=frozenset((7,)),
    )


def verdict_cell(name: str, direction: str | None = None) -> Cell:
    """Return a verdict as a table's cell."""
    sign, tone = mark(name, direction)
    return Cell(text=VERDICTS[name].words, tone=tone, sign=sign)


# ---- rounds ----


def rounds_section(material: Material) -> Section | Absent:
    """Build the section of each arm's ratio in each round."""
    if not material.run.randomised:
        return Absent(title="Round by round", reason=NOT_RANDOMISED)
    panels = list(_round_panels(material))
    if not panels:
        return Absent(title="Round by round", reason="no round holds both an arm and the control")
    shown = panels[:MOST_ROUND_PANELS]
    detail = (
        f"Ratio of {metric_words(material)} within each round, {rounds_words(material)}, log"
        " scale. Both trials of a round share the machine's state. Dashed: the run's ratio; band: its interval."
    )
    if any(len(panel.ratios) < panel_rounds for panel, panel_rounds in ((p, rounds_of(material)) for p in shown)):
        detail += " If there are too many rounds, neighbouring ones are drawn as their median."
    if len(panels) > len(shown):
        detail += f" The first {len(shown)} of {len(panels)} panels."
    palette = palette_of(material)
    picture = Picture(
        key="rounds",
        title=_rounds_title(material),
        detail=detail,
        draw=lambda layout: by_round(shown, palette=palette, layout=layout),
    )
    return Section(key="rounds", title="Round by round", pictures=(picture,))


def _round_panels(material: Material) -> Iterable[RoundPanel]:
    values: dict[str, dict[int, float]] = {}
    for each in round_values(material.trials, metric=material.result.metric):
        values.setdefault(each.label, {})[each.round] = each.value
    control = values.get(material.result.control, {})
    found = {one.treatment: (one.ratio, one.ci_low, one.ci_high) for one in material.overall}
    for floor in material.result.floors:
        if floor.scope.words == "over all":
            effect = floor.effect
            found = {AA_LABEL: (effect.ratio, _finite(effect.ci_low), _finite(effect.ci_high))} | found
    for label, (ratio, low, high) in found.items():
        own = values.get(label, {})
        ratios = [(number_ + 1, own[number_] / control[number_]) for number_ in sorted(own) if number_ in control]
        if ratios:
            yield RoundPanel(
                label=label,
                note=_won(ratios, material.result.metric, label),
                ratios=tuple(_thin(ratios)),
                low=low,
                high=high,
                middle=ratio,
            )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) and value > 0 else None


def _thin(ratios: Sequence[tuple[int, float]]) -> Iterable[tuple[float, float]]:
    """Thin the points to at most `MOST_ROUNDS`: neighbours are replaced by their median."""
    step = -(-len(ratios) // MOST_ROUNDS)
    for start in range(0, len(ratios), step):
        some = sorted(ratio for _, ratio in ratios[start : start + step])
        yield ratios[start][0] + (step - 1) / 2, some[len(some) // 2]


def _won(ratios: Sequence[tuple[int, float]], metric: str, label: str) -> str:
    lower = METRICS[metric].lower_is_faster
    won = sum((ratio < 1) if lower else (ratio > 1) for _, ratio in ratios)
    words = f"faster in {won} of {counted(len(ratios), 'round')}"
    return f"{words}: as chance alone would give" if label == AA_LABEL else words


def _rounds_title(material: Material) -> str:
    whole = [one for one in material.overall if one.rounds and one.wins in (0, one.rounds)]
    if whole and len(whole) == len(material.overall):
        return "Every arm has the same direction in every round"
    if whole:
        return f"{', '.join(in_a_headline(one.treatment) for one in whole[:3])}: the same direction in every round"
    return "No arm has the same direction in every round"


# ---- numbers ----


def arms_section(material: Material) -> Section:
    """Build the section of each arm's medians, over all and by class."""
    arms = [arm for arm in material.result.arms if arm.trials]
    parts = [arm for arm in arms if arm.prompt_class is not None]
    grids = [_arms_grid([arm for arm in arms if arm.prompt_class is None], caption=None)]
    if len({arm.prompt_class for arm in parts}) > 1:
        grids.append(replace(_arms_grid(parts, caption="By kind of prompt"), extra=True))
    lead = (
        "Medians over an arm's usable generations, rates in tokens per second; token p95: the 95th percentile of the"
        " times between tokens. They include the drift: compare by ratios."
    )
    return Section(key="arms", title="Each arm in numbers", lead=lead, grids=tuple(grids))


def _arms_grid(arms: Sequence[ArmSummary], *, caption: str | None) -> Grid:
    rows = tuple(
        (
            arm.label,
            arm.prompt_class or "",
            str(arm.trials),
            seconds(arm.ttft_s),
            number(arm.prefill_tps),
            number(arm.decode_tps),
            number(arm.end_to_end_tps),
            seconds(arm.inter_token_p95_s),
            number(arm.accept_length),
            percent(arm.acceptance_rate),
            size(arm.peak_memory_bytes),
        )
        for arm in arms
    )
    speeds = ("first token", "prefill", "decode", "end to end", "token p95")
    columns = ("arm", "prompts", "trials", *speeds, "accept length", "accepted", "peak memory")
    return Grid(columns=columns, rows=rows, numeric=frozenset(range(2, len(columns))), caption=caption).without_empty()


def notes_section(material: Material) -> Section | Absent:
    """Build the section of the best arms, the effect of excluded trials, and each reason once."""
    lines = dict.fromkeys((*_best_lines(material.result), *_included_lines(material), *_reason_lines(material)))
    if not lines:
        return Absent(title="Reasons and remarks", reason="there is no comparison over all prompts")
    return Section(key="notes", title="Reasons and remarks", lines=tuple(lines))


def _best_lines(result: AuditResult) -> Iterable[str]:
    """Yield the arms that may be the best, over all and in each class: never one without the other."""
    treatments = {one.treatment for one in result.comparisons}
    if len(treatments) > 1:
        yield from (line for each in result.best if (line := _best_line(each, {result.control, *treatments})))


def _best_line(each: BestSet, everyone: set[str]) -> str | None:
    if not each.arms:
        return f"no arm is among the best everywhere ({each.scope.words}): it depends on the prompts; see each part"
    if set(each.arms) != everyone:
        return f"not distinguishable from the best, {each.scope.words}: {', '.join(each.arms)}"
    return "over all no arm is distinguishable from the best" if each.scope == ALL else None


def _included_lines(material: Material) -> Iterable[str]:
    for one in material.overall:
        if one.included is not None and one.included.verdict != one.verdict:
            yield included_words(one)


def included_words(one: Comparison) -> str:
    """State the result of all first attempts, excluded trials included, for a comparison that lost trials."""
    assert one.included is not None
    would = "would be" if one.included.verdict != one.verdict else "would still be"
    words = VERDICTS[one.included.verdict].words
    return (
        f"{one.treatment}: with all first attempts, excluded trials included, it {would} {words}"
        f" ({times(one.included.ratio)})"
    )


def _reason_lines(material: Material) -> Iterable[str]:
    for one in material.overall:
        for reason in one.reasons:
            if reason.code != RUN_DRIFT:  # this one has its own line
                named = reason.text.startswith((f"{one.treatment}:", f"{one.control}:"))
                yield reason.text if named else f"{one.treatment}: {reason.text}"


def composition_section(material: Material) -> Section | Absent:
    """Build the section on two factors: each alone, both together, and whether they compose."""
    if material.composition is None:
        return Absent(title="Two settings together", reason="the arms do not form a full table of two factors")
    table, found = material.composition
    rows = []
    for one in found.compositions:
        for words, effect in (
            (f"{one.first} alone", one.first_alone),
            (f"{one.second} alone", one.second_alone),
            ("both", one.both),
            ("both, over the product of the two", one.composition),
        ):
            rows.append((words, times(effect.ratio), span(_finite(effect.ci_low), _finite(effect.ci_high), digits=3)))
    first = found.compositions[0].composition if found.compositions else None
    lead = f"{table.first} and {table.second}, over {' and '.join(table.base)}."
    if first is not None:
        lead += f" Both together yield {percent(first.ratio)} of the product of the two single effects."
    grid = Grid(columns=("", "ratio", "interval"), rows=tuple(rows), numeric=frozenset((1, 2)))
    return Section(key="composition", title="Two settings together", lead=lead, grids=(grid,))
