"""The memory of a tree of processes, one of which cannot be read."""

import pytest

from tests.workers.machines import Recorded
from workers.machine import memory
from workers.machine.memory import compressed_bytes, tree_peak_bytes
from workers.machine.system import LocalSystem, Unreadable


class Mac(LocalSystem):
    """Reports footprints by pid, and nothing for other processes."""

    def __init__(self, **peaks: int) -> None:
        self._peaks = {int(pid.removeprefix("pid")): peak for pid, peak in peaks.items()}

    def peak_footprint_bytes(self, pid: int) -> int:
        if pid not in self._peaks:
            raise Unreadable(f"process {pid} has ended")
        return self._peaks[pid]


def test_the_compressor_is_read_by_the_page_size_that_vm_stat_names() -> None:
    text = "Mach Virtual Memory Statistics: (page size of 16384 bytes)\nPages stored in compressor:    1000.\n"
    assert compressed_bytes(Recorded(platform="darwin", commands={"vm_stat": text})) == 1000 * 16384
    assert compressed_bytes(Recorded(platform="darwin")) == compressed_bytes(Recorded(platform="linux")) == 0


def test_a_process_that_has_just_ended_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "own_pids", lambda pid: [1, 2, 3])
    monkeypatch.setattr(memory, "own_peak_rss_bytes", lambda pid: 5)
    assert tree_peak_bytes(1, Mac(pid1=10, pid3=30)) == 40
    assert tree_peak_bytes(1, Mac()) == 5  # a system without footprints
