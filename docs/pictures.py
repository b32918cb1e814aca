"""Draws the README's pictures from runs in the database: `make gallery`.

    python docs/pictures.py EXPERIMENT docs/images/NAME.svg

The picture is what `interlace audit` prints in 80 columns of the experiment's newest finished run, as SVG. Fonts are
left to the viewer, so that the file asks nobody for anything.
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from db.frames import runs
from db.session import database_url, open_existing
from orchestrator.judging import judge_run
from orchestrator.plan import load
from orchestrator.running.stored import stored_plan
from orchestrator.views.audit_view import print_audit

WIDTH = 80


def main() -> None:
    experiment, target = sys.argv[1], Path(sys.argv[2])
    database = open_existing(database_url(None))
    found = runs(database)
    finished = found[(found["experiment"] == experiment) & (found["status"] == "done")]
    if finished.empty:
        sys.exit(f"no finished run of {experiment}: interlace run sweep={experiment}")
    run_id = str(finished.iloc[0]["run_id"])
    plan = load(stored_plan(database, run_id))
    out = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    print_audit(judge_run(database, plan, run_id).result, plan=plan, run_id=run_id, out=out)
    svg = out.export_svg(title=f"interlace run sweep={experiment}", theme=MONOKAI)
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg)
    target.write_text(re.sub(r"[ \t]+\n", "\n", svg), encoding="utf-8")


if __name__ == "__main__":
    main()
