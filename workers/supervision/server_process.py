"""A server that an engine launches: on a port of its own, proved to be the one that answers, ended for certain.

The server is the worker's child, in a session of its own, and carries the marks of the worker's environment (the run,
the owner, `SPT_NOENV`); the run's journal learns of it while the worker loads. What it prints goes, without secrets, to
the worker's log, which belongs to the run, or without one to a file of its own. Nothing is ever taken for ours
by its name: a server may rename itself.
"""

import contextlib
import fcntl
import hashlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from workers.catalogue.binding import LogIdentity
from workers.errors import EngineError, FaultKind, classify_text, describe_exit
from workers.machine.process_identity import PORT_MARK
from workers.machine.processes import PROCESS_FAULTS
from workers.supervision.family import Family
from workers.supervision.log_filter import Filter, filtered, wait_for
from workers.supervision.tracebacks import last_fault

HOST = "127.0.0.1"
TERM_GRACE_S, KILL_GRACE_S = 6.0, 3.0
_POLL_S = 0.05
_ENDING_S = 10.0  # between a server's closed port and its end, on a machine that is busy with something else
_TAIL_BYTES = 2000
_F_GETPATH = 50  # of macOS's fcntl


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """The server to start."""

    title: str  # for messages
    command: Sequence[str]
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)  # added to the worker's
    folder: Path | None = None  # where it runs; None: the worker's


class ServerLog:
    """A growing log, read from a mark on.

    Args:
        path: a file that the server appends to. It need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> int:
        """The log's present end: later output belongs to the request that begins."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def identify(self, *, mark: int | None = None) -> LogIdentity | None:
        """The file's identity, and a digest of its content before the mark; None if there is no file.

        Args:
            mark: where the lines of interest begin; None: at its end as of now.
        """
        try:
            with self.path.open("rb") as log:
                found = os.fstat(log.fileno())
                end = found.st_size if mark is None else mark
                log.seek(max(0, end - _TAIL_BYTES))
                tail = hashlib.sha256(log.read(min(end, _TAIL_BYTES))).hexdigest()
        except OSError:
            return None
        return LogIdentity(file=(found.st_dev, found.st_ino), size=found.st_size, tail=tail)

    def lines_since(self, mark: int) -> list[str]:
        """The whole lines that began after the mark; all lines of a log that was truncated."""
        try:
            with self.path.open("rb") as log:
                start = mark if os.fstat(log.fileno()).st_size >= mark else 0
                log.seek(max(0, start - 1))
                text = log.read()
        except FileNotFoundError:
            return []
        if start:
            text = text[1:] if text[:1] in (b"\n", b"\r") else text[1:].partition(b"\n")[2]
        return [line.decode("utf-8", errors="replace") for line in text.splitlines(keepends=True) if _ended(line)]

    def tail(self) -> str:
        """The last lines, joined."""
        try:
            text = self.path.read_bytes()[-_TAIL_BYTES:]
        except FileNotFoundError:
            return ""
        lines = [" ".join(line.split()) for line in text.decode("utf-8", errors="replace").splitlines()]
        return " | ".join([line for line in lines if line][-5:])


class ServerProcess:
    """One launched server.

    Raises:
        EngineError: it cannot be started.
    """

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        path = path_of_descriptor(1)
        self._own_log = None if path is not None else tempfile.NamedTemporaryFile(prefix="interlace-", suffix=".log")
        self.log = ServerLog(path or Path(self._own_log.name if self._own_log else os.devnull))
        self.log_start = self.log.mark()  # an earlier process of this arm printed the text before it
        self._filter: Filter | None = None
        try:
            with self.log.path.open("ab") as log, filtered(log.fileno()) as (place, self._filter):
                self._popen = subprocess.Popen(
                    list(spec.command),
                    stdin=subprocess.DEVNULL,
                    stdout=place,
                    stderr=place,
                    cwd=spec.folder,
                    env={**os.environ, **spec.environment, **_marks(spec)},
                    start_new_session=True,
                )
        except OSError as error:
            self._close_log()
            raise EngineError(
                FaultKind.load_failed,
                f"cannot start {spec.title}: {error}",
                remedy="is it installed in the environment of engine.command or engine.server_python?",
            ) from error
        self._family = Family(psutil.Process(self._popen.pid))

    @property
    def pid(self) -> int:
        """The launched process's id."""
        return self._popen.pid

    def require_alive(self) -> None:
        """Raises:
        EngineError: it has ended; with the last that it printed.
        """
        self._family.snapshot()
        if self._popen.poll() is None or self._family.living():
            return
        wait_for(self._filter)
        lines = self.log.lines_since(self.log_start)
        said = " | ".join(lines[-5:]).strip()
        fault = last_fault(lines)
        if fault is not None and fault not in said:
            said = f"{fault} | {said}"
        words = describe_exit(self._popen.returncode)
        kind = classify_text(said) or FaultKind.crashed
        raise EngineError(kind, f"{self.spec.title} has ended ({words}): {said or 'it printed nothing'}")

    def require_listener(self) -> int:
        """The pid of the process that listens on the port; it must be the launched one or have come of it.

        Raises:
            EngineError: no process listens, or another process does: then another server answers.
        """
        pids = listeners(self.spec.port, among=self._family.living())
        if pids:
            return pids[0]
        strangers = listeners(self.spec.port, among=psutil.process_iter())
        where = f"port {self.spec.port}"
        if not strangers:
            with contextlib.suppress(subprocess.TimeoutExpired):  # its port closes a moment before it ends
                self._popen.wait(_ENDING_S)
            self.require_alive()
            raise EngineError(FaultKind.generation_failed, f"{self.spec.title}: no process of it listens on {where}")
        raise EngineError(
            FaultKind.generation_failed,
            f"{where} is answered by process {strangers[0]} ({_name(strangers[0])}), not by the {self.spec.title} that"
            f" was launched (process {self.pid})",
            remedy="end that process; it is another server",
        )

    def listens(self) -> bool:
        """True if any process listens on the port."""
        return port_is_open(self.spec.port)

    def stop(self) -> None:
        """SIGTERM to all of them, SIGKILL to those that are left; verified. May be called again.

        Raises:
            EngineError: a process that no signal ends, or a port that stays open.
        """
        self._family.snapshot()
        for number, grace_s in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
            if not self._family.living():
                break
            self._family.signal(number)
            self._reap(grace_s)
        self._popen.poll()
        self._close_log()
        if survivors := [process.pid for process in self._family.living()]:
            raise EngineError(FaultKind.generation_failed, f"{self.spec.title}: {survivors} survived SIGKILL")
        if strangers := listeners(self.spec.port, among=psutil.process_iter()):
            raise EngineError(
                FaultKind.generation_failed,
                f"{self.spec.title} is gone, but process {strangers[0]} listens on its port {self.spec.port}",
            )
        if port_is_open(self.spec.port):  # another user's processes cannot be looked into
            raise EngineError(
                FaultKind.generation_failed, f"{self.spec.title} is gone, but its port {self.spec.port} is still open"
            )

    def _close_log(self) -> None:
        wait_for(self._filter)
        if self._own_log is not None:
            self._own_log.close()

    def _reap(self, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(grace_s)
        self._family.wait_gone(max(0.0, deadline - time.monotonic()))


def _marks(spec: ServerSpec) -> dict[str, str]:
    """The marks that a launched process carries beside the worker's own."""
    port = {PORT_MARK: str(spec.port)} if spec.port else {}
    return {**port, "SPT_NOENV": "1", "PYTHONUNBUFFERED": "1"}


def free_port() -> int:
    """A port that is free at this moment. A later listener on it is checked by its pid."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def port_is_open(port: int) -> bool:
    """True if another socket accepts a connection: a free port in the ephemeral range may connect to itself."""
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as connection:
            return bool(connection.getsockname() != connection.getpeername())
    except OSError:
        return False


def listeners(port: int, *, among: "Sequence[psutil.Process] | Iterator[psutil.Process]") -> list[int]:
    """The processes among these that listen on the port. Other users' processes cannot be looked into."""
    return [process.pid for process in among if _listens_on(process, port)]


def path_of_descriptor(descriptor: int) -> Path | None:
    """The file that a descriptor writes to; None if it cannot be opened again."""
    try:
        if sys.platform == "darwin":
            name = fcntl.fcntl(descriptor, _F_GETPATH, bytes(1024)).rstrip(b"\0").decode()
        else:
            name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        path = Path(name)
        return path if path.is_file() and os.path.samestat(path.stat(), os.fstat(descriptor)) else None
    except OSError:
        return None


def _listens_on(process: psutil.Process, port: int) -> bool:
    try:
        found = process.net_connections(kind="tcp")
    except PROCESS_FAULTS:
        return False
    return any(each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port for each in found)


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except PROCESS_FAULTS:
        return "ended"


def _ended(line: bytes) -> bool:
    return line.endswith((b"\n", b"\r"))
