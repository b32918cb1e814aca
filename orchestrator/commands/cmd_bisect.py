"""`interlace bisect`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands import options
from orchestrator.errors import InputError

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
@click.option("--queue", "queued", is_flag=True, help="Put the search into the queue: `interlace work` executes it.")
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
    queued: bool,
    quiet: bool,
) -> int:
    """Find the first release of PACKAGE between GOOD and BAD in which the speed changed.

    GOOD and BAD are two releases, the older one first; OVERRIDES are those of `interlace run`. First a run shows
    whether the two differ at all. Then each step is one interleaved run of both and of a release between them. A
    release that cannot be installed or does not run is skipped.

    Every step is a stored run: the same command goes on where an earlier one ended. With --queue, `interlace work`
    executes the steps.
    """
    from orchestrator.commands.release_search import Question, Search, answer_lines, refuse_own_keys
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
    if queued:
        _refuse_with_queue(until=until, picture=picture)
        return _queue(question)
    search = Search(
        question=question,
        tell=lambda words: out.print(words, markup=False, soft_wrap=True),
        observer=Observer if quiet else lambda: ProgressObserver(out),
        until=_moment(until),
    )
    found = search.run()
    for line in answer_lines(found, question):
        out.print(line, markup=False, soft_wrap=True)
    if picture is not None:
        _draw(found, question, picture)
        out.print(f"picture  {picture}", markup=False, soft_wrap=True)
    return 0


def _refuse_with_queue(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            remedy = "give it to `interlace work`" if name == "until" else "draw it when the search has ended"
            raise InputError(f"bisect: --queue executes nothing now, so --{name} has no use: {remedy}")


def _queue(question: "Question") -> int:
    from orchestrator.commands.queued_searches import queue_search
    from orchestrator.views.terminal import console

    found = queue_search(question)
    if found is None:
        console().print("nothing to queue: all steps are measured; the same command without --queue shows the answer")
        return 0
    console().print(f"queued: run {found[1]} of {question.experiment}", markup=False, soft_wrap=True)
    console().print("each step puts the next one into the queue; start it with `interlace work`")
    return 0


def _moment(until: str | None) -> "dt.datetime | None":
    import datetime as dt

    from orchestrator.queue.clock_times import next_time

    return None if until is None else next_time(until, now=dt.datetime.now(dt.UTC))


def _draw(found: "Found", question: "Question", picture: Path) -> None:
    from dataclasses import replace

    from orchestrator.report.charts.release_ratios import releases
    from orchestrator.report.charts.theme import WIDE
    from orchestrator.report.writing import write_drawing

    title = f"{question.package} {question.releases[0]} to {question.releases[-1]}"
    layout = replace(WIDE, title=title, subtitle="each against the good release, with its interval")
    write_drawing(picture, releases(found.points(question), order=question.releases, layout=layout))
