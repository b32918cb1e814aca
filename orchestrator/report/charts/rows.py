"""Charts of labelled rows: the name has its own line above each row's marks, so that long names fit a phone."""

from collections.abc import Sequence

from orchestrator.report.charts.theme import Layout, ink
from orchestrator.report.charts.vega import Spec, mark, nominal, quantitative

ROW_HEIGHT = 44
LABEL_AT, MARKS_AT = 0.28, 0.68  # within a row
HEADING = 0.6  # of a row
SIDE = 16  # margin around the plot, in px
_HALO: Spec = {"stroke": ink("paper"), "strokeWidth": 5, "strokeJoin": "round", "color": ink("paper")}


def labelled(marks: Sequence[Spec], layout: Layout, rows: float) -> Spec:
    """Draw the marks, and above them each row's `label` on the left and its `note` on the right.

    Args:
        marks: layers; at least one of them gives its vertical place with the number of rows.
        rows: their number; the data set `rows` has a `label_at` and a `heading` flag for each.
    """
    width = layout.width - 2 * SIDE
    y = place("label_at")
    left: Spec = {"x": {"value": 0}, "y": y, "text": nominal("label"), "align": "left", "fontSize": 13}
    left |= {"limit": width - 120}
    right: Spec = {"x": {"value": width}, "y": y, "text": nominal("note"), "align": "right", "fontSize": 12}
    words = [
        # An outline in the paper's colour lies under the words, so that lines and bands end before them.
        mark("text", "rows", **left, **_HALO),
        mark("text", "rows", **right, **_HALO),
        mark("text", "rows", "!datum.heading", **left, color=ink("ink")),
        mark("text", "rows", "datum.heading", **left, color=ink("muted")),
        mark("text", "rows", **right, color=nominal("note_colour", scale=None, legend=None)),
    ]
    return {"layer": [*marks, *words], "width": width, "height": round(max(rows, 1.0) * ROW_HEIGHT)}


def tops(headings: Sequence[bool]) -> tuple[list[float], float]:
    """Return where each row begins and the last one ends, in rows: a heading is lower than a row with marks."""
    heights = [HEADING if heading else 1.0 for heading in headings]
    return [sum(heights[:number]) for number in range(len(heights))], sum(heights)


def place(field: str, rows: float | None = None) -> Spec:
    """Return the channel of a vertical place, in rows."""
    scale = {} if rows is None else {"scale": {"domain": [rows, 0], "nice": False}}
    return quantitative(field, axis=None, **scale)
