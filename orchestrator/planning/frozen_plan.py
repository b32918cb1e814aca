"""The plan that a run began with, as it was stored at that time."""

from sqlalchemy import text

from db.engine import Database
from db.session import plain_read
from orchestrator.errors import RefusedError
from orchestrator.plan import Plan, load


def stored_plan(database: Database, run_id: str) -> str:
    """Return the frozen plan's JSON."""
    with plain_read(database) as connection:
        return str(connection.execute(text("SELECT plan FROM run WHERE id = :run_id"), {"run_id": run_id}).scalar_one())


def frozen_plan(database: Database, run_id: str) -> Plan:
    """Load the plan that the run began with.

    Raises:
        RefusedError: another version of interlace wrote it, or it is not a plan.
    """
    try:
        return load(stored_plan(database, run_id))
    except ValueError as error:
        raise RefusedError(f"run {run_id}: {error}; use the interlace version that made it") from error
