"""What a verify round yields and costs, by its width: where the tokens lie above the cost, speculation pays."""

from collections.abc import Sequence
from typing import Any, Literal

import altair as alt

from orchestrator.analysis.findings import PassCurve, WidthCurve, WidthPoint
from orchestrator.report.charts.theme import (
    RATIO_LABEL,
    Drawing,
    Layout,
    arm_text,
    columns_for,
    drawing,
    ink,
    of_field,
)

YIELD, ROUND_COST, VERIFY_COST = "tokens that a round yields", "cost of a round", "of it, verification"
HEIGHT, LOWER_HEIGHT = 150, 130


def by_width(curves: Sequence[WidthCurve], *, layout: Layout) -> Drawing:
    """Two panels a curve: the speed-up, predicted and measured; below it, what a round yields and what it costs."""
    columns = 1 if layout.narrow or len(curves) == 1 else 2
    width = layout.width // columns - 66
    rows: dict[str, list[dict[str, Any]]] = {}
    panels = []
    for index, curve in enumerate(curves):
        rows[f"points{index}"] = [_point(point) for point in curve.points]
        rows[f"lines{index}"] = [line for point in curve.points for line in _lines(point)]
        best = curve.best.value
        rows[f"best{index}"] = [] if best is None else [{"width": best, "text": f"predicted best: {best:.0f}"}]
        panels.append(_panel(curve, index, width, several=len({curve.arms for curve in curves}) > 1))
    chart = alt.concat(*panels, columns=columns, spacing=26)
    return drawing(chart, layout, rows)


def _point(point: WidthPoint) -> dict[str, Any]:
    measured = point.measured
    return {
        "width": point.width,
        "predicted": point.predicted,
        "measured": measured.ratio if measured else (1.0 if point.width == 1 else None),
        "low": measured.ci_low if measured else None,
        "high": measured.ci_high if measured else None,
    }


def _lines(point: WidthPoint) -> list[dict[str, Any]]:
    values = {YIELD: point.accept_length, ROUND_COST: point.round_cost, VERIFY_COST: point.verify_cost}
    return [{"width": point.width, "what": what, "value": value} for what, value in values.items() if value is not None]


def scope_words(curve: WidthCurve, *, several: bool) -> str:
    """The kind of prompts that a curve is of, and where there are several kinds of arms, which."""
    names = [curve.arms or curve.engine] if several else []
    if curve.prompt_class is not None or not several:
        names.append(curve.prompt_class or "all prompts")
    return ", ".join(names)


def _panel(curve: WidthCurve, index: int, width: int, *, several: bool) -> Any:
    widths = sorted({point.width for point in curve.points})
    x = alt.X(
        "width:Q",
        scale=alt.Scale(domain=[widths[0] - 0.4, widths[-1] + 0.4], nice=False),
        axis=alt.Axis(values=widths, grid=False, format="d", labelOverlap=True),
        title=None,
    )
    far = curve.best.value is not None and curve.best.value > sum(widths[:: len(widths) - 1 or 1]) / 2
    side: Literal["left", "right"] = "right" if far else "left"  # so that the text stays inside
    label = arm_text(scope_words(curve, several=several), 40)
    title = alt.Title(label, fontSize=13, anchor="start", frame="group", offset=6)
    upper = _speed_up(index, x, side).properties(width=width, height=HEIGHT, title=title)
    named = x.copy()
    named["title"] = "verify width (tokens checked by one pass)"
    split = any(point.verify_cost is not None and point.width > 1 for point in curve.points)
    lower = _yield_and_cost(index, named, split=split).properties(width=width, height=LOWER_HEIGHT)
    return alt.vconcat(upper, lower, spacing=14)


def _speed_up(index: int, x: alt.X, side: Literal["left", "right"]) -> Any:
    points = alt.Chart(alt.NamedData(f"points{index}"))
    y = alt.Y("predicted:Q", title="speed-up", axis=alt.Axis(tickCount=5, labelExpr=RATIO_LABEL))
    best = alt.Chart(alt.NamedData(f"best{index}"))
    return alt.layer(
        points.transform_calculate(one="1").mark_rule(color=ink("rule"), strokeWidth=1.2).encode(y=of_field(y, "one")),
        best.mark_rule(color=ink("arm2"), strokeDash=[2, 3], strokeWidth=1.5).encode(x=x),
        best.mark_text(align=side, dx=5 if side == "left" else -5, fontSize=12, color=ink("arm2")).encode(
            x=x, y=alt.value(HEIGHT - 10), text="text:N"
        ),
        points.mark_line(color=ink("arm2"), strokeDash=[5, 4], strokeWidth=1.5).encode(x=x, y=y),
        points.transform_filter("datum.low != null && datum.high != null")
        .mark_rule(color=ink("arm1"), strokeWidth=3)
        .encode(x=x, y=of_field(y, "low"), y2="high:Q"),
        points.transform_filter("datum.measured != null")
        .mark_point(filled=True, opacity=1, size=80, color=ink("arm1"), shape="square", stroke=ink("paper"))
        .encode(x=x, y=of_field(y, "measured")),
    )


def _yield_and_cost(index: int, x: alt.X, *, split: bool) -> Any:
    lines = alt.Chart(alt.NamedData(f"lines{index}"))
    what = [YIELD, ROUND_COST, *([VERIFY_COST] if split else [])]
    colour = alt.Color(
        "what:N",
        scale=alt.Scale(domain=what, range=[ink("arm3"), ink("arm2"), ink("control")][: len(what)]),
        legend=alt.Legend(orient="bottom", columns=1, direction="vertical") if index == 0 else None,
    )
    dash = alt.StrokeDash(
        "what:N", scale=alt.Scale(domain=what, range=[[1, 0], [5, 4], [2, 2]][: len(what)]), legend=None
    )
    y = alt.Y("value:Q", title="tokens, plain steps", axis=alt.Axis(tickCount=4), scale=alt.Scale(zero=True))
    return alt.layer(
        lines.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash),
        lines.mark_point(filled=True, opacity=1, size=36).encode(x=x, y=y, color=colour),
    )


# ---- passes ----


def passes_by_width(curves: Sequence[PassCurve], *, layout: Layout) -> Drawing:
    """T(width) over T(1), a line a checkpoint and role."""
    names = [arm_text(f"{curve.checkpoint} ({curve.role})") for curve in curves]
    rows: dict[str, list[dict[str, Any]]] = {
        "passes": [
            {"width": width, "cost": cost, "name": name}
            for name, curve in zip(names, curves, strict=True)
            for width, cost in curve.cost
        ],
        "one": [{"width": curve.cost[0][0], "cost": 1.0} for curve in curves[:1]],
    }
    widths = sorted({width for curve in curves for width, _ in curve.cost})
    x = alt.X(
        "width:Q",
        scale=alt.Scale(domain=[widths[0] - 0.3, widths[-1] + 0.3], nice=False),
        axis=alt.Axis(values=widths, grid=False, format="d", labelOverlap=True),
        title="tokens in one pass",
    )
    y = alt.Y("cost:Q", title="time, a pass of one token = 1", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6))
    colours = [ink(name) for name in ("arm1", "arm2", "arm3", "arm4", "arm5", "arm6")]
    shapes = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross"]
    colour = alt.Color(
        "name:N",
        scale=alt.Scale(domain=names, range=colours),
        legend=alt.Legend(columns=columns_for(names, layout)),
    )
    shape = alt.Shape("name:N", scale=alt.Scale(domain=names, range=shapes))
    lines = alt.Chart(alt.NamedData("passes"))
    layers = [
        alt.Chart(alt.NamedData("one")).mark_rule(color=ink("rule"), strokeWidth=1.2).encode(y=y),
        lines.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour),
        lines.mark_point(filled=True, opacity=1, size=60).encode(x=x, y=y, color=colour, shape=shape),
    ]
    chart = alt.layer(*layers).properties(width=layout.width - 70, height=260)
    return drawing(chart, layout, rows)
