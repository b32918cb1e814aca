"""The ratios of all comparisons, over all and in parts."""

from collections.abc import Iterable, Sequence

from orchestrator.audit import Comparison
from orchestrator.report.charts.ratios import EffectRow, forest
from orchestrator.report.document import Absent, Cell, Grid, Picture, Section
from orchestrator.report.material import Material, metric_words, palette_of, rounds_words
from orchestrator.report.sketches import ratio_strokes
from orchestrator.report.verdict import clause, in_a_headline, speed_of
from orchestrator.report.words import (
    MISSING,
    decimals,
    listed,
    p_value,
    percent,
    span,
    times,
)
from orchestrator.schedule import minimum_rounds
from orchestrator.vocabulary import METRICS, VERDICTS, mark

UNDERPOWERED = "underpowered"
MOST_ROWS = 40
MOST_SKETCHED = 24  # drawn with characters; the table has all of them
NOT_RANDOMISED = "the order was not drawn at random: no interval and no test is valid"


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
        key="ratios",
        title="How much, and how sure",
        pictures=tuple(pictures),
        grids=tuple(_effect_grids(material)),
        lines=tuple(_too_few(material)),
    )


def _too_few(material: Material) -> Iterable[str]:
    """Say once, not in every row, why rows are underpowered."""
    few = [one for one in material.result.comparisons if one.verdict == UNDERPOWERED]
    if few:
        needed, alpha = minimum_rounds(material.result.alpha), material.result.alpha
        yield f"Underpowered rows (dim): fewer than the {needed} complete rounds that a level of {alpha:g} needs."


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
        direction=one.direction if one.split is None else None,
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
    rows = tuple(_ratio_row(one) for one in result.comparisons)
    interval = f"{percent(1 - result.alpha)} interval"
    return Grid(
        columns=("arm", "prompts", "ratio", interval, "p", "won", "verdict", "because"),
        rows=rows,
        numeric=frozenset((2, 3, 4, 5)),
        caption=f"Every comparison: {metric_words(material)}, treatment over control {result.control}",
        below=frozenset((7,)),
    )


def _ratio_row(one: Comparison) -> tuple[str | Cell, ...]:
    figures = (
        one.treatment,
        one.scope.words,
        decimals(one.ratio),
        span(one.ci_low, one.ci_high, digits=3),
        p_value(one.p_value),
        MISSING if one.wins is None else f"{one.wins}/{one.rounds}",
    )
    verdict = verdict_cell(one.verdict, one.direction if one.split is None else None)
    if one.verdict == UNDERPOWERED:
        return (*(Cell(text=each, tone="muted") for each in figures), verdict, "")
    return (*figures, verdict, "; ".join(reason.text for reason in one.reasons[:2]))


def verdict_cell(name: str, direction: str | None = None) -> Cell:
    """Return a verdict as a table's cell."""
    sign, tone = mark(name, direction)
    return Cell(text=VERDICTS[name].words, tone=tone, sign=sign)
