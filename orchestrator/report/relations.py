"""Two runs compared, and an arm over time, on the terminal."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from orchestrator.report.render_terminal import STYLES
from orchestrator.report.words import decimals, span, times
from orchestrator.statistics.compare import ALPHA, RunComparison
from orchestrator.statistics.history import Change, Point
from orchestrator.statistics.unrandomised import DriftExplanation
from orchestrator.views.terminal import table
from orchestrator.vocabulary import VERDICTS

POINTS_SHOWN = 12
BARS = "▁▂▃▄▅▆▇█"


def print_comparison(found: RunComparison, out: Console) -> None:
    """Print the treatments of two runs, each relative to the control that both runs share."""
    out.print(Text(f"{found.metric}, each treatment relative to the shared control {found.control}"))
    made = table("run A", "run B", "prompts", "A over B", "interval", "", right=("A over B",))
    for one in found.relations:
        made.add_row(
            Text(one.first),
            Text("the same arm" if one.same_arm else one.second),
            one.prompt_class or "over all",
            decimals(one.ratio),
            span(one.ci_low, one.ci_high, digits=3),
            one.says,
        )
    out.print(made)
    for line in _evening_lines(found):
        out.print(Text(line))
    for line in found.differences:
        out.print(Text(f"the runs differ in {line}"))


def _evening_lines(found: RunComparison) -> Iterator[str]:
    """Describe what is known about the difference between evenings, and what would show it."""
    if found.evenings is not None:
        size = found.evenings.half_width(ALPHA)
        yield f"between evenings one effect differs by up to {size:.1%} on this machine: the intervals are no narrower"
    elif any(one.says == "these evenings differed" for one in found.relations):
        yield (
            "how much one effect differs between evenings is not known: measure both arms in one run, or one of the"
            " pairs in three more runs"
        )


def print_history(name: str, points: Sequence[Point], changes: Sequence[Change], metric: str, out: Console) -> None:
    """Print one configuration: a bar per run, the newest runs with their versions, and the changes of the level."""
    out.print(Text(name, style="bold"))
    out.print(Text(f"{metric} of {len(points)} runs, oldest first: {bars([point.value for point in points])}"))
    made = table("run", "started (UTC)", metric, "mlx", "mlx-lm", "engine", right=(metric,))
    for point in points[-POINTS_SHOWN:]:
        versions = point.versions
        made.add_row(
            point.run_id[-12:],
            point.at.strftime("%Y-%m-%d %H:%M"),
            decimals(point.value),
            versions.get("mlx_version", "-"),
            versions.get("mlx_lm_version", "-"),
            versions.get("engine_version", "-"),
        )
    out.print(made)
    for change in changes:
        out.print(Text(f"changed at run {change.after[-12:]}: {change.words}"))
    if not changes:
        out.print("no change of level" if len(points) >= 20 else "too few runs for a change of level: it needs 20")
    out.print()


def print_explanations(found: Sequence[DriftExplanation], out: Console) -> None:
    """Print for configurations that never ran together the drift that would explain their difference."""
    drift = VERDICTS["could_be_drift"]
    for one in found:
        out.print(Text.assemble((f"{drift.words}: ", STYLES[drift.tone]), f"{times(one.ratio)}; {one.text}"))


def bars(values: Iterable[float]) -> str:
    """Draw a line of bars, scaled from the lowest to the highest value."""
    known = list(values)
    low, high = min(known), max(known)
    span = (high - low) or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in known)
