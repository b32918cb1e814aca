"""Find this machine among the stored hosts, and the rates that were measured on it.

A Mac is identified by its hardware UUID, because its name follows the network unless somebody has set one. Without a
UUID, and in databases of versions that did not read it, a machine is identified by name, chip, cores and memory.
"""

from typing import TYPE_CHECKING, Any

from sqlalchemy import Row, select, text

from db.engine import Database
from db.errors import DatabaseError
from db.session import open_existing, plain_read
from orchestrator.plan import Plan, sha256_of
from orchestrator.planning.estimate import Rates
from orchestrator.planning.residency import is_simulated
from workers.machine.bandwidth import published_gb_per_s
from workers.machine.host import HostFacts, read_host

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from db import models


def machine_identity(host: HostFacts) -> str:
    """Return the hash that identifies this machine."""
    if host.hardware_uuid is not None:
        return sha256_of(["hardware", host.hardware_uuid])
    return _by_name(host.hostname, host.chip, host.cpu_count, host.memory_bytes)


def own_host_ids(database: Database, host: HostFacts) -> frozenset[str]:
    """Return the ids of the stored hosts that are this machine: under its UUID and under each earlier name."""
    with plain_read(database) as connection:
        rows = connection.execute(text("SELECT id, name, machine_sha256, chip, cpu_count, memory_bytes FROM host"))
        return frozenset(str(row.id) for row in rows if _is_own(row, host))


def host_row(session: "Session", host: HostFacts) -> "models.Host":
    """Return this machine's row; a row that an earlier version stored under the same name gets today's identity."""
    from db import models

    identity = machine_identity(host)
    own = [row for row in session.scalars(select(models.Host)) if _is_own(row, host)]
    known = [row for row in own if row.machine_sha256 == identity]
    row = next(iter(known or [row for row in own if row.name == host.hostname]), None)
    if row is None:
        row = models.Host(
            id=models.new_id(),
            name=host.hostname,
            machine_sha256=identity,
            chip=host.chip,
            cpu_count=host.cpu_count,
            memory_bytes=host.memory_bytes,
            detail=_bandwidth(host) | {"os": host.os, "os_build": host.os_build, "missing": dict(host.missing)},
        )
        session.add(row)
    row.machine_sha256 = identity
    session.flush()
    return row


def has_measured(url: str, host: HostFacts) -> bool:
    """Return whether a finished run of real models on this machine is stored.

    Args:
        url: the database, which need not exist.
    """
    sql = text("SELECT DISTINCT host_id FROM run WHERE status = 'done' AND NOT simulated")
    try:
        database = open_existing(url)
        with plain_read(database) as connection:
            measured = set(connection.execute(sql).scalars())
        return not measured.isdisjoint(own_host_ids(database, host))
    except DatabaseError:
        return False  # no database yet, or one that `run` will refuse with its reason


def known_rates(plan: Plan, url: str) -> dict[str, Rates]:
    """The rates of arms that were measured on this host before, by name.

    Args:
        url: the database, which need not exist.
    """
    by_config = {arm.config_sha256: arm.name for arm in plan.arms if not is_simulated(arm)}
    if not by_config:
        return {}
    from db.rates import measured_rates  # the ORM: a plan of simulated arms needs none

    try:
        database = open_existing(url)
        found = measured_rates(database, by_config, host_ids=own_host_ids(database, read_host()))
    except DatabaseError:
        return {}  # no database yet, or one that `run` will refuse with its reason
    return {
        by_config[key]: Rates(
            prefill_tps=rates.prefill_tps, decode_tps=rates.decode_tps, load_s=rates.load_s, measured=True
        )
        for key, rates in found.items()
    }


def _is_own(row: "models.Host | Row[Any]", host: HostFacts) -> bool:
    """Return whether a stored host is this machine; a row of an earlier version counts if its hardware matches."""
    if row.machine_sha256 == machine_identity(host):
        return True
    hardware = (row.chip, row.cpu_count, row.memory_bytes)
    return (
        host.hardware_uuid is not None
        and hardware == (host.chip, host.cpu_count, host.memory_bytes)
        and row.machine_sha256 == _by_name(row.name, *hardware)  # on a Mac a name identifies nothing
    )


def _by_name(name: str, chip: str | None, cpu_count: int | None, memory_bytes: int | None) -> str:
    return sha256_of([name, chip, cpu_count, memory_bytes])


def _bandwidth(host: HostFacts) -> dict[str, Any]:
    found, source = published_gb_per_s(host.chip, host.gpu_cores)
    return {"bandwidth_gb_per_s": found, "bandwidth_source": source, "gpu_cores": host.gpu_cores}
