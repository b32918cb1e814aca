"""The identity of a process by pid, start and boot, whatever happens to the clock."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from workers.machine.process_identity import (
    Lease,
    current_lease,
    holds,
    is_living,
    marks_orphan,
    owner_mark,
    started_s,
    this_boot,
)
from workers.supervision.journal import Journal, describe, find_orphans

SetClock = Callable[[float], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """psutil's view after the clock was set: the moment of the boot moves with it."""
    platform = psutil._psplatform  # type: ignore[attr-defined] # noqa: SLF001
    boot = platform.boot_time()
    before = psutil.Process().create_time()

    def set_by(seconds: float) -> None:
        monkeypatch.setattr(platform, "boot_time", lambda: boot + seconds)
        assert psutil.Process().create_time() != before

    return set_by


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 5.0])
def test_a_clock_that_is_set_ends_no_lease_and_makes_no_orphan(
    set_clock: SetClock, seconds: float, tmp_path: Path
) -> None:
    lease, mark, path = current_lease(), owner_mark(), tmp_path / "journal"
    own = describe(psutil.Process(), run_id="r", arm="a")
    Journal(path).spawned(own)
    set_clock(seconds)
    assert holds(lease)
    assert is_living(own.pid, own.create_time, own.boot_id)
    assert find_orphans(path) == []
    assert owner_mark() == mark
    assert not marks_orphan(mark)


def test_a_living_process_whose_mark_names_another_boot_is_nobody_s_leftover() -> None:
    """It lives in this boot, so its owner does not name boots as we do: nothing proves that its run has ended."""
    pid, start_s, boot_id = owner_mark().split(":")
    assert marks_orphan(f"{pid}:{float(start_s) - 60}:{boot_id}")
    assert not marks_orphan(f"{pid}:{float(start_s) - 60}:another boot")


def test_what_another_boot_left_in_the_journal_is_nobody(tmp_path: Path) -> None:
    """Starts count from the boot: a daemon may have the pid and the start that a worker had before it."""
    path = tmp_path / "journal"
    orphan = replace(describe(psutil.Process(), run_id="r", arm="a"), parent_create_time=-60.0)
    Journal(path).spawned(replace(orphan, boot_id="another boot"))
    assert find_orphans(path) == []
    Journal(path).spawned(orphan)
    assert find_orphans(path) == [orphan]


def test_a_process_is_known_by_pid_start_and_boot_together() -> None:
    me = psutil.Process()
    assert is_living(me.pid, started_s(me), this_boot())
    assert is_living(me.pid, started_s(me), None)
    assert not is_living(me.pid, started_s(me) - 60, this_boot())
    assert not is_living(me.pid, started_s(me), "another boot")


def test_this_process_holds_its_lease() -> None:
    assert holds(current_lease())


def test_another_boot_ends_a_lease() -> None:
    lease = current_lease()
    assert lease.boot_id is not None
    assert not holds(replace(lease, boot_id="another boot"))


def test_a_pid_that_is_used_again_does_not_hold() -> None:
    lease = current_lease()
    assert not holds(replace(lease, process_started_at=lease.process_started_at - 60))
    assert not holds(replace(lease, process_started_at=lease.process_started_at - 1))


def test_a_process_that_ended_does_not_hold() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    lease = Lease(
        pid=process.pid,
        process_started_at=started_s(psutil.Process(process.pid)),
        boot_id=current_lease().boot_id,
    )
    assert holds(lease)
    process.kill()
    psutil.wait_procs([psutil.Process(process.pid)], timeout=0.2)
    process.communicate()
    assert not holds(lease)


@pytest.mark.skipif(sys.platform != "linux", reason="a zombie is easiest to make on Linux")
def test_a_zombie_does_not_hold() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    lease = replace(current_lease(), pid=process.pid, process_started_at=started_s(psutil.Process(process.pid)))
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert not holds(lease)
    process.wait()
