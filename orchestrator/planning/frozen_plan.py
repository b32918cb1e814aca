"""The plan that a run began with, as it was stored then."""

from db import models
from db.engine import Database
from db.session import read_only
from orchestrator.errors import RefusedError
from orchestrator.plan import Plan, load


def stored_plan(database: Database, run_id: str) -> str:
    """The frozen plan's JSON."""
    with read_only(database) as session:
        return session.get_one(models.Run, run_id).plan


def frozen_plan(database: Database, run_id: str) -> Plan:
    """The plan that the run began with.

    Raises:
        RefusedError: another version of interlace wrote it, or it is no plan.
    """
    try:
        return load(stored_plan(database, run_id))
    except ValueError as error:
        raise RefusedError(f"run {run_id}: {error}; use the interlace version that made it") from error
