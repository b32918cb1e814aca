"""A worker's process as the parent holds it: spawned in a session of its own, journaled, ended for certain."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from workers.codec import encode
from workers.environment import PACKAGES_MARK, VERSION_MARK, installed
from workers.files.private import make_private_folder, open_private
from workers.machine.memory import held_bytes
from workers.machine.process_identity import OWNER_MARK, owner_mark, port_of
from workers.machine.processes import PROCESS_FAULTS
from workers.masking import KNOWN, NAMES_VARIABLE
from workers.protocol import Stop
from workers.supervision.channel import ChannelClosed, LineChannel
from workers.supervision.family import Family
from workers.supervision.journal import Journal, Spawned, describe
from workers.supervision.server_process import port_is_open

SIGNAL_GRACE_S = 5.0  # at most, after each signal
LOG_TAIL_BYTES = 4096
_LINE_BYTES = 1 << 20


# In every locale: packages read a model's files without naming an encoding, and print what a model wrote.
_UTF8 = {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """The worker's identity, and the places of its log and journal."""

    run_id: str
    arm: str
    log_path: Path  # its stdout and stderr, appended
    journal_path: Path
    python: str = sys.executable
    # Added to this process's own; may refer to variables of it.
    environment: Mapping[str, str] = field(default_factory=dict)
    secret_names: Sequence[str] = ()  # variables of the environment whose values must not be shown
    packages: Sequence[str] = ()  # distributions whose versions it records besides the usual ones
    heartbeat_s: float = 1.0  # at most: shorter where the deadlines need it


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReport:
    """The way in which a worker ended."""

    returncode: int | None  # negative for a signal; None: it never started, or would not die
    signals: tuple[str, ...]  # those that it took: SIGTERM, SIGKILL
    survivors: tuple[psutil.Process, ...]  # that no signal ended; they stay in the journal
    open_ports: tuple[int, ...] = ()  # of its servers, if they still answer
    hung: bool = False  # it was asked to end and did not within its time
    held_bytes: int | None = None  # memory of all its processes before the end; None: not read, or unreadable

    @property
    def surviving_pids(self) -> tuple[int, ...]:
        """The pids of the survivors, for messages."""
        return tuple(process.pid for process in self.survivors)


class Child:
    """A spawned process with its channel, its log and its descendants.

    Raises:
        OSError: the interpreter cannot be started, or the log or the journal not written.
    """

    def __init__(self, spec: WorkerSpec, *, heartbeat_s: float) -> None:
        self._spec = spec
        self._journal = Journal(spec.journal_path)
        request_read, request_write = os.pipe()
        record_read, record_write = os.pipe()
        self.channel = LineChannel(read_fd=record_read, write_fd=request_write)
        try:
            self.popen = self._spawn(request_read, record_write, heartbeat_s)
        except OSError:
            self.channel.close()
            raise
        finally:
            os.close(request_read)
            os.close(record_write)
        leader = psutil.Process(self.popen.pid)  # our child and not reaped: it exists
        self.family = Family(leader)
        self._entries: dict[psutil.Process, Spawned] = {}
        try:
            self._write_down(leader)
        except OSError:
            self.end(SIGNAL_GRACE_S)  # never a process that no journal knows
            raise

    def snapshot(self) -> None:
        """Remember and journal the present descendants: after a run's death nothing else identifies them.

        Raises:
            OSError: the journal cannot be written.
        """
        for process in self.family.snapshot():
            self._write_down(process)
        for process, entry in list(self._entries.items()):
            if entry.port is None and port_of(process) is not None:
                self._write_down(process)  # it was seen before it had become the server

    def mark_log(self) -> None:
        """Set the mark: later output belongs to the request that begins."""
        self._log_mark = self._spec.log_path.stat().st_size

    def log_tail(self) -> str:
        """The last output since the mark."""
        with self._spec.log_path.open("rb") as log:
            log.seek(max(self._log_mark, self._spec.log_path.stat().st_size - LOG_TAIL_BYTES))
            return log.read(LOG_TAIL_BYTES).decode(errors="replace")

    def printed_bytes(self) -> int:
        """The size of the output since the mark, in bytes."""
        return self._spec.log_path.stat().st_size - self._log_mark

    def ask_to_stop(self, timeout_s: float) -> bool:
        """Send Stop and wait for the end. Returns True if the worker ended; otherwise the caller decides what to do."""
        deadline = time.monotonic() + timeout_s
        try:
            self.channel.send(encode(Stop()), deadline=deadline)
        except TimeoutError:
            return False
        except ChannelClosed:
            return True  # it has ended, or is about to
        return self.reap(max(deadline - time.monotonic(), 0.0)) is not None

    def held_bytes(self) -> int | None:
        """Memory that the process and its descendants hold together; None if unreadable."""
        self.family.snapshot()
        found = [held_bytes(process.pid) for process in self.family.living()]
        known = [each for each in found if each is not None]
        return sum(known) if known else None

    def reap(self, timeout_s: float) -> int | None:
        """Wait for the process to end; returns its return code, or None if it still runs."""
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def end(self, grace_s: float) -> StopReport:
        """Close the channel, signal the processes that are left, and verify. SIGTERM comes first: a killed process may
        leave memory wired."""
        self.family.snapshot()
        self.channel.close()
        self.popen.poll()
        signals: list[str] = []
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self.family.living():
                break
            signals.append(number.name)
            self.family.signal(number)
            deadline = time.monotonic() + grace_s
            self.reap(grace_s)
            self.family.wait_gone(deadline - time.monotonic())
        survivors = tuple(self.family.living())
        for process, entry in self._entries.items():
            if process not in survivors:
                self._journal.gone(entry)
        hide_secrets(self._spec.log_path, self._log_start)
        ports = sorted({entry.port for entry in self._entries.values() if entry.port is not None})
        return StopReport(
            returncode=self.reap(0),
            signals=tuple(signals),
            survivors=survivors,
            open_ports=tuple(port for port in ports if port_is_open(port)),
        )

    def _spawn(self, request_fd: int, record_fd: int, heartbeat_s: float) -> subprocess.Popen[bytes]:
        command = [*_worker_of(self._spec.python), "--request-fd", str(request_fd), "--record-fd", str(record_fd)]
        command += ["--heartbeat-s", str(heartbeat_s)]
        make_private_folder(self._spec.log_path.parent)
        with os.fdopen(open_private(self._spec.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as log:
            self._log_start = self._log_mark = log.tell()
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                pass_fds=(request_fd, record_fd),
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **_UTF8,
            **self._spec.environment,
            "INTERLACE_RUN": self._spec.run_id,
            "INTERLACE_ARM": self._spec.arm,
            OWNER_MARK: owner_mark(),
            VERSION_MARK: installed("interlace") or "",
            PACKAGES_MARK: ",".join(self._spec.packages),
            NAMES_VARIABLE: ",".join(self._spec.secret_names),
            "PYTHONUNBUFFERED": "1",  # the log holds all that was printed before a crash
            "SPT_NOENV": "1",  # setproctitle must leave the markers above readable
        }

    def _write_down(self, process: psutil.Process) -> None:
        """Journal the process before its first use. If it has already ended, the channel shows that."""
        try:
            entry = describe(process, run_id=self._spec.run_id, arm=self._spec.arm)
        except PROCESS_FAULTS:
            return
        self._journal.spawned(entry)
        self._entries[process] = entry


def hide_secrets(log_path: Path, start: int) -> None:
    """Write over the secrets that a log holds from some place on. The worker's own words and a launched server's are
    masked already; what else the worker starts, and native code, prints straight to the file. Lengths stay, for places
    in the log are remembered.
    """
    try:
        with log_path.open("r+b") as log:
            log.seek(start)
            while line := log.readline(_LINE_BYTES):
                text = line.decode("utf-8", "surrogateescape")
                if (hidden := KNOWN.mask(text, filler="*")) != text:
                    log.seek(-len(line), os.SEEK_CUR)
                    log.write(hidden.encode("utf-8", "surrogateescape"))
    except OSError:
        return  # gone, or on a full disk: nothing more can be hidden


def _worker_of(python: str) -> list[str]:
    """The command with which an interpreter starts a worker; another environment finds none of our packages itself."""
    if python == sys.executable:
        return [python, "-X", "utf8", "-P", "-m", "workers"]
    return [python, "-X", "utf8", "-I", "-u", str(Path(__file__).parents[1] / "launch.py")]
