"""One measuring process per machine: two at once would disturb each other's measurements.

A file in the user's state folder is locked by the process that measures; the system unlocks it however that process
ends, so that no lock outlives its holder. The file's text (holder, start time, run) is for people.
"""

import datetime as dt
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.errors import HeldError, RefusedError
from orchestrator.state_folder import ENVIRONMENT_VARIABLE, state_folder
from workers.files.locks import is_locked, take_lock
from workers.files.private import make_private_folder, open_private, read_private
from workers.machine.process_identity import Lease, current_lease, holds

LOCK_NAME = "machine.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The measuring process of this machine."""

    pid: int
    process_started_at: float  # see `workers.machine.process_identity.started_s`
    boot_id: str | None
    command: str  # such as `interlace work`
    run_id: str | None  # None: between two runs
    since: str  # ISO 8601, UTC

    def __str__(self) -> str:
        began = dt.datetime.fromisoformat(self.since).astimezone()
        at = "" if self.run_id is None else f", at run {self.run_id}"
        return f"process {self.pid} ({self.command}{at}) since {began:%Y-%m-%d %H:%M}"


class MachineLock:
    """The lock of one command, as a context manager that releases it on exit. Simulated runs take no lock."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._fd: int | None = None
        self._since = ""

    def take(self) -> None:
        """Take the lock of this machine. May be called again.

        Raises:
            HeldError: another process measures; the message has its pid, its start time and the remedy.
            RefusedError: the file cannot be locked here.
        """
        if self._fd is not None:
            return
        path = state_folder() / LOCK_NAME
        try:
            make_private_folder(path.parent)
            fd = open_private(path, os.O_RDWR | os.O_CREAT)  # not inherited: no worker keeps holding it
        except OSError as error:
            raise RefusedError(
                f"{path}: {error.strerror}; name a folder of yours with {ENVIRONMENT_VARIABLE}"
            ) from error
        try:
            _lock(fd, path)
        except RefusedError:
            os.close(fd)
            raise
        self._fd, self._since = fd, dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        self.at(None)

    def at(self, run_id: str | None) -> None:
        """Record which run is being measured, or None between two runs."""
        if self._fd is None:
            return
        holder = Holder(**asdict(current_lease()), command=self._command, run_id=run_id, since=self._since)
        body = json.dumps(asdict(holder)).encode()
        os.pwrite(self._fd, body, 0)
        os.ftruncate(self._fd, len(body))

    def __enter__(self) -> "MachineLock":
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            os.ftruncate(self._fd, 0)  # this process may live on, but no longer holds the lock
            os.close(self._fd)
            self._fd = None


def _lock(fd: int, path: Path) -> None:
    try:
        take_lock(fd)
    except BlockingIOError as error:
        who = _read(path) or "another process"
        raise HeldError(
            f"this machine is measuring: {who}; wait for it, or queue your run: interlace queue add ..."
        ) from error
    except OSError as error:
        raise RefusedError(
            f"{path}: cannot be locked ({error.strerror}); name a local folder with {ENVIRONMENT_VARIABLE}"
        ) from error


def machine_holder() -> Holder | None:
    """Return the process that measures now, or None. If its pid is of a container, its lock shows that it lives."""
    path = state_folder() / LOCK_NAME
    found = _read(path)
    if found is None:
        return None
    lease = Lease(pid=found.pid, process_started_at=found.process_started_at, boot_id=found.boot_id)
    return found if holds(lease) or is_locked(path) else None


def _makes_sense(found: Holder) -> bool:
    """Return whether the file's content can describe a holder: the file may contain anything."""
    dt.datetime.fromisoformat(found.since)
    texts = [each for each in (found.boot_id, found.run_id) if each is not None]
    return (
        all(isinstance(each, str) for each in (found.command, *texts))
        and type(found.pid) is int
        and 0 < found.pid < 1 << 31
        and type(found.process_started_at) in (int, float)
    )


def _read(path: Path) -> Holder | None:
    try:
        found = Holder(**json.loads(read_private(path)))
        return found if _makes_sense(found) else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None  # never written, or being written at this moment
