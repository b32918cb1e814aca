"""The machine's TCP connections to one port, as any user may see them: those that have just ended among them."""

import ipaddress
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_LISTEN = ("0A", "LISTEN")
_ESTABLISHED = ("01", "ESTABLISHED")
_TIMEOUT_S = 10.0
_NETSTAT = re.compile(r"tcp\S*\s+\d+\s+\d+\s+(\S+)\.(\d+|\*)\s+(\S+)\.(\d+|\*)\s+(\S+)")

Peer = tuple[str, int]  # address and port


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """To one port.

    Attributes:
        served: a process of this machine listens on it, so that its clients are in the table.
        open: clients' ends of connections that are established.
        known: those, and the ends of connections that are closing or have just been closed.
    """

    served: bool
    open: frozenset[Peer]
    known: frozenset[Peer]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    local: Peer
    remote: Peer
    state: str


def connections(port: int) -> Connections:
    """The present table for one port. If it cannot be read, `served` is False and nothing is known."""
    entries = list(_linux() if sys.platform == "linux" else _netstat(_netstat_output()))
    peers = [(end, entry.state) for entry in entries if (end := _client_end(entry, port)) is not None]
    return Connections(
        served=any(entry.local[1] == port and entry.state in _LISTEN for entry in entries),
        open=frozenset(peer for peer, state in peers if state in _ESTABLISHED),
        known=frozenset(peer for peer, _ in peers),
    )


def _client_end(entry: _Entry, port: int) -> Peer | None:
    """The peer in one entry, whichever end it describes; None if the entry is not a connection to the port."""
    if entry.state in _LISTEN:
        return None
    if entry.local[1] == port:
        return entry.remote
    return entry.local if entry.remote[1] == port else None


def _linux() -> Iterator[_Entry]:
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, remote, state, *_ = line.split()
            yield _Entry(local=_hexadecimal(local), remote=_hexadecimal(remote), state=state)


def _hexadecimal(text: str) -> Peer:
    """Parse an address as the kernel prints it: 32-bit words in the machine's byte order."""
    address, port = text.split(":")
    words = struct.unpack(f">{len(address) // 8}I", bytes.fromhex(address))
    return plain_address(str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words)))), int(port, 16)


def plain_address(text: str) -> str:
    """The address without a scope; an IPv4 address written as IPv6 becomes plain IPv4."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _netstat(output: str) -> Iterator[_Entry]:
    """macOS's `netstat -an -p tcp`: the port stands behind the last dot."""
    for line in output.splitlines():
        if (found := _NETSTAT.match(line)) is None:
            continue
        local, local_port, remote, remote_port, state = found.groups()
        yield _Entry(local=_end(local, local_port), remote=_end(remote, remote_port), state=state)


def _end(address: str, port: str) -> Peer:
    try:
        shown = plain_address(address)
    except ValueError:  # `*`, or an address that was cut to the column's width
        shown = address
    return shown, 0 if port == "*" else int(port)


def _netstat_output(command: Sequence[str] = ("netstat", "-anW", "-p", "tcp")) -> str:
    try:
        done = subprocess.run(list(command), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
