"""A process that psutil cannot read costs its own entry at most: never the command, never the other processes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from workers.machine.memory import held_bytes
from workers.machine.process_identity import current_lease, holds, is_living, port_of, started_s, this_boot
from workers.machine.processes import own_cpu_s, own_pids, own_rss_bytes
from workers.machine.system import LocalSystem, System, Unreadable
from workers.supervision.journal import Journal, describe, find_orphans
from workers.supervision.orphans import find_leftovers

READINGS = ("environ", "cmdline", "exe", "cwd", "name", "status", "net_connections", "memory_info", "cpu_times")
FAULTS = [
    SystemError("<built-in function proc_environ> returned NULL without setting an exception"),
    RuntimeError("sysctl(KERN_PROCARGS2) -> EIO"),
    PermissionError(1, "Operation not permitted"),
    psutil.AccessDenied(1),
    psutil.NoSuchProcess(1),
]


@pytest.fixture
def child() -> Iterator[psutil.Process]:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as popen:
        yield psutil.Process(popen.pid)
        popen.kill()


def break_readings(monkeypatch: pytest.MonkeyPatch, fault: Exception, names: tuple[str, ...] = READINGS) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise fault

    for name in names:
        monkeypatch.setattr(psutil.Process, name, broken)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("reading", READINGS)
def test_each_reading_may_fail_in_each_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, child: psutil.Process, fault: Exception, reading: str
) -> None:
    break_readings(monkeypatch, fault, (reading,))
    path = tmp_path / "journal"
    entry = describe(child, run_id="r", arm="a")
    Journal(path).spawned(entry)
    assert find_orphans(path) == []
    found = find_leftovers(path, large_bytes=1, ports=(1,)).orphans
    assert child.pid not in {orphan.pid for orphan in found}  # this machine may hold others' orphans
    assert child.pid in own_pids(psutil.Process().pid)
    assert port_of(child) is None


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_what_cannot_be_measured_is_unknown(
    monkeypatch: pytest.MonkeyPatch, no_footprint: System, child: psutil.Process, fault: Exception
) -> None:
    break_readings(monkeypatch, fault)
    assert held_bytes(child.pid, no_footprint) is None
    assert own_cpu_s(child.pid) == {}
    assert own_rss_bytes(child.pid) == 0


@pytest.mark.parametrize("fault", FAULTS[:-1], ids=lambda fault: type(fault).__name__)
def test_a_process_that_exists_and_cannot_be_read_counts_as_running(
    monkeypatch: pytest.MonkeyPatch, child: psutil.Process, fault: Exception
) -> None:
    start_s, lease = started_s(child), current_lease()
    break_readings(monkeypatch, fault, ("status",))
    assert is_living(child.pid, start_s, this_boot())
    assert holds(lease)


@pytest.fixture
def no_footprint() -> System:
    class NoFootprint(LocalSystem):
        def footprint_bytes(self, pid: int) -> int:
            raise Unreadable("no footprint here")

    return NoFootprint()
