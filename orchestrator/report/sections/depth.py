"""The cost of a token by the depth of its context, and where two arms change places."""

from collections.abc import Sequence
from functools import partial

from orchestrator.findings.values import Crossing, DepthCurve, DepthPoint, MeanInterval
from orchestrator.report.charts.depths import by_depth
from orchestrator.report.charts.theme import Drawing, Layout, Palette
from orchestrator.report.document import Grid, Picture, Section
from orchestrator.report.material import Material, palette_of
from orchestrator.report.verdict import in_a_headline
from orchestrator.report.words import MISSING, count, counted, number, percent, seconds

STRAIGHT_WORDS = "time per token = a + b x depth; a in ms, b in us per 1 000 tokens"


def depth_sections(material: Material) -> tuple[Section, ...]:
    """Build a section per workload of kind `depths`; none if the run has no such workload."""
    curves, control = material.findings.depths, material.findings.control
    palette = palette_of(material)
    return tuple(
        _section(f"depths-{number_}", workload, [one for one in curves if one.workload == workload], control, palette)
        for number_, workload in enumerate(dict.fromkeys(curve.workload for curve in curves), start=1)
    )


def crossing_words(arm: str, control: str, found: Crossing) -> str:
    """Say up to which depth which arm is faster."""
    first, then = (arm, control) if found.pays_first else (control, arm)
    low, high = (count(round(end)) for end in (found.low, found.high))
    if found.at_tokens is None:
        return f"{first} is faster at {low} tokens and {then} at {high}; between them they change places"
    return f"{first} is faster up to about {count(_rounded(found.at_tokens))} tokens ({low} to {high}), then {then}"


def _section(key: str, workload: str, curves: Sequence[DepthCurve], control: str, palette: Palette) -> Section:
    crossed = [curve for curve in curves if curve.crossing is not None]
    title = "Cost by depth of the context"
    for curve in crossed[:1]:
        assert curve.crossing is not None
        title = crossing_words(in_a_headline(curve.arm), in_a_headline(control), curve.crossing)
    passes = min(curve.passes for curve in curves)
    detail = f"Means of {counted(passes, 'round')} of each depth of {workload}, with intervals that include drift."
    return Section(
        key=key,
        title="Cost by depth",
        lead=f"{STRAIGHT_WORDS}, with intervals; off line: the largest distance of a depth from the line.",
        pictures=(Picture(key=key, title=title, detail=detail, draw=partial(_draw, curves, palette)),),
        grids=(_fits(curves, workload), _points(curves, workload)),
        lines=tuple(_lines(curves, control)),
    )


def _draw(curves: Sequence[DepthCurve], palette: Palette, layout: Layout) -> Drawing:
    return by_depth(curves, palette=palette, layout=layout)


def _fits(curves: Sequence[DepthCurve], workload: str) -> Grid:
    columns = ("arm", "a", "interval of a", "b", "interval of b", "off line")
    rows = tuple(
        (curve.arm, _value(curve.a_ms), _span(curve.a_ms), _value(curve.b_us), _span(curve.b_us), _off(curve))
        for curve in curves
    )
    return Grid(columns=columns, rows=rows, numeric=frozenset(range(1, 6)), caption=f"Time per token of {workload}")


def _points(curves: Sequence[DepthCurve], workload: str) -> Grid:
    rates = ("prefill/s", "interval of prefill", "decode/s", "interval of decode")
    columns = ("arm", "depth", "prompt", "cached", "first token", *rates)
    rows = tuple(_row(curve, point) for curve in curves for point in curve.points)
    return Grid(
        columns=columns, rows=rows, numeric=frozenset(range(1, 9)), caption=f"Depths of {workload}", extra=True
    ).without_empty()


def _row(curve: DepthCurve, point: DepthPoint) -> tuple[str, ...]:
    return (
        curve.arm,
        count(point.depth),
        _count(point.prompt_tokens),
        "unknown" if point.cached_tokens is None else _count(point.cached_tokens),
        MISSING if point.ttft_s is None else seconds(point.ttft_s.value),
        _value(point.prefill_tps),
        _span(point.prefill_tps),
        _value(point.decode_tps),
        _span(point.decode_tps),
    )


def _lines(curves: Sequence[DepthCurve], control: str) -> list[str]:
    lines = []
    for curve in curves:
        if curve.a_ms is None:
            lines.append(f"{curve.arm}: {counted(curve.passes, 'round')} of each depth are too few for intervals.")
        if curve.crossing is not None:
            lines.append(f"{crossing_words(curve.arm, control, curve.crossing)}.")
        elif curve.arm != control:
            lines.append(f"{curve.arm} and {control}: no change of places within these depths is certain.")
    return lines


def _off(curve: DepthCurve) -> str:
    return "two depths" if curve.a_ms is not None and curve.residual is None else percent(curve.residual)


def _value(mean: MeanInterval | None) -> str:
    return MISSING if mean is None else number(mean.value)


def _span(mean: MeanInterval | None) -> str:
    if mean is None or mean.low is None or mean.high is None:
        return MISSING
    return f"{number(mean.low)} to {number(mean.high)}"


def _count(value: float | None) -> str:
    return MISSING if value is None else count(round(value))


def _rounded(tokens: float) -> int:
    """Two significant digits: the interval says how much is known."""
    digits = len(str(round(tokens)))
    return int(round(tokens, 2 - digits)) if digits > 2 else round(tokens)
