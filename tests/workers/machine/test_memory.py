"""The memory of a tree of processes, one of which cannot be read."""

import resource
import subprocess
from itertools import chain, repeat
from types import SimpleNamespace

import pytest

from tests.workers.machines import Recorded
from workers.machine import crosschecks, memory
from workers.machine.crosschecks import AGREES, DISAGREES, Check, memory_comes_back
from workers.machine.memory import available_bytes, compressed_bytes, tree_peak_bytes
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


ZONES = """Node 0, zone   Normal
  pages free     1000
  pagesets
    cpu: 0
              count:    300
              high:     1753
    cpu: 1
              count:    45
              high:     1753
Node 0, zone  Movable
  pagesets
    cpu: 0
              count:    5
"""


def test_pages_that_a_processor_keeps_free_for_itself_are_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=10_000_000))
    linux = Recorded(platform="linux", files={"/proc/zoneinfo": ZONES})
    assert available_bytes(linux) == 10_000_000 + 350 * resource.getpagesize()
    assert available_bytes(Recorded(platform="linux")) == available_bytes(Recorded(platform="darwin")) == 10_000_000


def _check_of_a_killed_child(monkeypatch: pytest.MonkeyPatch, *readings_mib: int) -> Check:
    """The check on these readings of the available memory, the last one repeated."""
    readings = chain(readings_mib, repeat(readings_mib[-1]))
    monkeypatch.setattr(crosschecks, "available_bytes", lambda system: next(readings) * 2**20)
    monkeypatch.setattr(crosschecks, "_holding", lambda: subprocess.Popen(["cat"], stdin=-1, stdout=-1, text=True))
    return memory_comes_back("memory", Recorded(platform="linux"))


def test_memory_of_a_killed_child_comes_back_within_seconds_or_the_check_disagrees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _check_of_a_killed_child(monkeypatch, 1000, 744, 1000).result == AGREES
    assert _check_of_a_killed_child(monkeypatch, 1000, 744, 750, 872).result == AGREES
    assert _check_of_a_killed_child(monkeypatch, 1000, 744, 800).result == DISAGREES


@pytest.mark.parametrize("held", [990, 500])
def test_memory_that_other_processes_took_or_freed_meanwhile_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    with pytest.raises(Unreadable, match="other processes changed the available memory"):
        _check_of_a_killed_child(monkeypatch, 1000, held, 1000)
