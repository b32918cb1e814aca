"""`interlace bisect`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands import options

if TYPE_CHECKING:
    import datetime as dt

    from orchestrator.commands.release_search import Found, Question


@click.command("bisect")
@click.argument("package")
@click.argument("good")
@click.argument("bad")
@options.plan_arguments
@click.option("--until", metavar="TIME", help="Begin no further round after this time, such as 07:00.")
@click.option("--rounds", type=click.IntRange(min=6), help="Rounds of each step. Default: what the tests need.")
@click.option(
    "--alpha",
    type=click.FloatRange(0, 0.5, min_open=True),
    default=0.05,
    show_default=True,
    help="The chance of a wrong answer, over all steps.",
)
@click.option("--picture", type=options.FILE, help="Draw the releases and their ratios into this file, SVG or PNG.")
@click.option("--list", "only_list", is_flag=True, help="List the releases between GOOD and BAD, and run nothing.")
@click.option("--quiet", is_flag=True, help="Print no progress, only the results of the steps.")
def command(
    package: str,
    good: str,
    bad: str,
    overrides: tuple[str, ...],
    config_dir: Path | None,
    until: str | None,
    rounds: int | None,
    alpha: float,
    picture: Path | None,
    *,
    only_list: bool,
    quiet: bool,
) -> int:
    """Find the first release of PACKAGE between GOOD and BAD in which the speed changed.

    GOOD and BAD are two releases, the older one first; OVERRIDES are those of `interlace run`. First a run shows
    whether the two differ at all. Then each step is one interleaved run of both and of a release between them. A
    release that cannot be installed or does not run is skipped.

    Every step is a stored run: the same command goes on where an earlier one ended.
    """
    from orchestrator.commands.release_search import Question, Search, refuse_own_keys
    from orchestrator.environments.releases import releases_between
    from orchestrator.running.events import Observer
    from orchestrator.views.progress_view import ProgressObserver
    from orchestrator.views.terminal import console

    refuse_own_keys(overrides)
    out, releases = console(), releases_between(package, good, bad)
    out.print(f"{package}: {len(releases)} releases, {', '.join(releases)}", soft_wrap=True)
    if only_list:
        return 0
    question = Question(
        package=package,
        releases=tuple(releases),
        overrides=overrides,
        config_dir=config_dir,
        rounds=rounds,
        alpha=alpha,
    )
    search = Search(
        question=question,
        tell=lambda words: out.print(words, markup=False, soft_wrap=True),
        observer=Observer if quiet else lambda: ProgressObserver(out),
        until=_moment(until),
    )
    found = search.run()
    for line in _told(found, question):
        out.print(line, markup=False, soft_wrap=True)
    if picture is not None:
        _draw(found, question, picture)
        out.print(f"picture  {picture}", markup=False, soft_wrap=True)
    return 0


def _moment(until: str | None) -> "dt.datetime | None":
    import datetime as dt

    from orchestrator.queue.clock_times import next_time

    return None if until is None else next_time(until, now=dt.datetime.now(dt.UTC))


def _told(found: "Found", question: "Question") -> list[str]:
    """The result in lines."""
    good, bad = question.releases[0], question.releases[-1]
    runs = [step.run_id for step in found.steps if step.run_id]
    lines = [f"runs     {', '.join(runs)}"]
    if found.answer is None:
        effect = found.steps[0].to_good
        assert effect is not None
        widest = max(abs(effect.ci_low - 1), abs(effect.ci_high - 1))
        beyond = "any size is possible with so few rounds" if widest > 1 else f"no difference beyond {widest:.1%}"
        return [f"{question.package} {good} and {bad}: {beyond}: nothing to bisect", *lines]
    first = found.answer.first
    if len(first) == 1:
        headline = f"first release in which the speed changed: {question.package} {first[0]}"
    else:
        headline = f"the speed changed in one of: {', '.join(first)} (they cannot be distinguished)"
    effect = next((step.to_good for step in found.steps if (step.candidate or bad) == first[-1] and step.to_good), None)
    size = "" if effect is None else f", {effect.ratio:.3f} times {good} ({effect.ci_low:.3f} to {effect.ci_high:.3f})"
    more = found.answer.more_changes
    several = [f"there is more than one change: {', '.join(more)} is like neither end"] if more else []
    return [headline + size, f"last release like {good}: {found.answer.last_good}", *several, *lines]


def _draw(found: "Found", question: "Question", picture: Path) -> None:
    from dataclasses import replace

    from orchestrator.report.charts.release_ratios import releases
    from orchestrator.report.charts.theme import WIDE
    from orchestrator.report.writing import write_drawing

    title = f"{question.package} {question.releases[0]} to {question.releases[-1]}"
    layout = replace(WIDE, title=title, subtitle="each against the good release, with its interval")
    write_drawing(picture, releases(found.points(question), order=question.releases, layout=layout))
