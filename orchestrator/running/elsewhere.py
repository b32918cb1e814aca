"""Runs that came from another machine or another tool: they can be judged here, and not be gone on with."""

from sqlalchemy import Engine as Database
from sqlalchemy import select

from db import models
from db.session import reading
from orchestrator.errors import RefusedError
from workers.host import HostFacts

OWN = "interlace"


def refuse_from_elsewhere(database: Database, run_id: str, host: HostFacts) -> None:
    """Refuse to go on with a run that this machine did not begin: its trials would bear the other's name.

    A machine is known by its chip, cores and memory: a name changes with the network. Simulated runs measure nothing.

    Raises:
        RefusedError: another tool's results, or another machine's run.
    """
    query = (
        select(models.Run.origin, models.Run.simulated, models.Host)
        .join(models.Host, models.Run.host_id == models.Host.id)
        .where(models.Run.id == run_id)
    )
    with reading(database) as session:
        origin, simulated, begun_on = session.execute(query).one()
    if origin != OWN:
        raise RefusedError(
            f"run {run_id}: results of {origin}, imported; nothing of it can be run: see `interlace run`"
        )
    machine = (begun_on.chip, begun_on.cpu_count, begun_on.memory_bytes)
    if not simulated and machine != (host.chip, host.cpu_count, host.memory_bytes):
        raise RefusedError(
            f"run {run_id}: began on another machine ({begun_on.name}, {begun_on.chip or 'unknown chip'}); resume it"
            " there, or start a new run here"
        )
