"""The first picture: trials in time order beside the drift that the control shows, the machine's state under them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

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
    of_field,
    ratio_axis,
    ratio_reach,
)
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
    """What all panels share."""

    palette: Palette
    layout: Layout
    x: alt.X
    y: alt.Y
    labels: tuple[str, ...]  # of the series, for the legend
    many: bool  # panels of single treatments


def timeline(
    course: Course, *, palette: Palette, ratios: Mapping[str, float], lower_is_faster: bool, layout: Layout
) -> Drawing:
    """Trials over time, the control's smoothed level, and that level times each arm's ratio.

    Args:
        ratios: each treatment's ratio to the control by the audit; without one no expectation is drawn.
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
        y=ratio_axis(low, high, label="format(datum.value, '.0%')", title=None if many else title),
        labels=_labels(course, palette),
        many=many,
    )
    panels = [_panel(group, number, frame) for number, group in enumerate(groups)]
    body: Any = alt.concat(*panels, columns=1 if layout.narrow else 2, spacing=14) if frame.many else panels[0]
    lanes = list(_lanes(course, frame))
    chart: Any = body
    if lanes:
        chart = alt.vconcat(body, *lanes, spacing=10).resolve_scale(color="independent", shape="independent")
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


def _x(course: Course, *, titled: bool) -> alt.X:
    last = max((spot.at for spot in course.spots), default=1.0)
    first = 0.0 if course.by_time else 1.0
    air = (last - first) * 0.02 or 1.0
    return alt.X(
        "at:Q",
        scale=alt.Scale(domain=[first - air, last + air], nice=False),
        axis=alt.Axis(grid=False, tickCount=6, domain=True, ticks=True),
        title=None if not titled else "minutes of running" if course.by_time else "trial, in the order that they ran",
    )


def _labels(course: Course, palette: Palette) -> tuple[str, ...]:
    """What the legend names, in its order: only what is there."""
    there = {AT_ENDS if spot.kind == "bracket" else spot.label for spot in course.spots}
    return tuple(label for label in (palette.control, AA_LABEL, AT_ENDS, *palette.arms) if label in there)


def _text(label: str, palette: Palette) -> str:
    if label == palette.control:
        return f"{arm_text(label)} (control)"
    return "A/A: the control entered twice" if label == AA_LABEL else arm_text(label)


def _row(spot: Spot, palette: Palette, floor: float) -> dict[str, Any]:
    """A mark's row; a trial that measured nothing stands at the foot of the panel."""
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


def _panel(arms: Sequence[str], number: int, frame: _Frame) -> Any:
    own = [frame.palette.control, AA_LABEL, AT_ENDS, *arms]
    shown = alt.FieldOneOfPredicate(field="label", oneOf=own)
    columns = 1 if frame.layout.narrow else 2
    width = frame.layout.width - AXIS_WIDTH if not frame.many else frame.layout.width // columns - AXIS_WIDTH
    drift = alt.Chart(alt.NamedData("drift")).mark_line(strokeWidth=9, color=ink("drift"), strokeCap="round")
    layers = [
        drift.encode(x=frame.x, y=of_field(frame.y, "level")),
        _expectation(frame).transform_filter(shown),
        *_marks(frame, shown, small=frame.many),
        *_pauses(frame),
    ]
    panel = alt.layer(*layers).properties(width=width, height=SMALL_HEIGHT if frame.many else PANEL_HEIGHT)
    if frame.many:
        title = alt.Title(arm_text(arms[0], 44), fontSize=12, anchor="start", frame="group", offset=4, color=ink("ink"))
        panel = panel.properties(title=title)
    return panel


def _expectation(frame: _Frame) -> Any:
    return (
        alt.Chart(alt.NamedData("expected"))
        .mark_line(strokeDash=[5, 4], strokeWidth=1.5, opacity=0.9)
        .encode(x=frame.x, y=of_field(frame.y, "level"), color=_colour(frame), detail="series:N")
    )


def _marks(frame: _Frame, shown: Any, *, small: bool) -> Iterable[alt.Chart]:
    spots = alt.Chart(alt.NamedData("spots")).transform_filter(shown)
    used = spots.transform_filter("datum.state == 'used'")
    yield (
        used.transform_filter("datum.low != null")
        .mark_rule(strokeWidth=1.2, opacity=0.6)
        .encode(x=frame.x, y=of_field(frame.y, "low"), y2="high:Q", color=_colour(frame))
    )
    size = alt.condition("datum.label == " + repr(AT_ENDS), alt.value(170), alt.value(34 if small else 62))
    yield used.mark_point(filled=True, opacity=1, stroke=ink("paper"), strokeWidth=0.6).encode(
        x=frame.x, y=frame.y, color=_colour(frame), shape=_shape(frame), size=size
    )
    out = spots.transform_filter("datum.state != 'used'")
    colour = alt.condition("datum.state == 'invalid'", alt.value(ink("bad")), alt.value(ink("doubt")))
    yield out.mark_point(shape=CROSS, size=50, strokeWidth=1.8, opacity=1).encode(x=frame.x, y=frame.y, color=colour)


def _legend(frame: _Frame) -> alt.Legend | None:
    """The same for every layer: one that differs would take the legend away."""
    if frame.many:
        return None
    texts = [_text(label, frame.palette) for label in frame.labels]
    return alt.Legend(columns=columns_for(texts, frame.layout))


def _colour(frame: _Frame) -> alt.Color:
    colours = [ink("ink") if label == AT_ENDS else frame.palette.colour(label) for label in frame.labels]
    domain = [_text(label, frame.palette) for label in frame.labels]
    return alt.Color("series:N", scale=alt.Scale(domain=domain, range=colours), legend=_legend(frame))


def _shape(frame: _Frame) -> alt.Shape:
    own = {AT_ENDS: RING, AA_LABEL: RING, frame.palette.control: CIRCLE}
    shapes = [own.get(label) or frame.palette.shape(label) for label in frame.labels]
    domain = [_text(label, frame.palette) for label in frame.labels]
    return alt.Shape("series:N", scale=alt.Scale(domain=domain, range=shapes), legend=_legend(frame))


def _pauses(frame: _Frame) -> Iterable[alt.Chart]:
    pauses = alt.Chart(alt.NamedData("pauses"))
    yield pauses.mark_rule(color=ink("rule"), strokeDash=[2, 3]).encode(x=frame.x)
    yield pauses.mark_text(align="right", dx=-4, fontSize=11, color=ink("muted")).encode(
        x=frame.x, y=alt.value(10), text="text:N"
    )


# ---- the machine under it ----


def _lanes(course: Course, frame: _Frame) -> Iterable[Any]:
    """Heat and waits, each only when something was recorded."""
    x = frame.x.copy()
    x["axis"] = None
    if any(spot.thermal is not None for spot in course.spots):
        heat = alt.Color(
            "heat:N",
            scale=alt.Scale(domain=list(THERMAL_WORDS), range=[ink("drift"), ink("doubt"), ink("arm2"), ink("bad")]),
            legend=alt.Legend(orient="bottom", direction="horizontal", columns=len(THERMAL_WORDS)),
        )
        yield (
            alt.Chart(alt.NamedData("heat"))
            .mark_rule(strokeWidth=2.5)
            .encode(x=x, y=alt.Y("level:Q", axis=None, scale=alt.Scale(domain=[0, 4])), y2=alt.datum(0), color=heat)
            .properties(
                width=frame.layout.width - AXIS_WIDTH,
                height=LANE_HEIGHT - 6,
                title=_lane("thermal level, highest during the trial"),
            )
        )
    if any(spot.wait_s for spot in course.spots):
        y = alt.Y("wait:Q", axis=alt.Axis(tickCount=2, grid=False), title=None)
        yield (
            alt.Chart(alt.NamedData("waits"))
            .mark_rule(strokeWidth=2, color=ink("doubt"))
            .encode(x=x, y=y, y2=alt.datum(0))
            .properties(
                width=frame.layout.width - AXIS_WIDTH,
                height=LANE_HEIGHT,
                title=_lane("waited for the machine before the trial (s)"),
            )
        )


def _lane(text: str) -> alt.Title:
    return alt.Title(
        text, fontSize=12, fontWeight="normal", anchor="start", frame="group", offset=3, color=ink("muted")
    )


def _heat(level: int) -> str:
    return THERMAL_WORDS[min(level, len(THERMAL_WORDS) - 1)]
