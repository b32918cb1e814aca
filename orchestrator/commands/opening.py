"""What several commands begin with."""

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.plan import Plan

if TYPE_CHECKING:
    from sqlalchemy import Engine as Database


EXIT_DONE, EXIT_VERDICT = 0, 1


def optional_path(text: str | None) -> Path | None:
    """An optional path as typed: the command line keeps it as text."""
    return None if text is None else Path(text)


def open_stored(url: str | None) -> "Database":
    from db.session import database_url, open_existing

    return open_existing(database_url(url))


def plan_of_run(database: "Database", run_id: str) -> Plan:
    from orchestrator.running.stored import frozen_plan

    return frozen_plan(database, run_id)


def named_run(database: "Database", run_text: str) -> str:
    """The id of the run that a person names: an id, a unique part of one, or `last`. Loads no pandas.

    Raises:
        RunNotFoundError: none fits, or several.
    """
    from sqlalchemy import text

    from db.run_names import RUNS_SQL, choose_run
    from db.session import reading

    with reading(database) as session:
        return choose_run([tuple(row) for row in session.execute(text(RUNS_SQL))], run_text)
