"""Two runs beside each other, and configurations over time, as documents. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from orchestrator.report.document import Document, Grid, Line, Section
from orchestrator.report.words import counted, decimals, ended, span, times
from orchestrator.statistics.compare import ALPHA, Relation, RunComparison
from orchestrator.statistics.history import MIN_POINTS, Series, moved_packages
from orchestrator.statistics.unrandomised import DriftExplanation
from orchestrator.vocabulary import METRICS, VERDICTS

POINTS_SHOWN = 12
BARS = "▁▂▃▄▅▆▇█"
_VERSIONS = (("mlx", "mlx_version"), ("mlx-lm", "mlx_lm_version"), ("engine", "engine_version"))


def build_comparison(found: RunComparison, runs: Sequence[str]) -> Document:
    """Print the treatments of two runs, each relative to the control that both runs share."""
    grid = Grid(
        columns=("run A", "run B", "prompts", "A over B", "interval", ""),
        rows=tuple(_relation(one) for one in found.relations),
        numeric=frozenset((3,)),
    )
    section = Section(
        key="relations",
        title="Treatments of A over treatments of B",
        grids=(grid,),
        lines=(*_evening_lines(found), *(f"the runs differ in {line}" for line in found.differences)),
    )
    return Document(
        title="compare",
        about=tuple(f"run {letter}: {run}" for letter, run in zip("AB", runs, strict=True)),
        warnings=(),
        verdict=f"{found.metric}, each treatment relative to the shared control {found.control}",
        lines=(),
        sections=(section,),
    )


def _relation(one: Relation) -> tuple[str, ...]:
    return (
        one.first,
        "the same arm" if one.same_arm else one.second,
        one.prompt_class or "over all",
        decimals(one.ratio),
        span(one.ci_low, one.ci_high, digits=3),
        one.says,
    )


def _evening_lines(found: RunComparison) -> Iterator[str]:
    """Return what is known of the difference between evenings, and how to learn it."""
    if found.evenings is not None:
        size = found.evenings.half_width(ALPHA)
        yield f"one effect differs between evenings by up to {size:.1%} on this machine: the intervals include it"
    elif any(one.says == "these evenings differed" for one in found.relations):
        yield (
            "the variation of an effect between evenings is unknown: measure both arms in one run, or one of the"
            " pairs in three more runs"
        )


def comparison_values(found: RunComparison, runs: Sequence[str]) -> dict[str, Any]:
    """The comparison as JSON values."""
    relations = [asdict(one) | {"says": one.says} for one in found.relations]
    return {"runs": list(runs)} | asdict(found) | {"relations": relations}


def build_history(
    series: Sequence[Series], explanations: Sequence[DriftExplanation], metric: str, said: Mapping[str, str]
) -> Document:
    """Configurations over time, and the drift that would explain the difference of those that no run held together.

    Args:
        said: what people say about runs, by run.
    """
    moved = [one for one in series if one.changes]
    return Document(
        title="history",
        about=(METRICS[metric].words, counted(len(series), "configuration")),
        warnings=(),
        verdict=f"{len(moved)} of {counted(len(series), 'configuration')} changed in speed",
        lines=tuple(_explained(one) for one in explanations),
        sections=tuple(_series(at, one, metric, said) for at, one in enumerate(series)),
    )


def build_empty_history(asked: Mapping[str, str], metric: str, *, simulated: bool) -> Document:
    """The document if nothing matches the filters."""
    filters = ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in asked.items())
    verdict = f"no finished trials of {'simulated' if simulated else 'real'} runs match {filters}".rstrip()
    if not filters:
        verdict = f"no finished trials of {'simulated' if simulated else 'real'} runs"
    return Document(
        title="history",
        about=(METRICS[metric].words,),
        warnings=(),
        verdict=f"{verdict}; `interlace status` lists the runs",
        lines=(),
        sections=(),
    )


def _explained(one: DriftExplanation) -> Line:
    drift = VERDICTS["could_be_drift"]
    return Line(
        sign=drift.sign, tone=drift.tone, verdict=drift.words, sentence=f"{times(one.ratio)}; {one.text}", figure=""
    )


def _series(at: int, one: Series, metric: str, said: Mapping[str, str]) -> Section:
    """One configuration: a bar per run, the newest runs with their versions, and where the level changed."""
    newest = one.points[-POINTS_SHOWN:]
    grid = Grid(
        columns=("run", "started (UTC)", metric, *(head for head, _ in _VERSIONS)),
        rows=tuple(
            (
                point.run_id[-12:],
                point.at.strftime("%Y-%m-%d %H:%M"),
                decimals(point.value),
                *(point.versions.get(name, "-") for _, name in _VERSIONS),
            )
            for point in newest
        ),
        numeric=frozenset((2,)),
    )
    return Section(
        key=f"series-{at}",
        title=one.name,
        lead=f"{metric} of {counted(len(one.points), 'run')}, oldest first: {bars(each.value for each in one.points)}",
        grids=(grid,),
        lines=(*_change_lines(one), *_said_by_people(one, said)),
    )


def _said_by_people(one: Series, said: Mapping[str, str]) -> Iterator[str]:
    yield from (f"run {point.run_id[-12:]}: {said[point.run_id]}" for point in one.points if point.run_id in said)


def _change_lines(one: Series) -> Iterator[str]:
    for before, after in pairwise(one.points):
        if moved := moved_packages(before, after):
            yield ended(f"installed before run {after.run_id[-12:]}: {', '.join(map(str, moved))}")
    for change in one.changes:
        yield ended(f"changed at run {change.after[-12:]}: {change.words}")
        yield from (f"to prove it: {command}" for command in one.proofs.get(change.after, ()))
    if not one.changes:
        needed = 2 * MIN_POINTS
        enough = len(one.points) >= needed
        yield "no change of level" if enough else f"too few runs for a change of level: it needs {needed}"


def history_values(series: Sequence[Series], explanations: Sequence[DriftExplanation], metric: str) -> dict[str, Any]:
    """The history as JSON values."""
    return {
        "metric": metric,
        "series": [asdict(one) for one in series],
        "explanations": [asdict(one) for one in explanations],
    }


def bars(values: Iterable[float]) -> str:
    """Draw a line of bars, scaled from the lowest to the highest value."""
    known = list(values)
    low, high = min(known), max(known)
    span = (high - low) or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in known)
