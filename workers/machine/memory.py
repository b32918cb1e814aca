"""What memory a process holds, and the most that it and its children have ever held."""

import psutil

from workers.machine.processes import PROCESS_FAULTS, own_peak_rss_bytes, own_pids
from workers.machine.system import LocalSystem, System, Unreadable


def held_bytes(pid: int, system: System | None = None) -> int | None:
    """What a process holds: the physical footprint on macOS, for resident memory misses Metal's; else resident."""
    try:
        return (system or LocalSystem()).footprint_bytes(pid)
    except Unreadable:
        pass
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except PROCESS_FAULTS:
        return None


def tree_peak_bytes(pid: int, system: System | None = None) -> int | None:
    """The most that a process and each of its children has ever held, added up; None: the system tells none.

    One that has just ended tells nothing, and costs the others nothing.
    """
    system, found = system or LocalSystem(), []
    for each in own_pids(pid):
        try:
            found.append(system.peak_footprint_bytes(each))
        except Unreadable:
            continue
    return sum(found) if found else own_peak_rss_bytes(pid)
