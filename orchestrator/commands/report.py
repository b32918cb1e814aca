"""`interlace report`: a run as one page."""

import datetime as dt
from typing import TYPE_CHECKING

from orchestrator.commands.opening import measured_run, open_stored, optional_path

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.statistics.claims import Claim


def report_run(run_text: str, *, url: str | None, output: str, images: str | None, markdown: str | None) -> None:
    """`interlace report`: nothing is run and nothing in the database is changed."""
    from orchestrator.report.building import build_report
    from orchestrator.report.loading import load_material
    from orchestrator.report.markdown import render_markdown
    from orchestrator.report.page import render_page
    from orchestrator.report.writing import check_targets, write_images, write_text

    page, folder, text = optional_path(output), optional_path(images), optional_path(markdown)
    assert page is not None
    check_targets(page, folder, text)
    database = open_stored(url)
    material = load_material(measured_run(database, run_text), claims=_claims())
    report = build_report(material, made_at=dt.datetime.now(dt.UTC))
    write_text(page, render_page(report))
    _say("report", page)
    if folder is not None:
        write_images(report, folder)
        _say("images", folder)
    if text is not None:
        write_text(text, render_markdown(report, images=None if folder is None else _seen_from(folder, text)))
        _say("markdown", text)


def _say(what: str, path: "Path") -> None:
    from orchestrator.views.terminal import console

    console().print(f"{what:<9}{path}", markup=False, soft_wrap=True)


def _seen_from(folder: "Path", text: "Path") -> str:
    """The images' folder as the Markdown file names it."""
    import os

    return os.path.relpath(folder, text.parent).replace(os.sep, "/")


def _claims() -> "tuple[Claim, ...]":
    from orchestrator.configuration.groups import Parts
    from orchestrator.statistics.claims import claim_of

    parts = Parts()
    names = parts.options("claim")
    parts.load([("claim", name) for name in names])
    return tuple(claim_of(parts.values(("claim", name))) for name in names)
