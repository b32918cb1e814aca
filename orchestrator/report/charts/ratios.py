"""Charts of ratios: with their intervals beside the A/A comparison, and round by round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.report.charts.rows import LABEL_AT, MARKS_AT, labelled, place, tops
from orchestrator.report.charts.theme import (
    TONES,
    Drawing,
    Layout,
    Palette,
    arm_text,
    drawing,
    ink,
    panel_title,
    ratio_axis,
    ratio_reach,
)
from orchestrator.report.charts.vega import Spec, mark, nominal, quantitative
from orchestrator.report.words import shown_line, span, times
from orchestrator.schedule import AA_LABEL
from orchestrator.vocabulary import mark as sign_and_tone


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRow:
    """One comparison, or a heading above several."""

    label: str  # arm's name, or the heading
    arm: str | None  # None: a heading
    verdict: str | None = None
    direction: str | None = None  # faster, slower; None: neither is supported
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    floor_low: float | None = None
    floor_high: float | None = None


def forest(
    rows: Sequence[EffectRow], *, palette: Palette, margin: float, lower_is_faster: bool, layout: Layout
) -> Drawing:
    """Draw each ratio with its interval; the band around 1 is the margin, the darker one the A/A comparison."""
    known = [end for row in rows for end in (row.ratio, row.low, row.high, row.floor_low, row.floor_high) if end]
    low, high = ratio_reach([*known, 1 - margin, 1 / (1 - margin)])
    words = ("faster", "slower") if lower_is_faster else ("slower", "faster")
    title = f"← {words[0]} · ratio to the control, log scale · {words[1]} →"
    x = ratio_axis("ratio", low, high, title=title, most=5 if layout.narrow else 9)
    begins, end = tops([row.arm is None for row in rows])
    at = place("at", end)
    colour = nominal("colour", scale=None, legend=None)
    shape = nominal("shape", scale=None, legend=None)
    reach = {"x": x | {"field": "low"}, "x2": {"field": "high"}}
    floor = {"x": x | {"field": "floor_low"}, "x2": {"field": "floor_high"}}
    floor |= {"y": place("top", end), "y2": {"field": "bottom"}}
    there = "datum.ratio != null"
    sure = (there, "datum.low != null && datum.high != null")
    border = {"stroke": ink("paper"), "strokeWidth": 1}
    marks = [
        mark("rect", "margin", **reach, color=ink("margin")),
        mark("rect", "rows", there, "datum.floor_low != null", **floor, color=ink("floor")),
        mark("rule", "margin", x=x | {"field": "one"}, color=ink("rule"), strokeWidth=1.2),
        mark("rule", "rows", *sure, **reach, y=at, color=colour, strokeWidth=3),
        mark("point", "rows", there, "datum.bounded", x=x, y=at, color=colour, shape=shape, size=110, **border),
        mark("point", "rows", there, "!datum.bounded", x=x, y=at, color=ink("muted"), shape="circle", size=24),
    ]
    data = {
        "rows": [_effect_row(top, row, palette, layout) for top, row in zip(begins, rows, strict=True)],
        "margin": [{"low": 1 - margin, "high": 1 / (1 - margin), "one": 1.0}],
    }
    return drawing(labelled(marks, layout, end), layout, data)


def _effect_row(top: float, row: EffectRow, palette: Palette, layout: Layout) -> dict[str, Any]:
    sign, tone = ("", "muted") if row.verdict is None else sign_and_tone(row.verdict, row.direction)
    colour = TONES[tone]
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
        "bounded": row.low is not None or row.high is not None,  # else a small dot: nothing is known about its error
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
    low: float | None  # the interval over all rounds
    high: float | None
    middle: float | None


def by_round(panels: Sequence[RoundPanel], *, palette: Palette, layout: Layout) -> Drawing:
    """Draw one panel per arm, the A/A comparison first, all on one scale."""
    values = [ratio for panel in panels for _, ratio in panel.ratios]
    ends = [end for panel in panels for end in (panel.low, panel.high) if end]
    low, high = ratio_reach([*values, *ends], least=1.02)
    last = max(at for panel in panels for at, _ in panel.ratios)
    columns = 1 if layout.narrow or len(panels) == 1 else 2
    width = layout.width // columns - 62
    y = ratio_axis("relative", low, high, title=None)
    x = quantitative(
        "round",
        scale={"domain": [1 - last * 0.03, last * 1.03], "nice": False},
        axis={"grid": False, "values": list(range(1, int(last) + 1, -(-int(last) // 8))), "format": "d"},
        title="round",
    )
    made = [_round_panel(panel, number, palette, x, y, width) for number, panel in enumerate(panels)]
    rows: dict[str, list[dict[str, Any]]] = {}
    for number, panel in enumerate(panels):
        rows[f"panel{number}"] = [
            {"round": at, "relative": round(ratio, 5), "below": ratio < 1} for at, ratio in panel.ratios
        ]
        rows[f"band{number}"] = [{"low": panel.low, "high": panel.high, "middle": panel.middle, "one": 1.0}]
    return drawing({"concat": made, "columns": columns, "spacing": 22}, layout, rows)


def _round_panel(panel: RoundPanel, number: int, palette: Palette, x: Spec, y: Spec, width: int) -> Spec:
    colour, shape = palette.colour(panel.label), palette.shape(panel.label)
    band, points = f"band{number}", f"panel{number}"
    known = "datum.low != null && datum.high != null"
    marks = [
        mark("rect", band, known, y=y | {"field": "low"}, y2={"field": "high"}, color=ink("margin")),
        mark("rule", band, y=y | {"field": "middle"}, color=colour, strokeDash=[5, 4], strokeWidth=1.2),
        mark("rule", band, y=y | {"field": "one"}, color=ink("rule"), strokeWidth=1.2),
        mark("line", points, x=x, y=y, color=colour, strokeWidth=1, opacity=0.45),
        mark("point", points, x=x, y=y, color=colour, shape=shape, size=46),
    ]
    label = "A/A: the control against itself" if panel.label == AA_LABEL else arm_text(panel.label, 40)
    title = panel_title(label, fontSize=13, offset=6, subtitle=shown_line(panel.note), subtitleFontSize=12)
    return {"layer": marks, "width": width, "height": 130, "title": title}
