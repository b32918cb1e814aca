"""First and later turns of conversations: the time to the first token of each, and the reason."""

from collections.abc import Iterable, Sequence
from functools import partial

from orchestrator.findings.values import ArmTurns, Figure, TurnFigures
from orchestrator.report.charts.machine import turns
from orchestrator.report.charts.theme import Drawing, Layout, Palette
from orchestrator.report.document import Absent, Grid, Picture, Section
from orchestrator.report.material import Material, palette_of
from orchestrator.report.verdict import in_a_headline
from orchestrator.report.words import MISSING, count, counted, ended, number, seconds, span, times


def turns_section(material: Material) -> Section | Absent:
    """Build the section on first and later turns, with cached and new tokens."""
    title, findings = "The second turn", material.findings
    arms = [one for one in findings.turns if any(turn.ttft_s is not None for turn in one.turns)]
    if not arms:
        return Absent(title=title, reason="no conversation of this run has a second turn")
    palette = palette_of(material)
    generations = sum(turn.generations for one in arms for turn in one.turns)
    pictures: list[Picture] = []
    grids: list[Grid] = []
    for workload in dict.fromkeys(one.workload for one in arms):
        own = [one for one in arms if one.workload == workload]
        pictures.append(
            Picture(
                key=f"turns-{len(pictures) + 1}",
                title=turns_title(own, findings.control),
                detail=f"Median time to the first token by turn in {workload}; {counted(generations, 'generation')}.",
                draw=partial(_draw_turns, own, palette),
            )
        )
        grids.append(_grid(own, workload))
    lead = (
        "Medians by turn. new/s: prefill rate of the uncached prompt tokens; relative: time to the first"
        " token over the control's in the same turn."
    )
    lines = dict.fromkeys(ended(line) for one in arms for line in (*_remarks(one), *_unknown(one)))
    return Section(
        key="turns", title=title, lead=lead, pictures=tuple(pictures), grids=tuple(grids), lines=tuple(lines)
    )


def _draw_turns(arms: Sequence[ArmTurns], palette: Palette, layout: Layout) -> Drawing:
    return turns(arms, palette=palette, layout=layout)


def turns_title(arms: Sequence[ArmTurns], control: str) -> str:
    """Name the largest supported difference in a later turn."""
    later = [
        (turn.ttft_ratio.ratio, turn.turn, one.arm)
        for one in arms
        for turn in one.turns[1:]
        if turn.ttft_ratio is not None and turn.verdict == "supported" and turn.ttft_ratio.ratio > 1
    ]
    if not later:
        return "Time to the first token, turn by turn"
    ratio, turn, arm = max(later)
    late = f"Turn {turn + 1} starts {number(ratio, digits=2)} times as late"
    return f"{late} with {in_a_headline(arm)} as with {in_a_headline(control)}"


def _grid(arms: Sequence[ArmTurns], workload: str) -> Grid:
    columns = ("arm", "turn", "first token", "prompt", "cached", "new", "new/s", "relative", "interval")
    rows = tuple(_row(one, turn) for one in arms for turn in one.turns)
    numeric = frozenset(range(1, len(columns)))
    return Grid(columns=columns, rows=rows, numeric=numeric, caption=f"Turns of {workload}").without_empty()


def _row(one: ArmTurns, turn: TurnFigures) -> tuple[str, ...]:
    ratio = turn.ttft_ratio
    return (
        one.arm,
        str(turn.turn + 1),
        seconds(turn.ttft_s),
        _whole(turn.prompt_tokens),
        _known(turn.cached_tokens),
        _known(turn.new_tokens),
        number(turn.prefill_tps.value),
        MISSING if ratio is None else times(ratio.ratio),
        MISSING if ratio is None else span(ratio.ci_low, ratio.ci_high),
    )


def _remarks(one: ArmTurns) -> Iterable[str]:
    return (f"{one.arm}, {one.workload}: {remark}" for remark in one.remarks)


def _unknown(one: ArmTurns) -> Iterable[str]:
    """Yield why a column has no figure, each reason once."""
    columns = {
        "cached tokens": [turn.cached_tokens for turn in one.turns],
        "prefill rate": [turn.prefill_tps for turn in one.turns],
    }
    for name, figures in columns.items():
        for reason in dict.fromkeys(figure.source for figure in figures if figure.value is None):
            yield f"{one.arm}, {one.workload}: {name} unknown: {reason}"


def _known(figure: Figure) -> str:
    return "unknown" if figure.value is None else _whole(figure.value)


def _whole(value: float | None) -> str:
    """Format a median count of tokens."""
    return MISSING if value is None else count(round(value)) if value == round(value) else number(value)
