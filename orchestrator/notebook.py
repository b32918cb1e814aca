"""Stored runs in Python and in notebooks: what `import interlace` offers.

A run is named as on the command line: an id, a unique part of one, or `last`. `db` is a database URL or a file; by
default the one that the command line uses (INTERLACE_DB, else the user's data folder).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from db.engine import Database

_SHOWN = ("treatment", "prompts", "turn", "verdict", "ratio", "ci_low", "ci_high", "p_value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A run's verdicts, judged now from the stored trials. In a notebook its last line shows the table.

    Attributes:
        table: the columns of the view `verdict_flat`, one row per comparison: over all prompts, per class, per turn.
        markdown: what `interlace audit --format markdown` prints.
    """

    run_id: str
    experiment: str
    simulated: bool  # a fake clock: nothing was measured
    sentences: Sequence[str]  # one per treatment, over all prompts
    table: "pd.DataFrame"
    markdown: str

    def __str__(self) -> str:
        return self.markdown

    def _repr_html_(self) -> str:
        from markupsafe import Markup

        shown = self.table.assign(prompts=self.table["workload"].fillna(self.table["prompt_class"]).fillna("all"))
        table = shown[list(_SHOWN)].to_html(index=False, na_rep="", float_format="{:.3f}".format, border=0)
        warning = Markup("<p><strong>Simulated: a fake clock, nothing was measured.</strong></p>")
        lines = Markup("").join(Markup("<li>{}</li>").format(line) for line in self.sentences)
        head = Markup("<p><strong>{}</strong>, run <code>{}</code></p>").format(self.experiment, self.run_id)
        # pandas escapes the cells.
        return str(head + (warning if self.simulated else "") + Markup("<ul>{}</ul>").format(lines)) + table


def audit(run: str = "last", *, db: str | None = None) -> Audit:
    """Judge a stored run now, as `interlace audit` does.

    Raises:
        RunNotFoundError: no run fits the name, or several do.
        IncompleteError: nothing of the run is measured yet.
    """
    from db.frames import verdicts as stored_verdicts
    from orchestrator.commands.stored_runs import measured_run
    from orchestrator.judging import judge_run
    from orchestrator.report.answer import CONTROL
    from orchestrator.report.building import build_audit
    from orchestrator.report.loading import load_material
    from orchestrator.report.render_markdown import render_markdown

    with _opened(db) as database:
        stored = measured_run(database, run)
        material = load_material(stored, judge_run(stored), record=False)
        said = build_audit(material)
        return Audit(
            run_id=stored.run_id,
            experiment=stored.plan.experiment,
            simulated=material.run.simulated,
            sentences=tuple(
                f"{line.verdict}: {line.sentence}" for line in said.lines if line.arm and line.verdict != CONTROL
            ),
            table=stored_verdicts(database, stored.run_id),
            markdown=render_markdown(said, images=None),
        )


def verdicts(run: str = "last", *, db: str | None = None) -> "pd.DataFrame":
    """The comparisons of a run, judged now: the columns of the view `verdict_flat`. Raises as `audit` does."""
    return audit(run, db=db).table


def trials(run: str = "last", *, db: str | None = None) -> "pd.DataFrame":
    """The generations of a run in time order, one row each: the columns of the view `trial_flat`.

    Raises:
        RunNotFoundError: no run fits the name, or several do.
    """
    from db import frames

    with _opened(db) as database:
        return frames.trials(database, frames.resolve_run(database, run))


def runs(*, db: str | None = None) -> "pd.DataFrame":
    """All runs, the newest first, with their experiment, host, status and number of trials."""
    from db import frames

    with _opened(db) as database:
        return frames.runs(database)


@contextmanager
def _opened(db: str | None) -> "Iterator[Database]":
    from orchestrator.commands.stored_runs import open_stored

    database = open_stored(db)
    try:
        yield database
    finally:
        database.dispose()
