"""`interlace run` and `interlace resume`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.commands.audit import audit_and_show
from orchestrator.commands.opening import named_run, open_stored, unfinished_run
from orchestrator.commands.queue import Planned, compose_run, store_run

if TYPE_CHECKING:
    from db.engine import Database
    from orchestrator.queue.machine_lock import MachineLock


def run_now(overrides: Sequence[str], *, config_dir: str | None, fail_on: Sequence[str], quiet: bool) -> int:
    """`interlace run`: put it into the queue and work on it alone, now. What this machine refuses is not stored."""
    return _run(compose_run(overrides, config_dir=config_dir), fail_on=fail_on, quiet=quiet)


def run_from(
    run_text: str, *, overrides: Sequence[str], url: str | None, agreed: bool, fail_on: Sequence[str], quiet: bool
) -> int:
    """`interlace run --from RUN`: a new run of a stored plan, once the user has seen what it would execute."""
    from orchestrator.commands.adopting import adopted

    planned = adopted(run_text, url=url, overrides=overrides, agreed=agreed)
    return _run(planned, fail_on=fail_on, quiet=quiet)


def _run(planned: Planned, *, fail_on: Sequence[str], quiet: bool) -> int:
    from db.session import database_path
    from orchestrator.queue.machine_lock import MachineLock
    from orchestrator.running.execution import check_machine

    with MachineLock("interlace run") as lock:
        if planned.measured:
            lock.take()
        check_machine(planned.plan, database_path(planned.url))
        database, run_id = store_run(planned, quiet=quiet)
        return _execute(database, run_id, lock, fail_on=fail_on, quiet=quiet)


def resume_run(run_text: str, *, url: str | None, fail_on: Sequence[str], quiet: bool) -> int:
    """`interlace resume`: what is stored stays; a round cut short is replayed whole.

    Args:
        run_text: an id, a unique part of one, or `last`: the newest run that was left unfinished. One that waits in the
            queue is begun if it is named.
    """
    from db.live import life
    from db.runs import LAST
    from orchestrator.queue.machine_lock import MachineLock
    from orchestrator.running.provenance import refuse_from_elsewhere
    from workers.machine.host import read_host

    database = open_stored(url)
    run_id = unfinished_run(database) if run_text.strip().lower() == LAST else named_run(database, run_text)
    refuse_from_elsewhere(database, run_id, read_host())
    if life(database, run_id).status == "done":
        return _show_finished(database, run_id, fail_on=fail_on, quiet=quiet)
    with MachineLock("interlace resume") as lock:
        return _execute(database, run_id, lock, fail_on=fail_on, quiet=quiet)


def _show_finished(database: "Database", run_id: str, *, fail_on: Sequence[str], quiet: bool) -> int:
    from orchestrator.stored_run import StoredRun
    from orchestrator.views.terminal import console

    if not quiet:
        console().print(f"run {run_id} is finished already")
    return audit_and_show(StoredRun.load(database, run_id), fail_on=fail_on, style="table")


def _execute(database: "Database", run_id: str, lock: "MachineLock", *, fail_on: Sequence[str], quiet: bool) -> int:
    """Run what is left and judge it."""
    from orchestrator.queue.entry_run import run_entry
    from orchestrator.running.events import SilentObserver
    from orchestrator.stored_run import StoredRun
    from orchestrator.views.terminal import ProgressObserver, console

    out = console()
    if not quiet:
        out.print(f"run {run_id}")
    with SilentObserver() if quiet else ProgressObserver(out) as observer:
        try:
            run_entry(database, run_id, lock=lock, observer=observer)
        except KeyboardInterrupt:
            out.print(f"interrupted; what is finished is stored. Go on with: interlace resume {run_id}")
            raise
    return audit_and_show(StoredRun.load(database, run_id), fail_on=fail_on, style="table")
