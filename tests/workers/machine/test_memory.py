"""What a tree of processes holds, where one of them cannot be read."""

import pytest

from workers.machine import memory
from workers.machine.memory import tree_peak_bytes
from workers.machine.system import LocalSystem, Unreadable


class Mac(LocalSystem):
    """Tells footprints by pid; of the others it tells nothing."""

    def __init__(self, **peaks: int) -> None:
        self._peaks = {int(pid.removeprefix("pid")): peak for pid, peak in peaks.items()}

    def peak_footprint_bytes(self, pid: int) -> int:
        if pid not in self._peaks:
            raise Unreadable(f"process {pid} has ended")
        return self._peaks[pid]


def test_a_process_that_has_just_ended_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "own_pids", lambda pid: [1, 2, 3])
    monkeypatch.setattr(memory, "own_peak_rss_bytes", lambda pid: 5)
    assert tree_peak_bytes(1, Mac(pid1=10, pid3=30)) == 40
    assert tree_peak_bytes(1, Mac()) == 5  # a system without footprints
