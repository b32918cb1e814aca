"""The first picture: trials in time order beside the drift of the control, with the machine's state below."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.report.charts.theme import (
    CIRCLE,
    RING,
    Drawing,
    Layout,
    Palette,
    arm_text,
    columns_for,
    drawing,
    ink,
    panel_title,
    ratio_axis,
    ratio_reach,
)
from orchestrator.report.charts.vega import Spec, mark, nominal, quantitative
from orchestrator.report.course import Course, Spot
from orchestrator.schedule import AA_LABEL

MOST_TOGETHER = 6  # treatments in one panel; with more, each has its own
MOST_PANELS = 24
PANEL_HEIGHT, SMALL_HEIGHT, LANE_HEIGHT = 300, 120, 30
AXIS_WIDTH = 64
AT_ENDS = "control run at an end of the run"
THERMAL_WORDS = ("nominal", "fair", "serious", "critical")
CROSS = "M-1,-1L1,1M1,-1L-1,1"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """The parts that all panels share."""

    palette: Palette
    layout: Layout
    x: Spec
    y: Spec
    labels: tuple[str, ...]  # of the series, for the legend
    many: bool  # panels of single treatments


def timeline(
    course: Course, *, palette: Palette, ratios: Mapping[str, float], lower_is_faster: bool, layout: Layout
) -> Drawing:
    """Draw trials over time, the control's smoothed level, and that level times each arm's ratio.

    Args:
        ratios: each treatment's ratio to the control from the audit; without one no expectation is drawn.
    """
    ends = [end for spot in course.spots for end in (spot.relative, spot.low, spot.high) if end is not None]
    low, high = ratio_reach(ends, least=1.02)
    groups = [palette.arms] if len(palette.arms) <= MOST_TOGETHER else [(arm,) for arm in palette.arms[:MOST_PANELS]]
    many = len(groups) > 1
    title = f"of the control's average {'time' if lower_is_faster else 'speed'}"
    frame = _Frame(
        palette=palette,
        layout=layout,
        x=_x(course, titled=not many),
        y=ratio_axis("relative", low, high, label="format(datum.value, '.0%')", title=None if many else title),
        labels=_labels(course, palette),
        many=many,
    )
    panels = [_panel(group, frame) for group in groups]
    chart: Spec = {"concat": panels, "columns": 1 if layout.narrow else 2, "spacing": 14} if many else panels[0]
    if lanes := list(_lanes(course, frame)):
        own = {"scale": {"color": "independent", "shape": "independent"}}
        chart = {"vconcat": [chart, *lanes], "spacing": 10, "resolve": own}
    rows = {
        "spots": [
            _row(spot, palette, low) for spot in course.spots if spot.relative is not None or spot.state != "used"
        ],
        "drift": [{"at": round(at, 3), "level": round(level, 5)} for at, level in course.drift],
        "expected": _expected(course, palette, ratios),
        "pauses": [{"at": at, "text": f"paused {seconds / 60:.0f} min"} for at, seconds in course.pauses],
        "waits": [{"at": spot.at, "wait": spot.wait_s} for spot in course.spots if spot.wait_s],
        "heat": [
            {"at": spot.at, "heat": _heat(spot.thermal), "level": spot.thermal + 1}
            for spot in course.spots
            if spot.thermal is not None
        ],
    }
    return drawing(chart, layout, rows)


def _x(course: Course, *, titled: bool) -> Spec:
    last = max((spot.at for spot in course.spots), default=1.0)
    first = 0.0 if course.by_time else 1.0
    air = (last - first) * 0.02 or 1.0
    return quantitative(
        "at",
        scale={"domain": [first - air, last + air], "nice": False},
        axis={"grid": False, "tickCount": 6, "domain": True, "ticks": True},
        title=None if not titled else "minutes of run time" if course.by_time else "trial, in the order that they ran",
    )


def _labels(course: Course, palette: Palette) -> tuple[str, ...]:
    """Return the legend's entries in order: only those that are drawn."""
    there = {AT_ENDS if spot.kind == "bracket" else spot.label for spot in course.spots}
    return tuple(label for label in (palette.control, AA_LABEL, AT_ENDS, *palette.arms) if label in there)


def _text(label: str, palette: Palette) -> str:
    if label == palette.control:
        return f"{arm_text(label)} (control)"
    return "A/A: the control entered twice" if label == AA_LABEL else arm_text(label)


def _row(spot: Spot, palette: Palette, floor: float) -> dict[str, Any]:
    """Return a mark's row; a trial that measured nothing is drawn at the bottom of the panel."""
    label = AT_ENDS if spot.kind == "bracket" else spot.label
    return {
        "at": round(spot.at, 3),
        "relative": round(floor * 1.001 if spot.relative is None else spot.relative, 5),
        "low": spot.low,
        "high": spot.high,
        "label": label,
        "series": _text(label, palette),
        "state": spot.state,
    }


def _expected(course: Course, palette: Palette, ratios: Mapping[str, float]) -> list[dict[str, Any]]:
    return [
        {"at": round(at, 3), "level": round(level * ratios[arm], 5), "label": arm, "series": _text(arm, palette)}
        for arm in palette.arms
        if arm in ratios
        for at, level in course.drift
    ]


# ---- the panel ----


def _panel(arms: Sequence[str], frame: _Frame) -> Spec:
    shown: Spec = {"field": "label", "oneOf": [frame.palette.control, AA_LABEL, AT_ENDS, *arms]}
    columns = 1 if frame.layout.narrow else 2
    width = frame.layout.width - AXIS_WIDTH if not frame.many else frame.layout.width // columns - AXIS_WIDTH
    title = {"title": panel_title(arm_text(arms[0], 44), fontSize=12, offset=4, color=ink("ink"))} if frame.many else {}
    height = SMALL_HEIGHT if frame.many else PANEL_HEIGHT
    return {"layer": list(_marks(frame, shown)), "width": width, "height": height} | title


def _marks(frame: _Frame, shown: Spec) -> Iterable[Spec]:
    """Yield the layers: drift and expectation, then the trials, then the pauses."""
    x, y, colour = frame.x, frame.y, _colour(frame)
    level = {"x": x, "y": y | {"field": "level"}}
    yield mark("line", "drift", **level, color=ink("drift"), strokeWidth=9, strokeCap="round")
    dashed = {"strokeDash": [5, 4], "strokeWidth": 1.5, "opacity": 0.9}
    yield mark("line", "expected", shown, **level, color=colour, detail=nominal("series"), **dashed)
    used = (shown, "datum.state == 'used'")
    middle_half = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}}
    yield mark("rule", "spots", *used, "datum.low != null", **middle_half, color=colour, strokeWidth=1.2, opacity=0.6)
    size = _either(f"datum.label == {AT_ENDS!r}", 170, 34 if frame.many else 62)
    border = {"stroke": ink("paper"), "strokeWidth": 0.6}
    yield mark("point", "spots", *used, x=x, y=y, color=colour, shape=_shape(frame), size=size, **border)
    out = _either("datum.state == 'invalid'", ink("bad"), ink("doubt"))
    cross = {"shape": CROSS, "filled": False, "size": 50, "strokeWidth": 1.8}
    yield mark("point", "spots", shown, "datum.state != 'used'", x=x, y=y, color=out, **cross)
    yield mark("rule", "pauses", x=x, color=ink("rule"), strokeDash=[2, 3])
    words = {"align": "right", "dx": -4, "fontSize": 11}
    yield mark("text", "pauses", x=x, y={"value": 10}, text=nominal("text"), color=ink("muted"), **words)


def _either(test: str, value: Any, otherwise: Any) -> Spec:
    return {"condition": {"test": test, "value": value}, "value": otherwise}


def _colour(frame: _Frame) -> Spec:
    return _series(frame, [ink("ink") if label == AT_ENDS else frame.palette.colour(label) for label in frame.labels])


def _shape(frame: _Frame) -> Spec:
    own = {AT_ENDS: RING, AA_LABEL: RING, frame.palette.control: CIRCLE}
    return _series(frame, [own.get(label) or frame.palette.shape(label) for label in frame.labels])


def _series(frame: _Frame, looks: list[str]) -> Spec:
    """Return the legend's channel, the same for every layer: a different one would remove the legend."""
    texts = [_text(label, frame.palette) for label in frame.labels]
    legend = None if frame.many else {"columns": columns_for(texts, frame.layout)}
    return nominal("series", scale={"domain": texts, "range": looks}, legend=legend)


# ---- the machine under it ----


def _lanes(course: Course, frame: _Frame) -> Iterable[Spec]:
    """Yield the lanes of heat and waits, each only if something was recorded."""
    x = frame.x | {"axis": None}
    if any(spot.thermal is not None for spot in course.spots):
        y = quantitative("level", axis=None, scale={"domain": [0, 4]})
        colours = [ink("drift"), ink("doubt"), ink("arm2"), ink("bad")]
        legend = {"orient": "bottom", "direction": "horizontal", "columns": len(THERMAL_WORDS)}
        heat = nominal("heat", scale={"domain": list(THERMAL_WORDS), "range": colours}, legend=legend)
        bars = mark("rule", "heat", x=x, y=y, y2={"datum": 0}, color=heat, strokeWidth=2.5)
        yield bars | _lane("thermal level, highest during the trial", LANE_HEIGHT - 6, frame)
    if any(spot.wait_s for spot in course.spots):
        y = quantitative("wait", axis={"tickCount": 2, "grid": False}, title=None)
        bars = mark("rule", "waits", x=x, y=y, y2={"datum": 0}, color=ink("doubt"), strokeWidth=2)
        yield bars | _lane("waited for the machine before the trial (s)", LANE_HEIGHT, frame)


def _lane(text: str, height: int, frame: _Frame) -> Spec:
    title = panel_title(text, fontSize=12, fontWeight="normal", offset=3, color=ink("muted"))
    return {"width": frame.layout.width - AXIS_WIDTH, "height": height, "title": title}


def _heat(level: int) -> str:
    return THERMAL_WORDS[min(level, len(THERMAL_WORDS) - 1)]
