"""Charts of how near to the memory's bandwidth each arm decodes, and of the cost of the second turn."""

from collections.abc import Sequence
from typing import Any

from orchestrator.findings.values import ArmTurns, Ceiling
from orchestrator.report.charts.rows import LABEL_AT, MARKS_AT, labelled, place
from orchestrator.report.charts.theme import Drawing, Layout, Palette, arm_text, drawing, ink
from orchestrator.report.charts.vega import mark, nominal, quantitative
from orchestrator.report.words import count, number, percent

BAR = 12
TURNS_AT, APART = 0.74, 0.24  # parts of a row: two turns that take equally long are drawn one below the other
_SECONDS = "datum.value < 1 ? format(datum.value * 1000, '~r') + ' ms' : format(datum.value, '~r') + ' s'"


def roofline(ceilings: Sequence[Ceiling], *, palette: Palette, layout: Layout) -> Drawing:
    """Draw the passes per second reached over those that the bandwidth allows. In plain decoding a pass is a token."""
    shown = [one for one in ceilings if one.measured_passes_per_s is not None]
    rows = [_ceiling_row(number_, one, palette) for number_, one in enumerate(shown)]
    end = max(value for row in rows for value in (row["ceiling"], row["measured"]) if value is not None)
    x = quantitative(
        "measured",
        scale={"domain": [0, end * 1.02], "nice": False},
        axis={"tickCount": 6},
        title="passes per second (plain decoding: tokens per second)",
    )
    ceiling, at = x | {"field": "ceiling"}, place("at", len(rows))
    known = "datum.ceiling != null"
    bar = {"x2": {"datum": 0}, "y": at, "strokeWidth": BAR}
    marks = [
        mark("rule", "rows", known, x=ceiling, **bar, color=ink("floor")),
        mark("rule", "rows", x=x, **bar, color=nominal("colour", scale=None)),
        mark("tick", "rows", known, x=ceiling, y=at, color=ink("ink"), thickness=3, height=BAR + 8),
    ]
    return drawing(labelled(marks, layout, len(rows)), layout, {"rows": rows})


def _ceiling_row(row: int, one: Ceiling, palette: Palette) -> dict[str, Any]:
    ceiling, share = one.ceiling_passes_per_s.value, one.share.value
    note = f"{percent(share)} of {number(ceiling)}" if share is not None else f"{number(one.measured_passes_per_s)}"
    return {
        "label_at": row + LABEL_AT,
        "at": row + MARKS_AT,
        "label": arm_text(one.arm),
        "heading": False,
        "note": note,
        "note_colour": ink("muted"),
        "colour": palette.colour(one.arm),
        "measured": one.measured_passes_per_s,
        "ceiling": ceiling,
    }


# ---- turns ----


def turns(arms: Sequence[ArmTurns], *, palette: Palette, layout: Layout) -> Drawing:
    """Draw the time to the first token of each turn, one line per arm, with the tokens that had to be processed."""
    points, rows = [], []
    for row, one in enumerate(arms):
        rows.append(_turn_row(row, one, palette))
        points += [
            {
                "at": row + MARKS_AT,
                "mark_at": row + TURNS_AT + (turn.turn % 2 - 0.5) * APART,
                "ttft": turn.ttft_s,
                "turn": f"turn {turn.turn + 1}",
                "number": str(turn.turn + 1),
                "colour": palette.colour(one.arm),
            }
            for turn in one.turns
            if turn.ttft_s is not None
        ]
    x = quantitative(
        "ttft",
        scale={"type": "log", "nice": False, "padding": 18},
        axis={"tickCount": 5, "labelExpr": _SECONDS},
        title="time to the first token, log scale (the number is the turn)",
    )
    at = {"x": x, "y": place("mark_at", len(arms))}
    colour = nominal("colour", scale=None, legend=None)
    words = {"color": ink("paper"), "fontSize": 11, "fontWeight": "bold"}
    marks = [
        mark("line", "points", **at, detail=nominal("at"), color=colour, strokeWidth=2, opacity=0.5),
        mark("point", "points", **at, color=colour, shape="circle", size=210),
        mark("text", "points", **at, text=nominal("number"), **words),
    ]
    return drawing(labelled(marks, layout, len(arms)), layout, {"points": points, "rows": rows})


def _turn_row(row: int, one: ArmTurns, palette: Palette) -> dict[str, Any]:
    last = one.turns[-1]
    cached = last.cached_tokens.value
    note = "cached tokens unknown" if cached is None else f"turn {last.turn + 1}: {count(round(cached))} tokens cached"
    return {
        "label_at": row + LABEL_AT,
        "label": arm_text(one.arm),
        "heading": False,
        "note": note,
        "note_colour": ink("muted"),
        "colour": palette.colour(one.arm),
    }
