"""Who listens on a port and who is connected to it: real processes and sockets."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from workers.journal import OWNER_MARK
from workers.port_watch import PortWatch
from workers.server_process import HOST

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


def test_another_clients_connection_is_company_and_ours_is_not(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = PortWatch(f"http://{HOST}:{server.port}")
    with socket.create_connection((HOST, server.port)):
        assert watch.company() is None
        command = [sys.executable, "-c", CONNECT, str(server.port)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            assert str(watch.company()).startswith(f"from {HOST}:")
            # Another arm of the same run: a child of the same parent with the same mark.
            monkeypatch.setattr(psutil.Process, "parent", lambda process: process)
            monkeypatch.setenv(OWNER_MARK, "1@2@3")
            assert watch.company() is not None
            other.communicate()
        marked = dict(os.environ)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=marked) as arm:
            assert arm.stdout is not None
            arm.stdout.readline()
            assert watch.company() is None
            arm.communicate()


def test_what_is_elsewhere_or_nowhere_shows_nothing() -> None:
    for url in ("http://192.0.2.1:8000", f"http://{HOST}:1", "https://no-such-host.invalid"):
        watch = PortWatch(url)
        assert (watch.processes(), watch.company(), watch.pids()) == (frozenset(), None, [])
