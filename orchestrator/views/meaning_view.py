"""What the numbers mean, as sections of a few rows: the terminal and Markdown show the same ones. Pure: values in, text
out. A section that has nothing to say is not there."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.findings.values import (
    ArmLosslessness,
    ArmTurns,
    Ceiling,
    Findings,
    FirstDivergence,
    Interval,
    Losslessness,
    PromptOutcome,
    TurnFigures,
    VerifyCost,
    WidthCurve,
)
from orchestrator.findings.verification import no_checks, proposing_words
from orchestrator.views.drawn import visible

MISSING = "-"
SHOWN_CHARACTERS = 24  # of text around a divergence
MOST_REASONS = 5  # an arm: some hold numbers of their own prompt
PROBE_WORDS = {"near_tie": "near tie", "real": "real difference", "unknown": "unknown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A title, a table, and lines under it."""

    title: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    words: frozenset[str] = frozenset()  # columns that hold words: set to the left
    lines: tuple[str, ...] = ()


def sections(found: Findings) -> list[Section]:
    """All that the run has something to say about."""
    every = (
        _losslessness(found.losslessness),
        _verification(found),
        _ceilings(found.ceilings),
        *_turns(found.turns),
        _sampling(found),
    )
    return [_trimmed(section) for section in every if section is not None]


def _trimmed(section: Section) -> Section:
    """Without the columns that say nothing."""
    kept = [place for place in range(len(section.head)) if any(row[place] != MISSING for row in section.rows)]
    return replace(
        section,
        head=tuple(section.head[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in section.rows),
    )


# ---- losslessness ----


def _losslessness(found: Losslessness | None) -> Section | None:
    if found is None:
        return None
    told = [arm for arm in found.arms if arm.arm != arm.against or arm.deterministic is not None]
    if not told:
        return None
    compared = [arm for arm in told if arm.identical + arm.differs]
    notes = list(dict.fromkeys(arm.note for arm in told if arm.note))
    too_early = [arm.too_early for arm in told if arm.too_early]
    lines = [*too_early, *(notes if compared else notes[:1]), *_why_unknown(told, found.control), *_examples(told)]
    return Section(
        title="same answers? (temperature 0, token by token where both tell their tokens)",
        head=("arm", "beside", "identical", "repeats alike", "differs at", "by the probe"),
        rows=tuple(_lossless_row(arm) for arm in compared),
        words=frozenset(("arm", "beside", "by the probe")),
        lines=tuple(lines),
    )


def _lossless_row(arm: ArmLosslessness) -> tuple[str, ...]:
    alike = {True: "yes", False: "NO", None: MISSING}[arm.deterministic]
    counts = {"near ties": arm.near_ties, "real": arm.real, "unknown": arm.differs - arm.near_ties - arm.real}
    probe = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or MISSING
    return (
        arm.arm,
        "itself" if arm.arm == arm.against else arm.against,
        f"{arm.identical} of {arm.identical + arm.differs}",
        alike,
        MISSING if arm.earliest is None else f"token {arm.earliest + 1}",
        probe,
    )


def _why_unknown(told: Sequence[ArmLosslessness], control: str) -> Iterable[str]:
    """Why prompts could not be compared, where the arm's note does not say it, and why differences are unknown."""
    for arm in told:
        name = arm.arm if arm.against == control else f"{arm.arm} beside {arm.against}"
        parted = [one.divergence for one in arm.outcomes if one.divergence is not None]
        reasons = {
            "not compared": [one.reason for one in arm.outcomes if one.reason and one.reason != arm.note],
            "unknown": [divergence.reason for divergence in parted if divergence.verdict == "unknown"],
        }
        for what, every in reasons.items():
            counts = Counter(every).most_common()
            yield from (f"{name}: {count} {what}: {reason}" for reason, count in counts[:MOST_REASONS])
            if others := sum(count for _, count in counts[MOST_REASONS:]):
                yield f"{name}: {others} {what} for other reasons, which --format json tells"


def _examples(told: Sequence[ArmLosslessness]) -> Iterable[str]:
    """Each arm's earliest divergence from its other, in words."""
    for arm in told:
        parted = [one for one in arm.outcomes if one.divergence is not None]
        if parted:
            yield _example(min(parted, key=lambda one: _place(one.divergence)))


def _place(divergence: FirstDivergence | None) -> int:
    return divergence.token_index if divergence is not None and divergence.token_index is not None else 0


def _example(one: PromptOutcome) -> str:
    found = one.divergence
    if found is None:
        return ""
    where = "bytes" if found.token_index is None else f"token {found.token_index + 1}"
    before = visible((found.context_text or "")[-SHOWN_CHARACTERS:])
    after = f"after «{before}» " if before else ""
    theirs, mine = _quoted(found.control_text, found.control_token), _quoted(found.arm_text, found.arm_token)
    verdict = PROBE_WORDS[found.verdict]
    reason = "" if found.verdict == "unknown" else f": {found.reason}"  # that of the unknown is told before
    gap = "" if found.gap is None else f", gap {found.gap:.4f} nats"
    rounding = "" if found.rounding is None else f", rounding {found.rounding:.4f}"
    return f"{one.arm}, {one.prompt_id}, {where}: {after}{theirs} became {mine}; {verdict}{gap}{rounding}{reason}"


def _quoted(text: str | None, token: int | None) -> str:
    """A token by its text, by its id where nobody told the text; neither: the answer ended there."""
    if text:
        return f"«{visible(text[:SHOWN_CHARACTERS])}»"
    return "the end" if token is None else f"token id {token}"


# ---- cost of verification ----


def _verification(found: Findings) -> Section | None:
    if not found.verify_costs and not found.pass_curves:
        return None
    costs = [cost for cost in found.verify_costs if cost.rounds_timed]
    silent = [cost for cost in found.verify_costs if not cost.rounds_timed and cost.prompt_class is None]
    over_all = [cost for cost in costs if cost.prompt_class is None]
    lines = [f"{cost.arm}: {cost.round_cost.source}" for cost in silent]
    lines += _unknown_lines(costs)
    lines += no_checks(over_all)
    lines += [f"{cost.arm}: {words}" for cost in over_all if (words := proposing_words(cost)) is not None]
    lines += _best_widths(found.width_curves)
    lines += [f"{cost.arm}: {cost.doubt}" for cost in over_all if cost.doubt is not None]
    lines += [
        f"{cost.arm}: one token more a round{_of_those(cost)} would bring {cost.one_more.value:.2f}x"
        for cost in over_all
        if cost.one_more.value is not None
    ]
    lines += [
        f"a pass of {curve.checkpoint} ({curve.role}) by its tokens: "
        + ", ".join(f"{width}: {cost:.2f}" for width, cost in curve.cost)
        for curve in found.pass_curves
        if len(curve.cost) > 1
    ]
    return Section(
        title="cost of verification (in plain decoding steps of the same weights)",
        head=("arm", "prompts", "width", "tokens", "round", "verify", "draft", "predicted", "measured"),
        rows=tuple(_cost_row(cost) for cost in costs),
        words=frozenset(("arm", "prompts")),
        lines=tuple(dict.fromkeys(lines)),
    )


def _cost_row(cost: VerifyCost) -> tuple[str, ...]:
    return (
        cost.arm,
        cost.prompt_class or "all",
        MISSING if cost.width is None else str(cost.width),
        _plain(cost.accept_length),
        _plain(cost.round_cost.value),
        _plain(cost.verify_cost.value),
        _plain(cost.draft_cost.value),
        _times(cost.predicted.value),
        _times(None if cost.measured is None else cost.measured.ratio),
    )


def _unknown_lines(costs: Sequence[VerifyCost]) -> Iterable[str]:
    """Why a column is empty, each reason once."""
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


def _of_those(cost: VerifyCost) -> str:
    return "" if cost.proposing in (None, 1.0) else " with a proposal"


def _best_widths(curves: Sequence[WidthCurve]) -> Iterable[str]:
    """What each family's best width is, classes with the same answer together."""
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
    words = "plain decoding, no width pays" if best.width == 1 else f"{best.width} ({best.predicted:.2f}x)"
    edge = ", the widest that could be judged: wider may be better" if curve.at_edge else ""
    ran = "" if curve.best_measured is None else f"; of those that ran, {_width_words(curve.best_measured)}"
    return f"predicted best width {words}{edge}{ran}"


def _width_words(width: int) -> str:
    return "none beats plain decoding" if width == 1 else f"{width} was the fastest"


# ---- ceiling ----


def _ceilings(found: Sequence[Ceiling]) -> Section | None:
    if not found:
        return None
    known = [one for one in found if one.ceiling_passes_per_s.value is not None]
    lines = [f"bandwidth: {_bandwidth(known[0])}"] if known else []
    reasons: dict[str, list[str]] = {}
    for one in found:
        if one.ceiling_passes_per_s.value is None:
            reasons.setdefault(one.ceiling_passes_per_s.source, []).append(one.arm)
    lines += [f"{', '.join(arms)}: no ceiling: {reason}" for reason, arms in reasons.items()]
    lines += [f"{one.arm}: {one.note}" for one in known if one.note]
    return Section(
        title="ceiling of decoding (bandwidth over bytes read)",
        head=("arm", "GB a pass", "passes/s", "at most", "reached", "tokens/s", "at most"),
        rows=tuple(_ceiling_row(one) for one in known),
        words=frozenset(("arm",)),
        lines=tuple(lines),
    )


def _ceiling_row(one: Ceiling) -> tuple[str, ...]:
    return (
        one.arm,
        MISSING if one.bytes_per_pass.value is None else f"{one.bytes_per_pass.value / 1e9:.3g}",
        _short(one.measured_passes_per_s),
        _short(one.ceiling_passes_per_s.value),
        MISSING if one.share.value is None else f"{one.share.value:.0%}",
        _short(one.measured_tps),
        _short(one.ceiling_tps.value),
    )


def _bandwidth(one: Ceiling) -> str:
    found = one.bandwidth_bytes_per_s
    return MISSING if found.value is None else f"{found.value / 1e9:.4g} GB/s, {found.source}"


# ---- turns ----


def _turns(found: Sequence[ArmTurns]) -> Iterable[Section]:
    for workload in dict.fromkeys(arm.workload for arm in found):
        arms = [arm for arm in found if arm.workload == workload]
        yield Section(
            title=f"turns of {workload} (medians; relative: ttft over the control's in the same turn; new/s: prefill)",
            head=("arm", "turn", "ttft (s)", "prompt", "cached", "new/s", "relative", "interval"),
            rows=tuple(_turn_row(arm, turn) for arm in arms for turn in arm.turns),
            words=frozenset(("arm",)),
            lines=tuple(f"{arm.arm}: {remark}" for arm in arms for remark in arm.remarks),
        )


def _turn_row(arm: ArmTurns, turn: TurnFigures) -> tuple[str, ...]:
    return (
        arm.arm if turn.turn == 0 else "",
        str(turn.turn + 1),
        _short(turn.ttft_s),
        _count(turn.prompt_tokens),
        _count(turn.cached_tokens.value),
        _short(turn.prefill_tps.value),
        _times(None if turn.ttft_ratio is None else turn.ttft_ratio.ratio),
        _span(turn.ttft_ratio),
    )


# ---- sampling ----


def _sampling(found: Findings) -> Section | None:
    if found.sampling.note is None:
        return None
    points = found.sampling.by_temperature
    return Section(
        title="samplers",
        head=("arm", "temperature", "tokens a round", "accepted"),
        rows=tuple(
            (
                point.arm,
                MISSING if point.temperature is None else f"{point.temperature:g}",
                _plain(point.accept_length),
                MISSING if point.acceptance_rate is None else f"{point.acceptance_rate:.0%}",
            )
            for point in points
        ),
        words=frozenset(("arm",)),
        lines=(found.sampling.note,),
    )


# ---- numbers ----


def _plain(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}"


def _times(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}x"


def _short(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _count(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"


def _span(found: Interval | None) -> str:
    if found is None or found.ci_low is None or found.ci_high is None:
        return MISSING
    return f"{found.ci_low:.2f} to {found.ci_high:.2f}"
