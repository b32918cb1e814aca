"""How near to the memory's bandwidth each arm decodes, and what the second turn costs."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from orchestrator.analysis.findings import ArmTurns, Ceiling
from orchestrator.report.charts.rows import LABEL_AT, MARKS_AT, label_layers, place, sized
from orchestrator.report.charts.theme import Drawing, Layout, Palette, arm_text, drawing, ink, of_field
from orchestrator.report.words import count, number, percent

BAR = 12
TURNS_AT, APART = 0.74, 0.24  # of a row: two turns that take equally long stand under each other
_SECONDS = "datum.value < 1 ? format(datum.value * 1000, '~r') + ' ms' : format(datum.value, '~r') + ' s'"


def roofline(ceilings: Sequence[Ceiling], *, palette: Palette, layout: Layout) -> Drawing:
    """Passes a second reached, over those that the bandwidth allows. For plain decoding a pass is a token."""
    shown = [one for one in ceilings if one.measured_passes_per_s is not None]
    rows = [_ceiling_row(number_, one, palette) for number_, one in enumerate(shown)]
    end = max(max(row["ceiling"] or 0.0, row["measured"]) for row in rows)
    x = alt.X(
        "measured:Q",
        scale=alt.Scale(domain=[0, end * 1.02], nice=False),
        axis=alt.Axis(tickCount=6),
        title="passes a second (plain decoding: tokens a second)",
    )
    marks = alt.Chart(alt.NamedData("rows"))
    at = place("at", len(rows))
    layers = [
        marks.transform_filter("datum.ceiling != null")
        .mark_rule(strokeWidth=BAR, color=ink("floor"))
        .encode(x=of_field(x, "ceiling"), x2=alt.datum(0), y=at),
        marks.mark_rule(strokeWidth=BAR).encode(x=x, x2=alt.datum(0), y=at, color=alt.Color("colour:N", scale=None)),
        marks.transform_filter("datum.ceiling != null")
        .mark_tick(thickness=3, height=BAR + 8, color=ink("ink"))
        .encode(x=of_field(x, "ceiling"), y=at),
        *label_layers("rows", layout),
    ]
    return drawing(sized(alt.layer(*layers), layout, len(rows)), layout, {"rows": rows})


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
    """Time to the first token of each turn, on a line an arm; with what had to be processed for it."""
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
    x = alt.X(
        "ttft:Q",
        scale=alt.Scale(type="log", nice=False, padding=18),
        axis=alt.Axis(tickCount=5, labelExpr=_SECONDS),
        title="time to the first token, log scale (the number is the turn)",
    )
    marks = alt.Chart(alt.NamedData("points"))
    mark_at = place("mark_at", len(arms))
    colour = alt.Color("colour:N", scale=None, legend=None)
    layers = [
        marks.mark_line(strokeWidth=2, opacity=0.5).encode(x=x, y=mark_at, detail="at:N", color=colour),
        marks.mark_point(filled=True, opacity=1, size=210, shape="circle").encode(x=x, y=mark_at, color=colour),
        marks.mark_text(color=ink("paper"), fontSize=11, fontWeight="bold").encode(x=x, y=mark_at, text="number:N"),
        *label_layers("rows", layout),
    ]
    data = {"points": points, "rows": rows}
    return drawing(sized(alt.layer(*layers), layout, len(arms)), layout, data)


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
