"""Ratios with their intervals beside what two equal arms look like, and round by round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from orchestrator.report.charts.rows import LABEL_AT, MARKS_AT, label_layers, place, sized, tops
from orchestrator.report.charts.theme import (
    RATIO_LABEL,
    VERDICTS,
    Drawing,
    Layout,
    Palette,
    arm_text,
    drawing,
    ink,
    of_field,
    ratio_axis,
    ratio_reach,
    ratio_ticks,
)
from orchestrator.report.words import shown_line, span, times
from orchestrator.schedule import AA_LABEL


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRow:
    """One comparison, or a heading over some."""

    label: str  # arm's name, or the heading
    arm: str | None  # None: a heading
    verdict: str | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    floor_low: float | None = None
    floor_high: float | None = None


def forest(
    rows: Sequence[EffectRow], *, palette: Palette, margin: float, lower_is_faster: bool, layout: Layout
) -> Drawing:
    """Each ratio with its interval; the band around 1 is the margin, the darker one the control against itself."""
    known = [end for row in rows for end in (row.ratio, row.low, row.high, row.floor_low, row.floor_high) if end]
    low, high = ratio_reach([*known, 1 - margin, 1 / (1 - margin)])
    words = ("faster", "slower") if lower_is_faster else ("slower", "faster")
    x = alt.X(
        "ratio:Q",
        scale=alt.Scale(type="log", domain=[low, high], nice=False),
        axis=alt.Axis(values=ratio_ticks(low, high, most=5 if layout.narrow else 9), labelExpr=RATIO_LABEL, grid=True),
        title=f"← {words[0]} · ratio to the control, log scale · {words[1]} →",
    )
    marks = alt.Chart(alt.NamedData("rows")).transform_filter("datum.ratio != null")
    begins, end = tops([row.arm is None for row in rows])
    at = place("at", end)
    colour = alt.Color("colour:N", scale=None, legend=None)
    layers = [
        alt.Chart(alt.NamedData("margin")).mark_rect(color=ink("margin")).encode(x=of_field(x, "low"), x2="high:Q"),
        marks.transform_filter("datum.floor_low != null")
        .mark_rect(color=ink("floor"))
        .encode(x=of_field(x, "floor_low"), x2="floor_high:Q", y=place("top", end), y2="bottom:Q"),
        alt.Chart(alt.NamedData("margin")).mark_rule(color=ink("rule"), strokeWidth=1.2).encode(x=of_field(x, "one")),
        marks.transform_filter("datum.low != null && datum.high != null")
        .mark_rule(strokeWidth=3)
        .encode(x=of_field(x, "low"), x2="high:Q", y=at, color=colour),
        marks.mark_point(filled=True, opacity=1, size=110, stroke=ink("paper"), strokeWidth=1).encode(
            x=x, y=at, color=colour, shape=alt.Shape("shape:N", scale=None, legend=None)
        ),
        *label_layers("rows", layout),
    ]
    data = {
        "rows": [_effect_row(top, row, palette, layout) for top, row in zip(begins, rows, strict=True)],
        "margin": [{"low": 1 - margin, "high": 1 / (1 - margin), "one": 1.0}],
    }
    return drawing(sized(alt.layer(*layers), layout, end), layout, data)


def _effect_row(top: float, row: EffectRow, palette: Palette, layout: Layout) -> dict[str, Any]:
    colour, sign = VERDICTS[row.verdict] if row.verdict else ("muted", "")
    words = f"{sign} {(row.verdict or '').replace('_', ' ')}".strip()
    if not layout.narrow and row.ratio is not None:
        interval = f" ({span(row.low, row.high)})" if row.low is not None else ""
        words = f"{times(row.ratio)}{interval} · {words}"
    return {
        "label_at": top + LABEL_AT,
        "at": top + MARKS_AT,
        "top": top + MARKS_AT - 0.16,
        "bottom": top + MARKS_AT + 0.16,
        "label": arm_text(row.label),
        "heading": row.arm is None,
        "note": words,
        "note_colour": ink(colour),
        "colour": palette.colour(row.arm) if row.arm is not None else ink("muted"),
        "shape": palette.shape(row.arm) if row.arm is not None else "circle",
        "ratio": row.ratio,
        "low": row.low,
        "high": row.high,
        "floor_low": row.floor_low,
        "floor_high": row.floor_high,
    }


# ---- round by round ----


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPanel:
    """One label's ratio to the control in every round that holds both."""

    label: str  # arm's name, or A/A
    note: str  # such as "faster in 8 of 8 rounds"
    ratios: tuple[tuple[float, float], ...]  # (round, 1-based; ratio)
    low: float | None  # the interval of the whole
    high: float | None
    middle: float | None


def by_round(panels: Sequence[RoundPanel], *, palette: Palette, layout: Layout) -> Drawing:
    """A panel an arm, the control against itself first; all on one scale."""
    values = [ratio for panel in panels for _, ratio in panel.ratios]
    ends = [end for panel in panels for end in (panel.low, panel.high) if end]
    low, high = ratio_reach([*values, *ends], least=1.02)
    last = max(at for panel in panels for at, _ in panel.ratios)
    columns = 1 if layout.narrow or len(panels) == 1 else 2
    width = layout.width // columns - 62
    y = ratio_axis(low, high, label=RATIO_LABEL, title=None)
    x = alt.X(
        "round:Q",
        scale=alt.Scale(domain=[1 - last * 0.03, last * 1.03], nice=False),
        axis=alt.Axis(grid=False, values=list(range(1, int(last) + 1, -(-int(last) // 8))), format="d"),
        title="round",
    )
    made = [_round_panel(panel, number, palette, x, y, width) for number, panel in enumerate(panels)]
    rows: dict[str, list[dict[str, Any]]] = {}
    for number, panel in enumerate(panels):
        rows[f"panel{number}"] = [
            {"round": at, "relative": round(ratio, 5), "below": ratio < 1} for at, ratio in panel.ratios
        ]
        rows[f"band{number}"] = [{"low": panel.low, "high": panel.high, "middle": panel.middle}]
    chart = alt.concat(*made, columns=columns, spacing=22)
    return drawing(chart, layout, rows)


def _round_panel(panel: RoundPanel, number: int, palette: Palette, x: alt.X, y: alt.Y, width: int) -> Any:
    colour = palette.colour(panel.label)
    band = alt.Chart(alt.NamedData(f"band{number}"))
    points = alt.Chart(alt.NamedData(f"panel{number}"))
    shape = palette.shape(panel.label)
    layers = [
        band.transform_filter("datum.low != null && datum.high != null")
        .mark_rect(color=ink("margin"))
        .encode(y=of_field(y, "low"), y2="high:Q"),
        band.mark_rule(color=colour, strokeDash=[5, 4], strokeWidth=1.2).encode(y=of_field(y, "middle")),
        alt.Chart(alt.NamedData(f"band{number}"))
        .transform_calculate(one="1")
        .mark_rule(color=ink("rule"), strokeWidth=1.2)
        .encode(y=of_field(y, "one")),
        points.mark_line(color=colour, strokeWidth=1, opacity=0.45).encode(x=x, y=y),
        points.mark_point(filled=True, opacity=1, size=46, color=colour, shape=shape).encode(x=x, y=y),
    ]
    label = "A/A: the control against itself" if panel.label == AA_LABEL else arm_text(panel.label, 40)
    title = alt.Title(
        label,
        subtitle=shown_line(panel.note),
        fontSize=13,
        subtitleFontSize=12,
        anchor="start",
        frame="group",
        offset=6,
    )
    return alt.layer(*layers).properties(width=width, height=130, title=title)
