"""A bisection as a picture: every release that was measured on x, its ratio to the good one on y."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.report.charts.theme import Drawing, Layout, drawing, ink, ratio_axis, ratio_reach
from orchestrator.report.charts.vega import mark, nominal, quantitative

_COLOURS = {"good": "good", "bad": "bad", "between": "doubt", "undecided": "muted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePoint:
    """One release against the good one."""

    release: str
    mark: str  # good | bad | between | undecided
    ratio: float
    low: float
    high: float


def releases(points: Sequence[ReleasePoint], *, order: Sequence[str], layout: Layout) -> Drawing:
    """Draw the ratios with their intervals, in the order of the releases; those that were not measured have none."""
    known = [end for each in points for end in (each.ratio, each.low, each.high) if 0 < end < float("inf")]
    low, high = ratio_reach(known)
    x = nominal("release", sort=list(order), scale={"domain": list(order)}, axis={"grid": False}, title=None)
    y = ratio_axis("ratio", low, high, title="ratio to the good release, log scale")
    colour = nominal("colour", scale=None, legend=None)
    rows = [_row(each, low, high) for each in points]
    marks = [
        mark("rule", "one", y=quantitative("one"), color=ink("rule"), strokeWidth=1.2),
        mark("rule", "rows", x=x, y=y | {"field": "low"}, y2={"field": "high"}, color=colour, strokeWidth=3),
        mark("point", "rows", x=x, y=y, color=colour, size=110),
    ]
    marks[0]["encoding"]["y"] = y | {"field": "one"}
    chart = {"layer": marks, "width": layout.width - 100, "height": 260}
    return drawing(chart, layout, {"rows": rows, "one": [{"one": 1.0}]})


def _row(point: ReleasePoint, low: float, high: float) -> dict[str, Any]:
    return {
        "release": point.release,
        "ratio": point.ratio,
        "low": max(point.low, low),
        "high": min(point.high, high),
        "colour": ink(_COLOURS.get(point.mark, "muted")),
    }
