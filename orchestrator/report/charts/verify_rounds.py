"""Charts of a verify round's yield and cost by its width: speculation pays if the yield lies above the cost."""

from collections.abc import Sequence
from typing import Any

from orchestrator.findings.values import PassCurve, WidthCurve, WidthPoint
from orchestrator.report.charts.theme import (
    RATIO_LABEL,
    Drawing,
    Layout,
    arm_text,
    columns_for,
    drawing,
    ink,
    panel_title,
)
from orchestrator.report.charts.vega import Spec, mark, nominal, quantitative

YIELD, ROUND_COST, VERIFY_COST = "tokens that a round yields", "cost of a round", "of it, verification"
HEIGHT, LOWER_HEIGHT = 150, 130


def by_width(curves: Sequence[WidthCurve], *, layout: Layout) -> Drawing:
    """Draw two panels per curve: the predicted and the measured speed-up, and below it a round's yield and cost."""
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
    return drawing({"concat": panels, "columns": columns, "spacing": 26}, layout, rows)


def _point(point: WidthPoint) -> dict[str, Any]:
    measured = point.measured
    return {
        "width": point.width,
        "one": 1.0,
        "predicted": point.predicted,
        "measured": measured.ratio if measured else (1.0 if point.width == 1 else None),
        "low": measured.ci_low if measured else None,
        "high": measured.ci_high if measured else None,
    }


def _lines(point: WidthPoint) -> list[dict[str, Any]]:
    values = {YIELD: point.accept_length, ROUND_COST: point.round_cost, VERIFY_COST: point.verify_cost}
    return [{"width": point.width, "what": what, "value": value} for what, value in values.items() if value is not None]


def scope_words(curve: WidthCurve, *, several: bool) -> str:
    """Name a curve's kind of prompts and, if there are several kinds of arms, its kind of arm."""
    names = [curve.arms or curve.engine] if several else []
    if curve.prompt_class is not None or not several:
        names.append(curve.prompt_class or "all prompts")
    return ", ".join(names)


def _panel(curve: WidthCurve, index: int, width: int, *, several: bool) -> Spec:
    widths = sorted({point.width for point in curve.points})
    x = _widths(widths, air=0.4, title=None)
    far = curve.best.value is not None and curve.best.value > sum(widths[:: len(widths) - 1 or 1]) / 2
    side = "right" if far else "left"  # keeps the text inside the panel
    title = panel_title(arm_text(scope_words(curve, several=several), 40), fontSize=13, offset=6)
    upper = {"layer": _speed_up(index, x, side), "width": width, "height": HEIGHT, "title": title}
    named = x | {"title": "verify width (tokens checked by one pass)"}
    split = any(point.verify_cost is not None and point.width > 1 for point in curve.points)
    lower = {"layer": _yield_and_cost(index, named, split=split), "width": width, "height": LOWER_HEIGHT}
    return {"vconcat": [upper, lower], "spacing": 14}


def _widths(widths: Sequence[int], *, air: float, title: str | None) -> Spec:
    """Return an axis of widths, each with its number."""
    return quantitative(
        "width",
        scale={"domain": [widths[0] - air, widths[-1] + air], "nice": False},
        axis={"values": widths, "grid": False, "format": "d", "labelOverlap": True},
        title=title,
    )


def _speed_up(index: int, x: Spec, side: str) -> list[Spec]:
    points, best = f"points{index}", f"best{index}"
    y = quantitative("predicted", title="speed-up", axis={"tickCount": 5, "labelExpr": RATIO_LABEL})
    words = {"align": side, "dx": 5 if side == "left" else -5, "fontSize": 12}
    interval = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}}
    square = {"shape": "square", "size": 80, "stroke": ink("paper")}
    return [
        mark("rule", points, y=y | {"field": "one"}, color=ink("rule"), strokeWidth=1.2),
        mark("rule", best, x=x, color=ink("arm2"), strokeDash=[2, 3], strokeWidth=1.5),
        mark("text", best, x=x, y={"value": HEIGHT - 10}, text=nominal("text"), color=ink("arm2"), **words),
        mark("line", points, x=x, y=y, color=ink("arm2"), strokeDash=[5, 4], strokeWidth=1.5),
        mark("rule", points, "datum.low != null && datum.high != null", **interval, color=ink("arm1"), strokeWidth=3),
        mark("point", points, "datum.measured != null", x=x, y=y | {"field": "measured"}, color=ink("arm1"), **square),
    ]


def _yield_and_cost(index: int, x: Spec, *, split: bool) -> list[Spec]:
    lines = f"lines{index}"
    what = [YIELD, ROUND_COST, *([VERIFY_COST] if split else [])]
    colours = [ink("arm3"), ink("arm2"), ink("control")][: len(what)]
    dashes = [[1, 0], [5, 4], [2, 2]][: len(what)]
    legend = {"orient": "bottom", "columns": 1, "direction": "vertical"} if index == 0 else None
    colour = nominal("what", scale={"domain": what, "range": colours}, legend=legend)
    dash = nominal("what", scale={"domain": what, "range": dashes}, legend=None)
    y = quantitative("value", title="tokens, plain steps", axis={"tickCount": 4}, scale={"zero": True})
    return [
        mark("line", lines, x=x, y=y, color=colour, strokeDash=dash, strokeWidth=2),
        mark("point", lines, x=x, y=y, color=colour, size=36),
    ]


# ---- passes ----


def passes_by_width(curves: Sequence[PassCurve], *, layout: Layout) -> Drawing:
    """Draw T(width) over T(1), one line per checkpoint and role."""
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
    x = _widths(widths, air=0.3, title="tokens in one pass")
    y = quantitative("cost", title="time, a pass of one token = 1", scale={"zero": True}, axis={"tickCount": 6})
    colours = [ink(name) for name in ("arm1", "arm2", "arm3", "arm4", "arm5", "arm6")]
    shapes = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross"]
    legend = {"columns": columns_for(names, layout)}
    colour = nominal("name", scale={"domain": names, "range": colours}, legend=legend)
    shape = nominal("name", scale={"domain": names, "range": shapes})
    marks = [
        mark("rule", "one", y=y, color=ink("rule"), strokeWidth=1.2),
        mark("line", "passes", x=x, y=y, color=colour, strokeWidth=2),
        mark("point", "passes", x=x, y=y, color=colour, shape=shape, size=60),
    ]
    return drawing({"layer": marks, "width": layout.width - 70, "height": 260}, layout, rows)
