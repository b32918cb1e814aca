"""The listeners and the clients of a port: real processes and sockets."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from workers.machine.process_identity import OWNER_MARK
from workers.supervision.port_watch import UNSEEN, PortWatch
from workers.supervision.server_process import HOST
from workers.supervision.tcp_table import connections

SERVE = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(server.getsockname()[1], flush=True)
held = []
while True:
    held.append(server.accept()[0])
"""
CONNECT = """
import socket, sys
held = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("there", flush=True)
sys.stdin.read()
"""


class Server:
    """A process that listens, and can be started anew on the same port."""

    def __init__(self) -> None:
        self.port = 0
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", SERVE, str(self.port)], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.stop()


def test_a_server_that_is_started_anew_is_another_process(server: Server) -> None:
    watch = PortWatch(f"http://{HOST}:{server.port}")
    before = watch.processes()
    assert [each.pid for each in before] == [server.process.pid] == watch.pids()
    assert watch.processes() == before
    server.stop()
    assert watch.processes() == frozenset()
    server.start()
    after = watch.processes()
    assert [each.pid for each in after] == [server.process.pid]
    assert after != before


@contextmanager
def client(server: Server) -> Iterator[None]:
    """Another process, connected."""
    command = [sys.executable, "-c", CONNECT, str(server.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        yield
        other.communicate()


def test_another_clients_connection_is_company_even_when_it_has_ended(server: Server) -> None:
    watch = PortWatch(f"http://{HOST}:{server.port}")
    before = watch.connections()
    with socket.create_connection((HOST, server.port)) as ours:
        ends = [ours.getsockname()]
        alone = watch.connections()
        assert watch.company(before, alone, ours=ends) is None
        with client(server):
            assert str(watch.company(alone, watch.connections(), ours=ends)).startswith(f"from {HOST}:")
        after = watch.connections()
        assert watch.company(alone, after, ours=ends) is not None
        assert watch.company(after, watch.connections(), ours=ends) is None  # it ended before this window


def test_other_arms_of_one_run_are_no_company(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = PortWatch(f"http://{HOST}:{server.port}")
    monkeypatch.setattr(psutil.Process, "parent", lambda process: process)
    before = watch.connections()
    monkeypatch.setenv(OWNER_MARK, "1@2@3")
    with client(server):
        assert watch.company(before, watch.connections(), ours=[]) is None
        monkeypatch.setenv(OWNER_MARK, "4@5@6")
        assert watch.company(before, watch.connections(), ours=[]) is not None


def test_what_is_elsewhere_or_nowhere_shows_nothing() -> None:
    for url in ("http://192.0.2.1:8000", f"http://{HOST}:1", "https://no-such-host.invalid"):
        watch = PortWatch(url)
        assert (watch.processes(), watch.pids()) == (frozenset(), [])
        assert watch.company(watch.connections(), watch.connections(), ours=[]) == UNSEEN


NETSTAT = """\
Active Internet connections (including servers)
Proto Recv-Q Send-Q  Local Address          Foreign Address        (state)
tcp4       0      0  127.0.0.1.8080         127.0.0.1.54321        ESTABLISHED
tcp4       0      0  127.0.0.1.54321        127.0.0.1.8080         ESTABLISHED
tcp6       0      0  fe80::1%lo0.8080       fe80::1%lo0.54400      TIME_WAIT
tcp46      0      0  *.8080                 *.*                    LISTEN
tcp4       0      0  192.168.1.2.61000      17.5.5.5.443           ESTABLISHED
"""


def test_a_macs_table_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.supervision.tcp_table.sys.platform", "darwin")
    monkeypatch.setattr("workers.supervision.tcp_table._netstat_output", lambda: NETSTAT)
    found = connections(8080)
    assert found.served
    assert found.open == {("127.0.0.1", 54321)}
    assert found.known == {("127.0.0.1", 54321), ("fe80::1", 54400)}
    assert not connections(443).served
