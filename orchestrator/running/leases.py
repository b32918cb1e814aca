"""The process that executes a run: its pid, start and boot in the run's row, and a lock on a file beside the database.

A container that shares the database counts pids of its own: a row that was written there names no process here. The
lock is valid wherever the file is seen, and the kernel releases it however its holder ends. Either one holds the run.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from db.engine import Database
from orchestrator.errors import HeldError
from orchestrator.running.leftovers import STATE_FOLDER
from workers.files.locks import is_locked, take_lock
from workers.files.private import make_private_folder, open_private
from workers.machine.process_identity import Lease, holds

_FOLDER = "leases"


@contextlib.contextmanager
def leased(database: Database, run_id: str) -> Iterator[None]:
    """Hold the lock of a run for the block. Where nothing can be locked, the run's row alone counts.

    Raises:
        HeldError: another process executes the run.
    """
    descriptor = _locked(_path(database, run_id), run_id)
    try:
        yield
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                _path(database, run_id).unlink()
            os.close(descriptor)


def is_held(database: Database, run_id: str, run: Any) -> bool:
    """Return whether a process executes a run.

    Args:
        run: its `status`, `runner_pid`, `runner_started_at` and `boot_id`.
    """
    return run.status == "running" and (row_is_held(run) or is_locked(_path(database, run_id)))


def row_is_held(run: Any) -> bool:
    """Return whether the process that a run's row names lives on this machine and is seen from here."""
    if run.status != "running" or run.runner_pid is None or run.runner_started_at is None:
        return False
    return holds(Lease(pid=run.runner_pid, process_started_at=run.runner_started_at, boot_id=run.boot_id))


def held_error(run_id: str, pid: int | None) -> HeldError:
    """The refusal of a run that another process executes."""
    who = "another process" if pid is None else f"process {pid}"
    return HeldError(f"run {run_id} is being run by {who}: wait for it, or stop it first")


def _path(database: Database, run_id: str) -> Path:
    return Path(database.url.database or ".").parent / STATE_FOLDER / _FOLDER / f"{run_id}.lock"


def _locked(path: Path, run_id: str) -> int | None:
    """The descriptor that holds the lock; None where nothing can be locked."""
    while True:
        try:
            make_private_folder(path.parent)
            descriptor = open_private(path, os.O_RDWR | os.O_CREAT)  # not inherited: no worker keeps holding it
        except OSError:
            return None
        try:
            take_lock(descriptor)
            if os.path.samestat(path.lstat(), os.fstat(descriptor)):
                return descriptor
        except FileNotFoundError:
            pass  # its last holder removed it: lock a new one
        except BlockingIOError as error:
            os.close(descriptor)
            raise held_error(run_id, None) from error
        except OSError:
            os.close(descriptor)
            return None
        os.close(descriptor)
