"""The look of the charts: colours with a light and a dark value, shapes, sizes. Pure.

A chart is drawn once, in its light colours. The page replaces each colour by the name of a CSS variable, which has two
values; so one drawing serves both. Arms differ in shape as well as in colour, and the control is grey.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.report.charts.vega import Spec, quantitative
from orchestrator.report.words import shortened, shown_line
from orchestrator.schedule import AA_LABEL

RATIO_LABEL = "format(datum.value, '~r') + '\u00d7'"
CIRCLE = "circle"
RING = "M-1,0A1,1,0,1,1,1,0A1,1,0,1,1,-1,0ZM-0.55,0A0.55,0.55,0,1,0,0.55,0A0.55,0.55,0,1,0,-0.55,0Z"

FONT = "Helvetica Neue, Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True, kw_only=True)
class Colour:
    """One colour on white and on near-black."""

    light: str
    dark: str


# Light values must be unique: the page finds a colour's name by its light value.
COLOURS = {
    "paper": Colour(light="#fefefe", dark="#15181c"),
    "ink": Colour(light="#1d2329", dark="#e4e7ea"),
    "muted": Colour(light="#59636e", dark="#9aa4ae"),
    "grid": Colour(light="#e4e8ec", dark="#2a3037"),
    "rule": Colour(light="#9aa3ad", dark="#68727d"),
    "margin": Colour(light="#eef1f4", dark="#22272d"),
    "floor": Colour(light="#d3dae2", dark="#3a434d"),
    "drift": Colour(light="#c3cad3", dark="#4a545f"),
    "control": Colour(light="#56606b", dark="#aeb7c0"),
    "arm1": Colour(light="#0069a8", dark="#57aee6"),
    "arm2": Colour(light="#bd4c06", dark="#f58f4a"),
    "arm3": Colour(light="#007a5a", dark="#35c79c"),
    "arm4": Colour(light="#9c4580", dark="#dd94c4"),
    "arm5": Colour(light="#8a6a00", dark="#dcb53f"),
    "arm6": Colour(light="#4d55b8", dark="#9aa2f4"),
    "good": Colour(light="#1a7f4b", dark="#4cc38a"),
    "bad": Colour(light="#c0362c", dark="#f2796d"),
    "doubt": Colour(light="#9a6700", dark="#e3b341"),
}
_ARMS = ("arm1", "arm2", "arm3", "arm4", "arm5", "arm6")
_SHAPES = ("square", "triangle-up", "diamond", "triangle-down", "cross")

# The colour for each tone of a text.
TONES = {"good": "good", "calm": "arm1", "doubt": "doubt", "bad": "bad", "odd": "arm4", "muted": "muted"}


def ink(name: str) -> str:
    """Return the colour as charts write it."""
    return COLOURS[name].light


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The space and the place that a chart is drawn for."""

    width: int  # of the whole picture, in px
    narrow: bool  # a phone
    title: str | None = None  # drawn in the picture if no page surrounds it
    subtitle: str | None = None


WIDE = Layout(width=840, narrow=False)
NARROW = Layout(width=350, narrow=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A Vega-Lite specification with its data rows, by the names that the marks use."""

    spec: Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """The arms of a run in order, each with its colour and shape. The control and its second entry are grey."""

    control: str
    arms: tuple[str, ...]  # treatments

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.control, AA_LABEL, *self.arms)

    def colour(self, label: str) -> str:
        if label in (self.control, AA_LABEL):
            return ink("control")
        return ink(_ARMS[self.arms.index(label) % len(_ARMS)])

    def shape(self, label: str) -> str:
        if label in (self.control, AA_LABEL):
            return CIRCLE
        return _SHAPES[self.arms.index(label) % len(_SHAPES)]


def arm_text(name: str, limit: int = 60) -> str:
    """Return an arm's name as charts show it."""
    return shortened(shown_line(name), limit)


def ratio_ticks(low: float, high: float, *, most: int = 7) -> list[float]:
    """Return round values for a logarithmic axis of ratios, including 1 if it is inside.

    Args:
        low, high: ends of the axis, above 0.
    """
    for step in (0.01, 0.02, 0.05, 0.1, 0.2):
        ticks = [round(float(tick), 4) for tick in np.arange(np.ceil(low / step), high / step + 1e-9) * step]
        if len(ticks) <= most and high / low < 2:
            return ticks
    for mantissas in ((1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [m * 10.0**e for e in range(-6, 7) for m in mantissas if low <= m * 10.0**e <= high]
        if len(ticks) <= most:
            return ticks
    return []


def ratio_reach(values: Sequence[float], *, least: float = 1.04) -> tuple[float, float]:
    """Return the ends of a logarithmic axis that holds the values and 1, with some margin."""
    low, high = min((*values, 1 / least)), max((*values, least))
    air = (high / low) ** 0.06
    return low / air, high * air


def ratio_axis(
    field: str, low: float, high: float, *, title: str | None, label: str = RATIO_LABEL, most: int = 7
) -> Spec:
    """Return a logarithmic axis: equal factors are equal distances, so that drifts run parallel."""
    return quantitative(
        field,
        scale={"type": "log", "domain": [low, high], "nice": False},
        axis={"values": ratio_ticks(low, high, most=most), "labelExpr": label},
        title=title,
    )


def panel_title(text: str, **looks: Any) -> Spec:
    """Return a title above a panel, aligned with the left end of its plot."""
    return {"text": text, "anchor": "start", "frame": "group", **looks}


def columns_for(texts: Sequence[str], layout: Layout) -> int:
    """Return how many legend entries fit side by side."""
    longest = max((len(text) for text in texts), default=1)
    return max(1, min(len(texts), layout.width // (longest * 7 + 34)))


def drawing(chart: Spec, layout: Layout, rows: dict[str, list[dict[str, Any]]]) -> Drawing:
    """Return a chart with its rows and the look that all charts share."""
    alone = layout.title is not None
    whole: Spec = {
        "background": ink("paper") if alone else "transparent",
        "padding": 16 if alone else 2,
        "config": _look(layout),
        "datasets": rows,
    }
    if layout.title is not None:
        whole["title"] = {"text": _lines(layout.title, 88), "subtitle": _lines(layout.subtitle or "", 110)}
    return Drawing(spec=chart | whole)


def _look(layout: Layout) -> Spec:
    text = {"labelColor": ink("muted"), "titleColor": ink("muted"), "labelFontSize": 12, "titleFontSize": 12}
    return {
        "font": FONT,
        "view": {"stroke": None},
        "point": {"filled": True, "opacity": 1},
        "axis": text
        | {"gridColor": ink("grid"), "domainColor": ink("rule"), "tickColor": ink("rule"), "titleFontWeight": "normal"}
        | {"titlePadding": 8, "labelPadding": 4, "tickSize": 4, "domain": False, "ticks": False},
        "legend": text
        | {"labelColor": ink("ink"), "symbolSize": 70, "orient": "top", "title": None, "direction": "horizontal"}
        | {"labelLimit": layout.width - 40, "columnPadding": 16, "padding": 0, "offset": 10},
        "title": {"anchor": "start", "color": ink("ink"), "fontSize": 17, "fontWeight": 600, "frame": "bounds"}
        | {"subtitleColor": ink("muted"), "subtitleFontSize": 12, "subtitlePadding": 6, "offset": 14},
    }


def _lines(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]
