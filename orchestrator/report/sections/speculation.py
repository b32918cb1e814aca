"""The sections on speculation: a verify round's yield and cost by its width, and acceptance by sampler."""

from collections.abc import Iterable, Sequence

from orchestrator.findings.values import Findings, VerifyCost, WidthCurve
from orchestrator.findings.verification import no_checks, proposing_words
from orchestrator.report.charts.verify_rounds import by_width, passes_by_width, scope_words
from orchestrator.report.document import Absent, Grid, Picture, Section
from orchestrator.report.material import Material
from orchestrator.report.words import MISSING, count, counted, ended, listed, number, percent, span, times

MOST_CURVES = 8


def widths_section(material: Material) -> Section | Absent:
    """Build the section on a round's yield and cost, and on the speed-up by width."""
    title, findings = "Width and cost of verification", material.findings
    pictures = list(_widths_pictures(findings))
    if not findings.verify_costs and not pictures:
        return Absent(title=title, reason="no arm speculates, and no pass was timed by its width")
    timed = [cost for cost in findings.verify_costs if cost.rounds_timed]
    lead = (
        "A verify round commits some tokens and costs some plain decoding steps of the same weights; the quotient is"
        " the speed-up. Speculation pays if the tokens lie above the cost."
    )
    return Section(
        key="widths",
        title=title,
        lead=lead,
        pictures=tuple(pictures),
        grids=(_verify_grid(timed),) if timed else (),
        lines=tuple(dict.fromkeys(ended(line) for line in _lines(findings, timed))),
    )


def _lines(findings: Findings, timed: Sequence[VerifyCost]) -> Iterable[str]:
    over_all = [cost for cost in timed if cost.prompt_class is None]
    for cost in findings.verify_costs:
        if not cost.rounds_timed and cost.prompt_class is None:
            yield f"{cost.arm}: {cost.round_cost.source}"
    yield from _unknown_lines(timed)
    yield from no_checks(over_all)
    yield from (f"{cost.arm}: {words}" for cost in over_all if (words := proposing_words(cost)) is not None)
    yield from _best_widths(findings.width_curves)
    yield from (f"{cost.arm}: {cost.doubt}" for cost in over_all if cost.doubt is not None)
    for cost in over_all:
        if cost.one_more.value is not None:
            proposing = "" if cost.proposing in (None, 1.0) else " with a proposal"
            yield f"{cost.arm}: one more token per round{proposing} would bring {times(cost.one_more.value)}"
    for curve in findings.pass_curves:
        if len(curve.cost) > 1:
            costs = ", ".join(f"{width}: {cost:.2f}" for width, cost in curve.cost)
            yield f"a pass of {curve.checkpoint} ({curve.role}) by its tokens: {costs}"


def _unknown_lines(costs: Sequence[VerifyCost]) -> Iterable[str]:
    """Yield why a column is empty, each reason once."""
    columns = {
        "round": [cost.round_cost for cost in costs],
        "verify": [cost.verify_cost for cost in costs],
        "draft": [cost.draft_cost for cost in costs],
    }
    of_reason: dict[str, list[str]] = {}
    for name, figures in columns.items():
        for reason in dict.fromkeys(figure.source for figure in figures if figure.value is None):
            of_reason.setdefault(reason, []).append(name)
    for reason, names in of_reason.items():
        yield f"{', '.join(names)}: {reason}"


def _best_widths(curves: Sequence[WidthCurve]) -> Iterable[str]:
    """Yield each family's best width, with classes of the same width together."""
    where: dict[tuple[str, str], list[str]] = {}
    for curve in curves:
        if curve.best.value is not None or curve.refused is not None:
            name = f"{curve.arms or curve.engine} on {curve.checkpoint}"
            where.setdefault((name, _best_width(curve)), []).append(curve.prompt_class or "all prompts")
    for (name, words), scopes in where.items():
        yield f"{name}, {', '.join(scopes)}: {words}"


def _best_width(curve: WidthCurve) -> str:
    if curve.refused is not None:
        return f"no best width is predicted ({curve.refused})"
    best = next(point for point in curve.points if point.width == curve.best.value)
    words = "plain decoding, no width pays" if best.width == 1 else f"{best.width} ({times(best.predicted)})"
    edge = ", the widest that could be judged: wider may be better" if curve.at_edge else ""
    ran = "" if curve.best_measured is None else f"; of those that ran, {_measured_words(curve.best_measured)}"
    return f"predicted best width {words}{edge}{ran}"


def _measured_words(width: int) -> str:
    return "none beats plain decoding" if width == 1 else f"{width} was the fastest"


def _verify_grid(costs: Sequence[VerifyCost]) -> Grid:
    rows = tuple(
        (
            one.arm,
            one.prompt_class or "all",
            count(one.width),
            number(one.accept_length),
            number(one.round_cost.value),
            number(one.verify_cost.value),
            number(one.draft_cost.value),
            times(one.predicted.value),
            MISSING if one.measured is None else times(one.measured.ratio),
            MISSING if one.measured is None else span(one.measured.ci_low, one.measured.ci_high),
        )
        for one in costs
    )
    columns = ("arm", "prompts", "width", "tokens", "round", "verify", "draft", "predicted", "measured", "interval")
    return Grid(columns=columns, rows=rows, numeric=frozenset(range(2, len(columns)))).without_empty()


# ---- pictures ----


def _curves(findings: Findings) -> list[WidthCurve]:
    """Return the curves with a choice of widths; if there are several kinds of arms, over all prompts only."""
    found = [curve for curve in findings.width_curves if sum(point.width > 1 for point in curve.points) > 1]
    if len({curve.arms for curve in found}) > 1:
        found = [curve for curve in found if curve.prompt_class is None]
    return found[:MOST_CURVES]


def _widths_pictures(findings: Findings) -> Iterable[Picture]:
    if curves := _curves(findings):
        yield _widths_picture(curves, findings)
    if passes := [curve for curve in findings.pass_curves if len(curve.cost) > 1]:
        widest = max(passes, key=lambda curve: curve.cost[-1][1])
        width, cost = widest.cost[-1]
        takes = f"takes {number(cost)} times as long as one token"
        yield Picture(
            key="passes",
            title=f"A pass of {width} tokens through {widest.checkpoint} {takes}",
            detail=(
                "Time of one pass by the number of tokens in it, over that of one token: flat if memory is the limit,"
                " rising if computing is. Source:"
                f" {listed(list(dict.fromkeys(curve.source for curve in passes)))}."
            ),
            draw=lambda layout: passes_by_width(passes, layout=layout),
        )


def _widths_picture(curves: Sequence[WidthCurve], findings: Findings) -> Picture:
    detail = (
        "Above: speed-up over plain decoding, dashed predicted (accept length over cost), squares measured with their"
        f" intervals, {counted(findings.rounds, 'round')}. Below: tokens that a whole verify round commits, and its"
        " cost in plain steps. The end of an answer cuts a round short, so arms with short answers fall behind."
    )
    return Picture(
        key="widths", title=_widths_title(curves), detail=detail, draw=lambda layout: by_width(curves, layout=layout)
    )


def _widths_title(curves: Sequence[WidthCurve]) -> str:
    several = len({curve.arms for curve in curves}) > 1
    best = {scope_words(curve, several=several): curve.best.value for curve in curves}
    known = {name: round(width) for name, width in best.items() if width is not None}
    if not known:
        return "Yield and cost of a verify round, by its width"
    if set(known.values()) == {1}:
        return "Plain decoding is predicted to be fastest: no width pays for its verification"
    if len(set(known.values())) == 1:
        kinds = "every arm" if several else "every kind of prompt"
        return f"The predicted best width is {next(iter(known.values()))} for {kinds}"
    on = "arm" if several else "prompts"
    return f"The best width depends on the {on}: {', '.join(f'{width} for {name}' for name, width in known.items())}"


# ---- samplers ----


def sampling_section(material: Material) -> Section | Absent:
    """Build the section on each sampler's acceptance, if the arms' samplers differ."""
    found = material.findings.sampling
    if found.note is None:
        return Absent(title="Samplers", reason="all arms use the same sampler")
    rows = tuple(
        (
            point.arm,
            MISSING if point.temperature is None else f"{point.temperature:g}",
            number(point.accept_length),
            percent(point.acceptance_rate),
        )
        for point in found.by_temperature
    )
    grid = Grid(columns=("arm", "temperature", "tokens per round", "accepted"), rows=rows, numeric=frozenset((1, 2, 3)))
    return Section(key="samplers", title="Samplers", grids=(grid,) if rows else (), lines=(ended(found.note),))
