"""The arms in numbers, notes on them, and the composition of two factors."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.audit import AuditResult, BestSet, Comparison
from orchestrator.report.document import Absent, Grid, Section
from orchestrator.report.material import ArmEnergy, Material
from orchestrator.report.sections.round_lines import _finite
from orchestrator.report.words import (
    counted,
    number,
    percent,
    seconds,
    size,
    span,
    times,
)
from orchestrator.statistics.observations import ALL, ArmSummary
from orchestrator.statistics.run_drift import RUN_DRIFT
from orchestrator.vocabulary import VERDICTS


def arms_section(material: Material) -> Section:
    """Build the section of each arm's medians, over all and by class."""
    arms = [arm for arm in material.result.arms if arm.trials]
    parts = [arm for arm in arms if arm.prompt_class is not None]
    grids = [_arms_grid([arm for arm in arms if arm.prompt_class is None], caption=None)]
    if len({arm.prompt_class for arm in parts}) > 1:
        grids.append(replace(_arms_grid(parts, caption="By kind of prompt"), extra=True))
    lead = (
        "Medians over an arm's usable generations, rates in tokens per second; token p95: the 95th percentile of the"
        " times between tokens. They include the drift: compare by ratios."
    )
    lines = tuple(_energy_lines(material.energy))
    return Section(key="arms", title="Each arm in numbers", lead=lead, grids=tuple(grids), lines=lines)


def _energy_lines(found: Sequence[ArmEnergy]) -> Iterable[str]:
    """State the energy where it was read; a ratio of it is not tested, so none is stated."""
    if found:
        arms = [f"{one.arm} {number(one.joules_per_token)} J ({counted(one.trials, 'trial')})" for one in found]
        yield (
            "Energy per token of the answers, the prompt's share included, by the machine's counter"
            f" ({found[0].source}), medians: {'; '.join(arms)}."
        )


def _arms_grid(arms: Sequence[ArmSummary], *, caption: str | None) -> Grid:
    rows = tuple(
        (
            arm.label,
            arm.prompt_class or "",
            str(arm.trials),
            seconds(arm.ttft_s),
            number(arm.prefill_tps),
            number(arm.decode_tps),
            number(arm.end_to_end_tps),
            seconds(arm.inter_token_p95_s),
            number(arm.accept_length),
            percent(arm.acceptance_rate),
            size(arm.peak_memory_bytes),
        )
        for arm in arms
    )
    speeds = ("first token", "prefill", "decode", "end to end", "token p95")
    columns = ("arm", "prompts", "trials", *speeds, "accept length", "accepted", "peak memory")
    return Grid(columns=columns, rows=rows, numeric=frozenset(range(2, len(columns))), caption=caption).without_empty()


def notes_section(material: Material) -> Section | Absent:
    """Build the section of the best arms, the effect of excluded trials, and each reason once."""
    lines = dict.fromkeys((*_best_lines(material.result), *_included_lines(material), *_reason_lines(material)))
    if not lines:
        return Absent(title="Reasons and remarks", reason="there is no comparison over all prompts")
    return Section(key="notes", title="Reasons and remarks", lines=tuple(lines))


def _best_lines(result: AuditResult) -> Iterable[str]:
    """Yield the arms that may be the best, over all and in each class: never one without the other."""
    treatments = {one.treatment for one in result.comparisons}
    if len(treatments) > 1:
        yield from (line for each in result.best if (line := _best_line(each, {result.control, *treatments})))


def _best_line(each: BestSet, everyone: set[str]) -> str | None:
    if not each.arms:
        return f"no arm is among the best everywhere ({each.scope.words}): it depends on the prompts; see each part"
    if set(each.arms) != everyone:
        return f"not distinguishable from the best, {each.scope.words}: {', '.join(each.arms)}"
    return "over all no arm is distinguishable from the best" if each.scope == ALL else None


def _included_lines(material: Material) -> Iterable[str]:
    for one in material.overall:
        if one.included is not None and one.included.verdict != one.verdict:
            yield included_words(one)


def included_words(one: Comparison) -> str:
    """State the result of all first attempts, excluded trials included, for a comparison that lost trials."""
    assert one.included is not None
    would = "would be" if one.included.verdict != one.verdict else "would still be"
    words = VERDICTS[one.included.verdict].words
    return (
        f"{one.treatment}: with all first attempts, excluded trials included, it {would} {words}"
        f" ({times(one.included.ratio)})"
    )


def _reason_lines(material: Material) -> Iterable[str]:
    for one in material.overall:
        for reason in one.reasons:
            if reason.code != RUN_DRIFT:  # this one has its own line
                named = reason.text.startswith((f"{one.treatment}:", f"{one.control}:"))
                yield reason.text if named else f"{one.treatment}: {reason.text}"


def composition_section(material: Material) -> Section | Absent:
    """Build the section on two factors: each alone, both together, and whether they compose."""
    if material.composition is None:
        return Absent(title="Two settings together", reason="the arms do not form a full table of two factors")
    table, found = material.composition
    rows = []
    for one in found.compositions:
        for words, effect in (
            (f"{one.first} alone", one.first_alone),
            (f"{one.second} alone", one.second_alone),
            ("both", one.both),
            ("both, over the product of the two", one.composition),
        ):
            rows.append((words, times(effect.ratio), span(_finite(effect.ci_low), _finite(effect.ci_high), digits=3)))
    first = found.compositions[0].composition if found.compositions else None
    lead = f"{table.first} and {table.second}, over {' and '.join(table.base)}."
    if first is not None:
        lead += f" Both together yield {percent(first.ratio)} of the product of the two single effects."
    grid = Grid(columns=("", "ratio", "interval"), rows=tuple(rows), numeric=frozenset((1, 2)))
    return Section(key="composition", title="Two settings together", lead=lead, grids=(grid,))
