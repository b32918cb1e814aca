"""Charts of labelled rows: the name on a line of its own above each row's marks, so that long names fit a telephone."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from orchestrator.report.charts.theme import Layout, ink

ROW_HEIGHT = 44
LABEL_AT, MARKS_AT = 0.28, 0.68  # within a row
HEADING = 0.6  # of a row
SIDE = 16  # air around the plot, in px
_HALO: dict[str, Any] = {"stroke": ink("paper"), "strokeWidth": 5, "strokeJoin": "round", "color": ink("paper")}


def plot_width(layout: Layout) -> int:
    return layout.width - 2 * SIDE


def label_layers(name: str, layout: Layout) -> list[alt.Chart]:
    """Each row's `label` on the left and its `note` on the right; the rows of the data set `name` have a `label_at`."""
    rows = alt.Chart(alt.NamedData(name))
    y = place("label_at")
    left = rows.mark_text(align="left", baseline="middle", fontSize=13, limit=plot_width(layout) - 120)
    right = rows.mark_text(align="right", baseline="middle", fontSize=12)
    x = alt.value(0)
    ends = alt.value(plot_width(layout))
    return [
        # Under the words their outline in the paper's colour: lines and bands end before them.
        left.mark_text(**_HALO, align="left", baseline="middle", fontSize=13, limit=plot_width(layout) - 120).encode(
            x=x, y=y, text="label:N"
        ),
        right.mark_text(**_HALO, align="right", baseline="middle", fontSize=12).encode(x=ends, y=y, text="note:N"),
        left.transform_filter("!datum.heading").encode(x=x, y=y, text="label:N", color=alt.value(ink("ink"))),
        left.transform_filter("datum.heading").encode(x=x, y=y, text="label:N", color=alt.value(ink("muted"))),
        right.encode(
            x=ends,
            y=y,
            text="note:N",
            color=alt.Color("note_colour:N", scale=None, legend=None),
        ),
    ]


def tops(headings: Sequence[bool]) -> tuple[list[float], float]:
    """Where each row begins, in rows, and where the last one ends: a heading is lower than a row with marks."""
    heights = [HEADING if heading else 1.0 for heading in headings]
    return [sum(heights[:number]) for number in range(len(heights))], sum(heights)


def place(field: str, rows: float | None = None) -> alt.Y:
    """A vertical place in rows."""
    scale = alt.Scale(domain=[rows, 0], nice=False) if rows is not None else alt.Undefined
    return alt.Y(f"{field}:Q", axis=None, scale=scale)


def sized(chart: Any, layout: Layout, rows: float) -> Any:
    return chart.properties(width=plot_width(layout), height=round(max(rows, 1.0) * ROW_HEIGHT))
