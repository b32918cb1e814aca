"""Who listens on a server's port, and who else is connected to it, as far as this machine and user can see.

Only what is visible is told: a server on another machine, in a container or of another user shows nothing, which is
unknown and not "nobody".
"""

import os
import socket
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import psutil

from workers.catalogue.binding import ProcessIdentity
from workers.journal import OWNER_MARK
from workers.server_process import listeners

_DEFAULT_PORTS = {"http": 80, "https": 443}
_Peer = tuple[str, int]


class PortWatch:
    """The processes behind an address. Looks for them once; later looks ask only those that were found.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
        self._known: list[psutil.Process] = self._look() if _is_here(parts.hostname or "") else []
        self._visible = bool(self._known)

    def processes(self) -> frozenset[ProcessIdentity]:
        """Those that listen now; empty: none was ever visible, or none is there."""
        if self._visible and not (self._known and all(_listens(process, self._port) for process in self._known)):
            self._known = self._look()
        return frozenset(ProcessIdentity(pid=process.pid, started_at=process.create_time()) for process in self._known)

    def pids(self) -> list[int]:
        """The process ids of those that listened when they were last looked for."""
        return [process.pid for process in self._known]

    def company(self) -> str | None:
        """A connection to the server that is neither ours nor another arm's of this run; None: none is seen."""
        taken = [peer for process in self._known for peer in _peers(process, self._port, served=True)]
        if not taken:
            return None
        ours = {peer for process in _own_run() for peer in _peers(process, self._port, served=False)}
        return next((f"from {host}:{port}" for host, port in taken if (host, port) not in ours), None)

    def _look(self) -> list[psutil.Process]:
        found = []
        for pid in listeners(self._port, among=psutil.process_iter()):
            try:
                process = psutil.Process(pid)
                process.create_time()  # kept by the object from here on: a reused pid is another process
            except psutil.Error:
                continue
            found.append(process)
        return found


def _is_here(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    try:
        addresses = {each[4][0] for each in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    own = {each.address.partition("%")[0] for card in psutil.net_if_addrs().values() for each in card}
    return any(str(address) in own for address in addresses)


def _listens(process: psutil.Process, port: int) -> bool:
    return process.is_running() and bool(listeners(port, among=[process]))


def _peers(process: psutil.Process, port: int, *, served: bool) -> Iterator[_Peer]:
    """The clients' ends of a process's connections to the port: of the one that serves it, or of a client."""
    try:
        connections = process.net_connections(kind="tcp")
    except psutil.Error:
        return
    for each in connections:
        server, client = (each.laddr, each.raddr) if served else (each.raddr, each.laddr)
        if each.status == psutil.CONN_ESTABLISHED and server and client and server.port == port:
            yield client.ip.removeprefix("::ffff:"), client.port


def _own_run() -> Sequence[psutil.Process]:
    """This process, and the other workers of its run, which may be attached to the same server."""
    own, mark = psutil.Process(), os.environ.get(OWNER_MARK)
    try:
        parent = own.parent() if mark else None
        others = [] if parent is None else parent.children(recursive=True)
    except psutil.Error:
        others = []
    return [own, *(process for process in others if process != own and _marked(process, mark))]


def _marked(process: psutil.Process, mark: str | None) -> bool:
    try:
        return process.environ().get(OWNER_MARK) == mark
    except (psutil.Error, OSError):
        return False
