"""This process and its descendants, as far as the machine's readings need them."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import psutil

Value = TypeVar("Value")


def own_pids() -> set[int]:
    """The pids of this process and its descendants."""
    return {process.pid for process in _own_tree()}


def own_cpu_s() -> dict[str, float]:
    """CPU seconds by pid of this process's tree; processes that have ended are not in it."""
    return {str(process.pid): times.user + times.system for process, times in _each(lambda each: each.cpu_times())}


def own_rss_bytes() -> int:
    """Resident bytes of this process's tree; pages that two of them share count twice."""
    return sum(memory.rss for _, memory in _each(lambda each: each.memory_info()))


def _own_tree() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def _each(read: Callable[[psutil.Process], Value]) -> Iterator[tuple[psutil.Process, Value]]:
    for process in _own_tree():
        try:
            yield process, read(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # it ended just now, or became another user's
            continue
