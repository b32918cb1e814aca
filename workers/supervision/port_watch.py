"""Watches a server's port: the processes that listen, and the other clients, as far as this user can see them.

A server on another machine, in a container or of another user shows nothing, which is reported as unknown and not as
"nobody".
"""

import os
import socket
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

import psutil

from workers.catalogue.binding import ProcessIdentity
from workers.machine.process_identity import OWNER_MARK
from workers.supervision.server_process import listeners
from workers.supervision.tcp_table import Connections, Peer, connections, plain_address

UNSEEN = "its other clients cannot be seen from here"
_DEFAULT_PORTS = {"http": 80, "https": 443}
_NOTHING = Connections(served=False, open=frozenset(), known=frozenset())


class PortWatch:
    """The processes and the clients behind an address. The processes are looked for once and asked from then on.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
        self._here = _is_here(parts.hostname or "")
        self._known: list[psutil.Process] = self._look() if self._here else []
        self._visible = bool(self._known)

    def processes(self) -> frozenset[ProcessIdentity]:
        """Return the processes that listen now; empty if there is none, or none was ever visible."""
        if self._visible and not (self._known and all(_listens(process, self._port) for process in self._known)):
            self._known = self._look()
        return frozenset(ProcessIdentity(pid=process.pid, started_at=process.create_time()) for process in self._known)

    def pids(self) -> list[int]:
        """The pids of the listeners found by the last search."""
        return [process.pid for process in self._known]

    def connections(self) -> Connections:
        """The present connections to the server's port."""
        return connections(self._port) if self._here else _NOTHING

    def company(self, before: Connections, after: Connections, *, ours: Iterable[Peer]) -> str | None:
        """Another client that was connected between two looks, in words; None if there was none.

        Args:
            ours: our own ends of connections, ended ones among them. Other workers of this run are no company.
        """
        if not (before.served and after.served):
            return UNSEEN
        seen = before.open | after.open | (after.known - before.known)
        strange = seen - {(plain_address(host), port) for host, port in ours}
        if strange:
            strange -= _ends_of_own_run(self._port)
        return next((f"from {host}:{port}" for host, port in sorted(strange)), None)

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
    """True if a name or an address is this machine's own."""
    try:
        addresses = {each[4][0] for each in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    own = {each.address.partition("%")[0] for card in psutil.net_if_addrs().values() for each in card}
    return any(str(address) in own for address in addresses)


def _listens(process: psutil.Process, port: int) -> bool:
    return process.is_running() and bool(listeners(port, among=[process]))


def _ends_of_own_run(port: int) -> frozenset[Peer]:
    """This process's connections to the port, and those of the other workers of its run."""
    found = set()
    for process in _own_run():
        try:
            held = process.net_connections(kind="tcp")
        except psutil.Error:
            continue
        found |= {(plain_address(each.laddr.ip), each.laddr.port) for each in held if each.raddr[1:] == (port,)}
    return frozenset(found)


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
