"""Speculation's widths, losslessness, ceilings and turns: from the run's findings."""

from collections.abc import Iterable, Sequence
from functools import partial

from orchestrator.findings.values import (
    ArmLosslessness,
    ArmTurns,
    Figure,
    Findings,
    PromptOutcome,
    VerifyCost,
    WidthCurve,
)
from orchestrator.findings.verification import no_checks, proposing_words
from orchestrator.report.charts.machine import roofline, turns
from orchestrator.report.charts.speculation import by_width, passes_by_width, scope_words
from orchestrator.report.charts.theme import Drawing, Layout, Palette
from orchestrator.report.material import Material
from orchestrator.report.parts import Absent, Cell, Fork, Grid, Picture, Section
from orchestrator.report.sections.results import palette_of
from orchestrator.report.verdict import in_a_headline
from orchestrator.report.words import MISSING, MORE, count, counted, listed, number, percent, seconds, size, span, times

MOST_CURVES = 8
MOST_FORKS = 8
SHOWN_CHARACTERS = 240
PROBE_TONES = {"near_tie": ("arm1", "near-tie"), "real": ("bad", "real difference"), "unknown": ("muted", "not probed")}


def meaning_sections(material: Material) -> Iterable[Section | Absent]:
    """All that is drawn from the findings."""
    for build in (widths_section, turns_section, losslessness_section, ceiling_section):
        yield build(material, material.findings)


# ---- widths ----


def widths_section(material: Material, findings: Findings) -> Section | Absent:
    """Speed-up by width, what a round yields and what it costs."""
    title = "Width and cost of verification"
    pictures = list(_widths_pictures(findings))
    if not findings.verify_costs and not pictures:
        return Absent(title=title, reason="no arm speculates, and no pass was timed by its width")
    curves = _curves(findings)
    lines = [] if curves else ["No curve of widths: the cost of fewer than two widths is known."]
    lines += _curve_lines(curves)
    over_all = [one for one in findings.verify_costs if one.prompt_class is None]
    lines += [f"{line}." for line in no_checks(over_all)]
    lines += [f"{one.arm}: {words}." for one in over_all for words in (proposing_words(one), one.doubt) if words]
    sampling = findings.sampling
    lines += [sampling.note] if sampling.note else []
    lines += [
        f"{point.arm}: accepts {number(point.accept_length)} tokens a round at temperature {number(point.temperature)}."
        for point in sampling.by_temperature
    ]
    grids = (_verify_grid(findings.verify_costs),) if findings.verify_costs else ()
    lead = (
        "A verify round commits some tokens and costs some plain steps; the quotient is the speed-up. Where the tokens"
        " lie above the cost, speculation pays."
    )
    return Section(key="widths", title=title, lead=lead, pictures=tuple(pictures), grids=grids, lines=tuple(lines))


def _curves(findings: Findings) -> list[WidthCurve]:
    """Those with widths to choose from; of several kinds of arms, over all prompts only."""
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
                "Time of one pass by the number of tokens in it, over that of one token: flat where the memory is the"
                " limit, rising where computing is. Source:"
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
        return "What a verify round yields and costs, by its width"
    if set(known.values()) == {1}:
        return "Plain decoding is predicted to be fastest: no width pays for its verification"
    if len(set(known.values())) == 1:
        kinds = "every arm" if several else "every kind of prompt"
        return f"The predicted best width is {next(iter(known.values()))} for {kinds}"
    on = "arm" if several else "prompts"
    return f"The best width depends on the {on}: {', '.join(f'{width} for {name}' for name, width in known.items())}"


def _curve_lines(curves: Sequence[WidthCurve]) -> list[str]:
    """The best widths; kinds of prompts of which the same is to be said share a line."""
    names: dict[str, list[str]] = {}
    several = len({curve.arms for curve in curves}) > 1
    for curve in curves:
        if words := _best_words(curve):
            names.setdefault(words, []).append(scope_words(curve, several=several))
    return [f"{listed(of)}: {words}" for words, of in names.items()]


def _best_words(curve: WidthCurve) -> str | None:
    if curve.best.value is None:
        return f"no best width is predicted ({curve.best.source})."
    if curve.best_measured is None:
        return None
    edge = " (the widest that could be judged: a wider one may be better)" if curve.at_edge else ""
    return f"best width predicted {curve.best.value:.0f}{edge}, measured {curve.best_measured} ({curve.source})."


def _verify_grid(costs: Sequence[VerifyCost]) -> Grid:
    rows = tuple(
        (
            one.arm,
            one.prompt_class or "all",
            count(one.width),
            number(one.accept_length),
            seconds(one.step_s),
            _figure(one.verify_cost),
            _figure(one.draft_cost),
            _times(one.predicted),
            MISSING
            if one.measured is None
            else f"{times(one.measured.ratio)} ({span(one.measured.ci_low, one.measured.ci_high)})",
            _times(one.one_more),
        )
        for one in costs
    )
    columns = (
        "arm",
        "prompts",
        "width",
        "accept length",
        "a round takes",
        "verify (plain steps)",
        "draft (plain steps)",
        "speed-up predicted",
        "measured",
        "with one token more accepted",
    )
    return Grid(columns=columns, rows=rows, numeric=frozenset(range(2, len(columns)))).without_empty()


def _figure(figure: Figure) -> str:
    return number(figure.value)


def _times(figure: Figure) -> str:
    return times(figure.value)


# ---- turns ----


def turns_section(material: Material, findings: Findings) -> Section | Absent:
    """First and later turns, cached and new tokens."""
    title = "The second turn"
    arms = [one for one in findings.turns if any(turn.ttft_s is not None for turn in one.turns)]
    if not arms:
        return Absent(title=title, reason="no conversation of this run has a second turn")
    palette = palette_of(material)
    generations = sum(turn.generations for one in arms for turn in one.turns)
    pictures: list[Picture] = []
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
    lines = tuple(f"{one.arm}, {one.workload}: {remark}." for one in arms for remark in one.remarks)
    return Section(key="turns", title=title, pictures=tuple(pictures), grids=(_turn_grid(arms),), lines=lines)


def _draw_turns(arms: Sequence[ArmTurns], palette: Palette, layout: Layout) -> Drawing:
    return turns(arms, palette=palette, layout=layout)


def turns_title(arms: Sequence[ArmTurns], control: str) -> str:
    """The largest supported difference in a later turn."""
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


def _turn_grid(arms: Sequence[ArmTurns]) -> Grid:
    rows = tuple(
        (
            one.arm,
            one.workload,
            str(turn.turn + 1),
            seconds(turn.ttft_s),
            _whole(turn.prompt_tokens),
            _figure_or_reason(turn.cached_tokens),
            _figure_or_reason(turn.new_tokens),
            number(turn.prefill_tps.value),
            MISSING
            if turn.ttft_ratio is None
            else f"{times(turn.ttft_ratio.ratio)} ({span(turn.ttft_ratio.ci_low, turn.ttft_ratio.ci_high)})",
        )
        for one in arms
        for turn in one.turns
    )
    columns = (
        "arm",
        "workload",
        "turn",
        "first token",
        "prompt tokens",
        "cached",
        "new",
        "prefill of the new (tokens/s)",
        "first token, over the control's",
    )
    return Grid(columns=columns, rows=rows, numeric=frozenset(range(2, len(columns)))).without_empty()


def _whole(value: float | None) -> str:
    """A median count of tokens."""
    return MISSING if value is None else count(round(value)) if value == round(value) else number(value)


def _figure_or_reason(figure: Figure) -> str | Cell:
    if figure.value is None:
        return Cell(text=f"unknown: {figure.source}", tone="muted")
    return _whole(figure.value)


# ---- losslessness ----


def losslessness_section(material: Material, findings: Findings) -> Section | Absent:
    """Identical, or where the answers part."""
    title = "Do the arms write the same?"
    found = findings.losslessness
    if found is None:
        return Absent(title=title, reason="no two answers to the same prompt are there to compare")
    notes = [one.note if one.note.startswith(one.arm) else f"{one.arm}: {one.note}" for one in found.arms if one.note]
    if not any(one.identical or one.differs for one in found.arms):
        return Absent(title=title, reason="; ".join(dict.fromkeys(notes)) or "no two answers could be compared")
    forks = [fork for one in found.arms for fork in _forks(one)]
    lines = [
        f"{words}." for words in [one.too_early for one in found.arms if one.too_early] + list(dict.fromkeys(notes))
    ]
    if len(forks) > MOST_FORKS:
        lines.append(f"The first {MOST_FORKS} of {len(forks)} divergences; the table `divergence` holds all.")
    return Section(
        key="losslessness",
        title=title,
        lead=_lossless_lead(found.arms),
        grids=(_lossless_grid(found.arms),),
        forks=tuple(forks[:MOST_FORKS]),
        lines=tuple(lines),
    )


def _lossless_lead(arms: Sequence[ArmLosslessness]) -> str:
    others = [one for one in arms if (one.identical or one.differs) and one.arm != one.against]
    differing = [one for one in others if one.differs]
    if not others:
        return "No arm's answers could be held against another's."
    if not differing:
        return f"Every answer that was compared is identical: {listed([one.arm for one in others])}."
    alike = [one for one in others if one.identical and not one.differs and not one.unknown]
    parts = [f"{one.arm} writes what {one.against} writes in all of {counted(one.prompts, 'answer')}" for one in alike]
    parts += [
        f"{one.arm} differs from {one.against} in {one.differs} of {counted(one.prompts, 'answer')}"
        for one in differing
    ]
    return f"{listed(parts[:4])}."


def _lossless_grid(arms: Sequence[ArmLosslessness]) -> Grid:
    words = {None: "unknown", True: "yes", False: "no"}
    rows = tuple(
        (
            one.arm,
            "itself" if one.arm == one.against else one.against,
            words[one.same_weights],
            str(one.identical),
            str(one.differs),
            str(one.unknown),
            str(one.near_ties),
            str(one.real),
            MISSING if one.earliest is None else f"token {one.earliest + 1}",
            words[one.deterministic],
        )
        for one in arms
    )
    columns = (
        "arm",
        "against",
        "same weights",
        "identical",
        "differs",
        "unknown",
        "near-ties",
        "real",
        "earliest",
        "deterministic with itself",
    )
    return Grid(columns=columns, rows=rows, numeric=frozenset(range(3, 9)))


def _forks(one: ArmLosslessness) -> Iterable[Fork]:
    for outcome in one.outcomes:
        if outcome.divergence is not None:
            yield _fork(one, outcome)


def _fork(one: ArmLosslessness, outcome: PromptOutcome) -> Fork:
    found = outcome.divergence
    assert found is not None
    tone, verdict = PROBE_TONES[found.verdict]
    where = (
        f"token {found.token_index + 1}"
        if found.token_index is not None
        else f"character {(found.character_index or 0) + 1}"
    )
    turn = f", turn {outcome.turn + 1}" if outcome.turn else ""
    remark = found.reason
    if found.top:
        top = " and ".join(f"{each.text!r} ({each.log_probability:.3f})" for each in found.top[:2])
        remark += f"{'' if remark.endswith('.') else '.'} Most likely there: {top} nats."
    return Fork(
        title=f"{one.arm} against {one.against}, {outcome.prompt_id}{turn}, from {where}",
        tone=tone,
        verdict=verdict,
        before=_end_of(found.context_text),
        control=_start_of(found.control_text, found.control_token),
        arm=_start_of(found.arm_text, found.arm_token),
        remark=remark,
    )


def _end_of(text: str | None) -> str:
    text = text or ""
    return text if len(text) <= SHOWN_CHARACTERS else f"{MORE}{text[-SHOWN_CHARACTERS:]}"


def _start_of(text: str | None, token: int | None) -> str:
    if text is None:
        return "(the answer ends here)" if token is None else f"(token id {token}, whose text nobody told)"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}{MORE}"


# ---- ceilings ----


def ceiling_section(material: Material, findings: Findings) -> Section | Absent:
    """What the bandwidth allows, and what was reached."""
    title = "How near to the ceiling"
    known = [one for one in findings.ceilings if one.ceiling_passes_per_s.value and one.measured_passes_per_s]
    if not known:
        reasons = list(dict.fromkeys(one.ceiling_passes_per_s.source for one in findings.ceilings))
        return Absent(title=title, reason="; ".join(reasons) or "no arm has a ceiling")
    palette = palette_of(material)
    best = max(known, key=lambda one: one.share.value or 0.0)
    bandwidth = known[0].bandwidth_bytes_per_s
    detail = (
        f"Passes a second reached (bar) and allowed (mark): {size(bandwidth.value)}/s ({bandwidth.source}) over the"
        f" bytes that a pass reads; {counted(findings.rounds, 'round')}."
    )
    picture = Picture(
        key="ceiling",
        title=f"{in_a_headline(best.arm)} reaches {percent(best.share.value)} of what the memory's bandwidth allows",
        detail=detail,
        draw=lambda layout: roofline(known, palette=palette, layout=layout),
    )
    rows = tuple(
        (
            one.arm,
            size(one.weights_bytes.value),
            size(one.draft_bytes.value) if one.draft_bytes.value else MISSING,
            size(one.kv_bytes.value),
            number(one.ceiling_passes_per_s.value),
            number(one.measured_passes_per_s),
            number(one.ceiling_tps.value),
            number(one.measured_tps),
            percent(one.share.value),
            one.note or "",
        )
        for one in findings.ceilings
    )
    columns = (
        "arm",
        "weights a pass",
        "draft a round",
        "cache",
        "passes/s allowed",
        "reached",
        "tokens/s allowed",
        "reached",
        "share",
        "",
    )
    grid = Grid(columns=columns, rows=rows, numeric=frozenset(range(1, 9)))
    return Section(key="ceiling", title=title, pictures=(picture,), grids=(grid,))
