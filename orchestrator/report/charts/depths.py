"""Charts of the wait, the prefill rate and the decode rate by the depth of the context, one line per arm."""

from collections.abc import Sequence
from typing import Any

from orchestrator.findings.values import DepthCurve, DepthPoint
from orchestrator.report.charts.theme import Drawing, Layout, Palette, arm_text, columns_for, drawing, panel_title
from orchestrator.report.charts.vega import Spec, mark, nominal, quantitative

PANELS = {
    "ttft_s": "time to the first token, s",
    "prefill_tps": "prefill rate, tokens/s",
    "decode_tps": "decode rate, tokens/s",
}
HEIGHT = 150


def by_depth(curves: Sequence[DepthCurve], *, palette: Palette, layout: Layout) -> Drawing:
    """Draw a panel per quantity, with intervals."""
    rows = {name: [row for curve in curves for row in _rows(curve, name)] for name in PANELS}
    names = [arm_text(curve.arm) for curve in curves]
    colours = [palette.colour(curve.arm) for curve in curves]
    shapes = [palette.shape(curve.arm) for curve in curves]
    legend = {"columns": columns_for(names, layout)}
    colour = nominal("arm", scale={"domain": names, "range": colours}, legend=legend)
    shape = nominal("arm", scale={"domain": names, "range": shapes}, legend=legend)
    panels = [_panel(name, colour, shape, layout) for name, each in rows.items() if each]
    return drawing({"vconcat": panels, "spacing": 20}, layout, rows)


def _rows(curve: DepthCurve, name: str) -> list[dict[str, Any]]:
    return [
        {"arm": arm_text(curve.arm), "depth": _tokens(point), "value": mean.value, "low": mean.low, "high": mean.high}
        for point in curve.points
        if (mean := getattr(point, name)) is not None
    ]


def _tokens(point: DepthPoint) -> float:
    """The prompt's length as the engine counted it: a workload's depths are approximate."""
    return point.depth if point.prompt_tokens is None else point.prompt_tokens


def _panel(name: str, colour: Spec, shape: Spec, layout: Layout) -> Spec:
    x = quantitative(
        "depth",
        scale={"zero": True, "padding": 8},
        axis={"grid": False, "labelOverlap": True, "format": "~s", "tickCount": 6},
        title="tokens of the prompt",
    )
    y = quantitative("value", scale={"zero": True}, axis={"tickCount": 4}, title=None)
    interval = {"y": y | {"field": "low"}, "y2": {"field": "high"}}
    layers = [
        mark("line", name, x=x, y=y, color=colour, strokeWidth=1.5),
        mark("rule", name, "datum.low != null", x=x, **interval, color=colour, strokeWidth=2),
        mark("point", name, x=x, y=y, color=colour, shape=shape, size=70),
    ]
    title = panel_title(PANELS[name], fontSize=13, offset=6)
    return {"layer": layers, "width": layout.width - 70, "height": HEIGHT, "title": title}
