"""Execute one run of the queue: the same for a night, for `interlace run` and for `interlace resume`."""

from collections.abc import Callable
from pathlib import Path

from db import queue
from db.engine import Database
from db.errors import DatabaseError, StorageError
from db.vocabulary import EntryState
from orchestrator.environments.provision import ready
from orchestrator.errors import IncompleteError, InputError, NotOursError, RefusedError, StoppedError
from orchestrator.planning.fetching import fetch_weights
from orchestrator.planning.weights import find_weights, refuse_what_does_not_fit
from orchestrator.queue.machine_lock import MachineLock
from orchestrator.running.events import Observer
from orchestrator.running.execution import carry_out
from orchestrator.running.preflight import check_machine, warn
from orchestrator.running.provenance import plan_to_execute
from orchestrator.running.recorder import Recorder, reopen_run
from orchestrator.running.stored import refuse_if_held, refuse_other_weights


def run_entry(
    database: Database,
    run_id: str,
    *,
    lock: MachineLock,
    observer: Observer,
    should_stop: Callable[[], bool] = lambda: False,
) -> Recorder:
    """Execute the rest of a run and store the outcome in its queue entry.

    Raises:
        HeldError: this machine is already measuring, or another process executes this run.
        Exception: any other error that ended it; the entry holds it, and the finished trials are stored.
    """
    try:
        recorder = reopen_run(database, plan_to_execute(database, run_id), run_id)
        _refuse(recorder, lock, observer=observer, should_stop=should_stop)
        carry_out(recorder, observer=observer, should_stop=should_stop)
    except (Exception, KeyboardInterrupt) as error:
        _settle(database, run_id, state_after(error), note=note_of(error))
        raise
    finally:
        lock.at(None)
    _settle(database, run_id, "done", note=None)
    return recorder


def _refuse(recorder: Recorder, lock: MachineLock, *, observer: Observer, should_stop: Callable[[], bool]) -> None:
    """Refuse a run that cannot start, before any of its workers starts; fetch the weights that it lacks."""
    refuse_if_held(recorder.database, recorder.run_id)
    if not recorder.simulated:
        lock.take()
    lock.at(recorder.run_id)
    fetch_weights(recorder.plan, tell=observer.fetching, should_stop=should_stop)
    refuse_other_weights(recorder.database, recorder.run_id, find_weights(recorder.plan))
    refuse_what_does_not_fit(recorder.plan)
    ready(recorder.plan, warn)
    check_machine(recorder.plan, Path(recorder.database.url.database or "."))


def state_after(error: BaseException) -> EntryState:
    """Return the entry's state after an error: waiting, unless the run would end the same way again. Pure."""
    if isinstance(error, NotOursError):
        return "failed"
    if isinstance(error, StoppedError | KeyboardInterrupt | RefusedError | DatabaseError):
        return "waiting"
    return "failed"


def note_of(error: BaseException) -> str:
    """Describe the end of a run in one line."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted by hand"
    if isinstance(error, InputError | IncompleteError | RefusedError | DatabaseError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _settle(database: Database, run_id: str, state: EntryState, *, note: str | None) -> None:
    """Write the entry's state. On a full disk the entry stays as it was: waiting."""
    try:
        queue.settle(database, run_id, state, note=note)
    except StorageError:
        return
