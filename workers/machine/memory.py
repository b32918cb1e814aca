"""Memory: how much a process holds, how much it ever held, and whether it came back after the process ended.

Memory of a killed process can take seconds to become available again, and slows the next arm until then.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from workers.machine.linux import per_cpu_free_bytes
from workers.machine.macos import parse_compressed
from workers.machine.processes import PROCESS_FAULTS, own_peak_rss_bytes, own_pids
from workers.machine.system import LocalSystem, System, Unreadable

POLL_S = 0.1
STILL_POLLS = 2  # so many looks in a row without a change that matters
STILL_SHARE = 0.002  # of all memory: 100 MB of 48 GB
# What a process held counts as returned where at least this share of it is available again: shared pages count in what
# it held and stay with others, and others may take some meanwhile.
RETURNED_SHARE = 0.5
NEGLIGIBLE_BYTES = 500_000_000  # an interpreter with its libraries


def held_bytes(pid: int, system: System | None = None) -> int | None:
    """Memory that a process holds: on macOS its physical footprint, because resident memory misses Metal's."""
    try:
        return (system or LocalSystem()).footprint_bytes(pid)
    except Unreadable:
        pass
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except PROCESS_FAULTS:
        return None


def tree_peak_bytes(pid: int, system: System | None = None) -> int | None:
    """The peak memory of a process and of each of its descendants, added up; None if the system states none.

    A process that has just ended is left out.
    """
    system, found = system or LocalSystem(), []
    for each in own_pids(pid):
        try:
            found.append(system.peak_footprint_bytes(each))
        except Unreadable:
            continue
    return sum(found) if found else own_peak_rss_bytes(pid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The end of the wait."""

    waited_s: float
    still: bool  # False: memory was still coming back when the time was up


def available_bytes(system: System | None = None) -> int:
    """Memory that programs can take without swapping.

    On Linux this includes the free pages that each processor keeps for itself. `MemAvailable` leaves them out, and
    kernels since 6.7 keep hundreds of MiB of what a process freed there: its end would look like a leak.
    """
    system = system or LocalSystem()
    try:
        kept = per_cpu_free_bytes(system) if system.platform == "linux" else 0
    except Unreadable:
        kept = 0
    return int(psutil.virtual_memory().available) + kept


def compressed_bytes(system: System | None = None) -> int:
    """Return the size of the data in macOS's compressor before compression; 0 if it is unknown.

    A physical footprint counts such pages in full, and their end makes only a part of that available.
    """
    system = system or LocalSystem()
    try:
        return int(parse_compressed(system.run("vm_stat"))) if system.platform == "darwin" else 0
    except Unreadable:
        return 0


def unreturned_bytes(*, held_bytes: int, grown_bytes: int) -> int:
    """Return the memory of ended processes that did not become available; 0 if the difference is not significant.

    On macOS what a killed process had wired may stay so.

    Args:
        held_bytes: by all their processes, before the end.
        grown_bytes: of the available memory, from before the end until it settled.
    """
    missing = held_bytes - max(grown_bytes, 0)
    return 0 if grown_bytes >= RETURNED_SHARE * held_bytes or missing < NEGLIGIBLE_BYTES else missing


def wait_until_settled(
    timeout_s: float,
    *,
    available_bytes: Callable[[], int] = available_bytes,
    total_bytes: Callable[[], int] = lambda: int(psutil.virtual_memory().total),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Settled:
    """Wait until the available memory no longer grows, `timeout_s` at most. Whatever shrinks is others' doing."""
    started = clock()
    step = STILL_SHARE * total_bytes()
    before, still = available_bytes(), 0
    while still < STILL_POLLS:
        if clock() - started >= timeout_s:
            return Settled(waited_s=clock() - started, still=False)
        sleep(POLL_S)
        now = available_bytes()
        still = still + 1 if now - before <= step else 0
        before = now
    return Settled(waited_s=clock() - started, still=True)
