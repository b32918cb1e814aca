"""The wall between plans that may only be judged and plans that may be executed.

A plan names commands, interpreters, environments and addresses. Only a plan that was composed here, or that a user has
seen and agreed to (`interlace run --from`, `interlace resume`), is executed; and only as it was stored then. A run's
origin is known from the importer's entry (`run.arrived_at`) and from this user's own list (`planned_here`), never from
what a file or a database claims about itself.
"""

import hashlib

from db import models
from db.engine import Database
from db.escaping import shown_line
from db.session import read_only
from orchestrator.errors import NotOursError, RefusedError
from orchestrator.plan import Plan, dump, load
from orchestrator.planning.residency import is_simulated
from orchestrator.running.planned_here import is_remembered, remember
from workers.machine.host import HostFacts

OWN = "interlace"


def plan_to_execute(database: Database, run_id: str) -> Plan:
    """Return a run's plan, proven to be the user's own and unchanged; called right before any of it is executed.

    Raises:
        NotOursError: the run came from elsewhere, or its plan is not the one that was stored.
        RefusedError: another version of interlace wrote it.
    """
    run = _row(database, run_id)
    _refuse_arrived(run)
    plan = _proven(run)
    if not is_remembered(run_id, run.plan_sha256):
        raise NotOursError(
            f"run {run_id}: nothing shows that its plan was composed by you on this machine, so it is not executed; see"
            f" what it would execute, and agree: `interlace resume {run_id}`"
        )
    return plan


def plan_to_agree_to(database: Database, run_id: str) -> Plan | None:
    """Return the plan of a run that needs the user's agreement; None if it was composed or agreed to here.

    Such a run is in a database from elsewhere, or was planned by a version without a list or under another state
    folder.

    Raises:
        NotOursError: the run was imported, or its plan is not the one that was stored.
        RefusedError: another version of interlace wrote it.
    """
    run = _row(database, run_id)
    _refuse_arrived(run)
    return None if is_remembered(run_id, run.plan_sha256) else _proven(run)


def agree(database: Database, run_id: str) -> None:
    """Record that the user has seen what a run's plan would execute and has agreed.

    Raises:
        RefusedError: the list of agreements cannot be written.
    """
    remember(run_id, _row(database, run_id).plan_sha256)


def plan_to_adopt(database: Database, run_id: str) -> Plan:
    """Return the plan of any interlace run, unchanged since it was stored, to be shown and executed after agreement.

    Raises:
        NotOursError: the run holds another tool's results, or its plan is not the one that was stored.
        RefusedError: another version of interlace wrote it.
    """
    run = _row(database, run_id)
    _refuse_foreign(run)
    return _proven(run)


def refuse_other_plan(database: Database, run_id: str, plan: Plan) -> None:
    """Refuse to execute a plan that is not the stored one of this run.

    Raises:
        NotOursError: see `plan_to_execute`; or the given plan is a different one.
    """
    if dump(plan) != dump(plan_to_execute(database, run_id)):
        raise NotOursError(f"run {run_id}: the plan at hand is not the one that was stored; nothing of it is executed")


def origin_in_words(database: Database, run_id: str) -> str:
    """Describe a run's origin in one line."""
    run = _row(database, run_id)
    if run.arrived_at is None:
        return "planned here" if is_remembered(run_id, run.plan_sha256) else "not known to be planned here"
    return f"taken from {shown_line(run.arrived_from or 'an unknown file')} on {run.arrived_at:%Y-%m-%d}"


def refuse_from_elsewhere(database: Database, run_id: str, host: HostFacts) -> None:
    """Refuse to resume a run that was not planned here, or that another machine began.

    A machine is identified by its chip, cores and memory: a name changes with the network. Simulated runs, which are
    recognised by their plan, measure nothing.

    Raises:
        NotOursError: see `plan_to_execute`.
        RefusedError: another machine's run: its further trials would carry the other machine's name.
    """
    run = _row(database, run_id)
    _refuse_arrived(run)
    with read_only(database) as session:
        begun_on = session.get_one(models.Host, run.host_id)
    machine = (begun_on.chip, begun_on.cpu_count, begun_on.memory_bytes)
    if not _is_simulated(run.plan) and machine != (host.chip, host.cpu_count, host.memory_bytes):
        raise RefusedError(
            f"run {run_id}: began on another machine ({begun_on.name}, {begun_on.chip or 'unknown chip'}); resume it"
            f" there, or start a new run here: `interlace run --from {run_id}`"
        )
    _proven(run)


def _row(database: Database, run_id: str) -> models.Run:
    with read_only(database) as session:
        return session.get_one(models.Run, run_id)


def _refuse_foreign(run: models.Run) -> None:
    if run.origin != OWN:
        raise NotOursError(
            f"run {run.id}: results of {shown_line(run.origin)}, imported; they cannot be executed:"
            " plan a run of your own with `interlace run`"
        )


def _refuse_arrived(run: models.Run) -> None:
    _refuse_foreign(run)
    if run.arrived_at is not None:
        raise NotOursError(
            f"run {run.id}: its plan came from elsewhere ({shown_line(run.arrived_from or 'unknown')}) and is not"
            f" executed; see what it would execute, and start a new run of it: `interlace run --from {run.id}`"
        )


def _proven(run: models.Run) -> Plan:
    """Return the plan, parsed from the same text that is hashed here."""
    try:
        plan = load(run.plan)
    except ValueError as error:
        raise RefusedError(f"run {run.id}: {error}; use the interlace version that made it") from error
    if hashlib.sha256(run.plan.encode("utf-8")).hexdigest() != run.plan_sha256:
        raise NotOursError(
            f"run {run.id}: its plan is not the one that was stored (its SHA-256 differs from plan_sha256), so nothing"
            " of it is executed; start a new run with `interlace run`"
        )
    return plan


def _is_simulated(plan: str) -> bool:
    """Return whether the plan is simulated; an unreadable plan counts as one that measures."""
    try:
        return all(is_simulated(arm) for arm in load(plan).arms)
    except ValueError:
        return False
