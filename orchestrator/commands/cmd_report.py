"""`interlace report`."""

import datetime as dt
import os
from pathlib import Path

import click

from orchestrator.commands import completing, options
from orchestrator.commands.stored_runs import measured_run, open_stored

PATH = click.Path(path_type=Path)


@click.command("report")
@click.argument("run_text", shell_complete=completing.runs, metavar="RUN", default="last")
@options.db
@click.option("-o", "--output", required=True, type=PATH, metavar="FILE.html", help="The page to write.")
@click.option("--images", type=PATH, metavar="DIR", help="Also write each chart as PNG and SVG.")
@click.option(
    "--markdown", type=PATH, metavar="FILE.md", help="Also write the report as Markdown, for an issue or a blog."
)
def command(run_text: str, url: str | None, output: Path, images: Path | None, markdown: Path | None) -> None:
    """Write a run's report as one self-contained page: the verdict, and why.

    It works offline and holds no script. RUN is an id, a unique part of one, or `last`.
    """
    from orchestrator.commands.published_claims import named_claims
    from orchestrator.report.building import build_report
    from orchestrator.report.loading import load_material
    from orchestrator.report.render_html import render_page
    from orchestrator.report.render_markdown import render_markdown
    from orchestrator.report.writing import check_targets, write_images, write_text

    check_targets(output, images, markdown)
    database = open_stored(url)
    material = load_material(measured_run(database, run_text), claims=named_claims())
    report = build_report(material, made_at=dt.datetime.now(dt.UTC))
    write_text(output, render_page(report))
    _say("report", output)
    if images is not None:
        write_images(report, images)
        _say("images", images)
    if markdown is not None:
        write_text(markdown, render_markdown(report, images=None if images is None else _seen_from(images, markdown)))
        _say("markdown", markdown)


def _say(what: str, path: Path) -> None:
    from orchestrator.views.terminal import console

    console().print(f"{what:<9}{path}", markup=False, soft_wrap=True)


def _seen_from(folder: Path, text: Path) -> str:
    """The images' folder as the Markdown file names it."""
    return os.path.relpath(folder, text.parent).replace(os.sep, "/")
