"""The user's own list of the plans that were composed or agreed to on this machine, kept outside any database.

A database contains whatever its maker wrote into it. So permission to execute a plan does not come from the database
that a command was pointed at, but from this list: one line per plan, with the run's id and the plan's SHA-256.
"""

import os
from pathlib import Path

from orchestrator.errors import RefusedError
from orchestrator.state_folder import ENVIRONMENT_VARIABLE, state_folder
from workers.files.private import make_private_folder, open_private, read_private

LIST_NAME = "plans"


def remember(run_id: str, plan_sha256: str) -> None:
    """Record that this run's plan may be executed here.

    Raises:
        RefusedError: the list cannot be written.
    """
    path = state_folder() / LIST_NAME
    try:
        make_private_folder(path.parent)
        descriptor = open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, f"\n{_line(run_id, plan_sha256)}\n".encode())  # a truncated line damages no other
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unusable(path, error) from error


def is_remembered(run_id: str, plan_sha256: str) -> bool:
    """Return whether this run's plan was composed or agreed to here.

    Raises:
        RefusedError: the list exists and cannot be read.
    """
    path = state_folder() / LIST_NAME
    try:
        return _line(run_id, plan_sha256).encode() in read_private(path).splitlines()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unusable(path, error) from error


def _line(run_id: str, plan_sha256: str) -> str:
    return f"{run_id} {plan_sha256}"


def _unusable(path: Path, error: OSError) -> RefusedError:
    why = error.strerror or error
    return RefusedError(f"{path}: {why}; name a folder of yours with {ENVIRONMENT_VARIABLE}")
