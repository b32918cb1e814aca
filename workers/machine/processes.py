"""A process and its descendants, as far as the machine's readings need them."""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil

Value = TypeVar("Value")

# Everything that psutil raises for one process. On macOS `environ()` and `cmdline()` let a SystemError through where
# the kernel refuses a process's arguments (psutil issue 2708); one that ends meanwhile can give any of the others.
PROCESS_FAULTS = (psutil.Error, OSError, RuntimeError, SystemError)


def own_pids(root_pid: int) -> set[int]:
    """The pids of a process and its descendants."""
    return {process.pid for process in _tree(root_pid)}


def own_cpu_s(root_pid: int) -> dict[str, float]:
    """CPU seconds by pid of a process's tree; processes that have ended are not in it."""
    found = _each(root_pid, lambda each: each.cpu_times())
    return {str(process.pid): times.user + times.system for process, times in found}


def own_rss_bytes(root_pid: int) -> int:
    """Resident bytes of a process's tree; pages that two of them share count twice."""
    return sum(memory.rss for _, memory in _each(root_pid, lambda each: each.memory_info()))


def own_peak_rss_bytes(root_pid: int) -> int | None:
    """The peak resident bytes of each process of a tree, added up; None if the system states none."""
    found = [_peak_rss_bytes(process.pid) for process in _tree(root_pid)]
    known = [each for each in found if each is not None]
    return sum(known) if known else None


def _peak_rss_bytes(pid: int) -> int | None:
    """Read it from /proc; None for a process that ends meanwhile, or without /proc."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """All that a process started and that live, as `children(recursive=True)`, which reads the whole machine's table.

    Raises:
        psutil.NoSuchProcess: the process is gone, or its pid is another's by now.
    """
    if not process.is_running():
        raise psutil.NoSuchProcess(process.pid)
    began_s = process.create_time()
    return [each for each in _tree(process.pid)[1:] if each.create_time() >= began_s]  # older: a reused pid


def _tree(root_pid: int) -> list[psutil.Process]:
    found = []
    for pid in _descendants(root_pid):
        try:
            found.append(psutil.Process(pid))
        except PROCESS_FAULTS:
            continue
    return found


def _descendants(root_pid: int) -> list[int]:
    """The root first. Linux and macOS list a process's children; elsewhere each process is asked for its parent."""
    pids, place = [root_pid], 0
    try:
        while place < len(pids):
            pids += _listed_children(pids[place])
            place += 1
    except FileNotFoundError:
        try:
            return [root_pid, *(child.pid for child in psutil.Process(root_pid).children(recursive=True))]
        except PROCESS_FAULTS:
            return []
    return pids


def _listed_children(pid: int) -> list[int]:
    """The children of all its threads.

    Raises:
        FileNotFoundError: the system keeps no such list.
    """
    if sys.platform == "darwin":
        return _children_by_kernel(pid)
    found: list[int] = []
    threads = f"/proc/{pid}/task"
    with os.scandir(threads) as listed:
        for thread in listed:
            try:
                found += map(int, _content(f"{threads}/{thread.name}/children").split())
            except ProcessLookupError:
                continue  # the thread ended just now
    return found


# sys/proc_info.h: the kind of list that `proc_listpids` gives.
_PROC_PPID_ONLY = 6
_MOST_CHILDREN = 4096


def _children_by_kernel(pid: int) -> list[int]:
    """A process's children on macOS, by one call: else each look would ask every process for its parent.

    Raises:
        FileNotFoundError: the library or its call is not there.
    """
    found = (ctypes.c_int * _MOST_CHILDREN)()
    try:
        library = ctypes.CDLL("/usr/lib/libSystem.B.dylib")
        filled_bytes = library.proc_listpids(_PROC_PPID_ONLY, pid, found, ctypes.sizeof(found))
    except (OSError, AttributeError) as error:
        raise FileNotFoundError("proc_listpids") from error
    if filled_bytes < 0:
        raise FileNotFoundError("proc_listpids")
    return [child for child in found[: filled_bytes // ctypes.sizeof(ctypes.c_int)] if child > 0]


def _content(path: str) -> bytes:
    """The text of a file in /proc. It is read around every trial, in half the time that a `Path` takes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b""))
    finally:
        os.close(descriptor)


def _each(root_pid: int, read: Callable[[psutil.Process], Value]) -> Iterator[tuple[psutil.Process, Value]]:
    for process in _tree(root_pid):
        try:
            yield process, read(process)
        except PROCESS_FAULTS:  # it ended just now, or became another user's
            continue
