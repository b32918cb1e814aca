"""Draws the README's pictures from runs in the database: `make gallery`.

    python docs/pictures.py EXPERIMENT [docs/images/NAME.svg]
        [--chart trials=docs/images/NAME-trials.svg] [--page docs/images/NAME-report.png]

The first picture is what `interlace audit` prints in 80 columns of the experiment's newest finished run, as SVG. Charts
are those of `interlace report`, by the names that its `--images` gives them, SVG or PNG by the file's ending. The page
is the top of the report in headless Chromium. Fonts are left to the viewer: no file asks anybody for anything.
"""

import argparse
import datetime as dt
import io
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import MONOKAI

from db.frames import runs
from db.session import database_url, open_existing
from orchestrator.plan import Plan
from orchestrator.report.building import build_audit, build_report
from orchestrator.report.charts.theme import WIDE
from orchestrator.report.document import Document
from orchestrator.report.drawing import png_alone, svg_alone
from orchestrator.report.loading import load_material
from orchestrator.report.render_html import render_page
from orchestrator.report.render_terminal import print_document
from orchestrator.stored_run import StoredRun

WIDTH = 80
PAGE_SIZE = "960,1180"  # of the browser's window, in px
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures of an experiment's newest finished run.")
    parser.add_argument("experiment")
    parser.add_argument("terminal", type=Path, nargs="?")
    parser.add_argument("--chart", action="append", default=[], metavar="KEY=FILE")
    parser.add_argument("--page", type=Path, metavar="FILE.png")
    wanted = parser.parse_args()
    database = open_existing(database_url(None))
    found = runs(database)
    finished = found[(found["experiment"] == wanted.experiment) & (found["status"] == "done")]
    if finished.empty:
        sys.exit(f"no finished run of {wanted.experiment}: interlace run sweep={wanted.experiment}")
    run_id = str(finished.iloc[0]["run_id"])
    run = StoredRun.load(database, run_id)
    if wanted.terminal:
        out = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
        print_document(build_audit(load_material(run, record=False)), out)
        write_terminal(out, run.plan, wanted.terminal)
    if wanted.chart or wanted.page:
        report = build_report(load_material(run), made_at=dt.datetime.now(dt.UTC))
        for chart in wanted.chart:
            key, _, target = chart.partition("=")
            write_chart(report, key, Path(target))
        if wanted.page:
            write_page(report, wanted.page)


def write_terminal(out: Console, plan: Plan, target: Path) -> None:
    svg = out.export_svg(title=f"interlace run sweep={plan.experiment}", theme=MONOKAI)
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg)
    target.write_text(re.sub(r"[ \t]+\n", "\n", svg), encoding="utf-8")


def write_chart(report: Document, key: str, target: Path) -> None:
    chosen = {picture.key: picture for picture in report.pictures}
    if key not in chosen:
        sys.exit(f"--chart {key}: the report has {', '.join(chosen)}")
    drawing = chosen[key].draw(replace(WIDE, title=chosen[key].title))
    if target.suffix == ".png":
        target.write_bytes(png_alone(drawing))
    else:
        target.write_text(svg_alone(drawing), encoding="utf-8")


def write_page(report: Document, target: Path) -> None:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        sys.exit(f"--page: none of {', '.join(BROWSERS)} on PATH")
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Path(folder) / "report.html"
        page.write_text(render_page(report), encoding="utf-8")
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
        ]
        shot = [f"--window-size={PAGE_SIZE}", f"--screenshot={target.resolve()}", page.as_uri()]
        subprocess.run([browser, *flags, *shot], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main()
