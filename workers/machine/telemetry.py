"""The machine's state, read around a trial without root.

A reading holds a number, words, or the reason why there is neither; unreadable is never 0. Growths cover the
time since the same reader's previous reading: between the readings before and after a trial, the trial itself. Rates
cover the same, but half a second at least.
"""

import functools
import os
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

import psutil

from workers.machine import linux, macos, optional_tools
from workers.machine.memory import available_bytes
from workers.machine.processes import own_cpu_s
from workers.machine.system import CounterReader, FieldReader, LocalSystem, OneReading, System, Unreadable, reaped_cpu_s

Value = TypeVar("Value")

# Cheap enough to be read once per second while a trial runs: a file, a system call, and where Linux has
# one, no program started.
CHEAP = frozenset(
    (
        "thermal_level thermal_zone_c cpu_mhz tree_memory_bytes memory_available_bytes cpu_cores_others"
        " cpu_cores_stolen stalled_cpu_us stalled_memory_us stalled_io_us"
    ).split()
) | (
    # macOS would start a program for these.
    {"swap_used_bytes", "gpu_mhz", "gpu_c", "gpu_throttle"} if sys.platform == "linux" else frozenset()
)

# Processor time is counted in ticks of 10 ms: over a few milliseconds a rate would be noise.
RATE_WINDOW_S = 0.5

FIRST = "a difference needs two readings, and this is the first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One field of the machine's state: `value`, `value_text`, both, or `reason`."""

    field: str
    value: float | None = None
    value_text: str | None = None
    source: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Totals:
    """Counters at one moment, by field; the reason where one cannot be read."""

    at_s: float
    found: dict[str, dict[str, float] | str]


class MachineReader:
    """Reads the machine, and remembers its counters for the next reading.

    Args:
        system: the machine, or recorded outputs of one.
        clock: monotonic seconds.
        only: the fields to read; None: all.
    """

    def __init__(
        self,
        system: System | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        only: Collection[str] | None = None,
    ) -> None:
        self._system = system or LocalSystem()
        self._clock = clock
        self._only = only
        self._previous: _Totals | None = None
        self._base: _Totals | None = None  # of the rates: at least half a second old, where there is one

    def narrow(self, fields: Collection[str]) -> None:
        """Read these fields only from now on."""
        self._only = frozenset(fields)

    def read(self) -> tuple[Reading, ...]:
        """The state now: every field of this platform once, in a fixed order."""
        system = OneReading(self._system)
        fields, rates, growths = (_chosen(table, self._only) for table in _tables(system))
        started_s = self._clock()
        instant = [_take(name, source, read, system) for name, (source, read) in fields.items()]
        now = _Totals(
            at_s=started_s, found={name: _count(read, system) for name, (_, read) in (rates | growths).items()}
        )
        if self._previous is not None and (self._base is None or _is_apart(self._previous, now)):
            self._base = self._previous
        per_s = [_grown(name, source, self._base, now, per_s=True) for name, (source, _) in rates.items()]
        in_all = [_grown(name, source, self._previous, now, per_s=False) for name, (source, _) in growths.items()]
        self._previous = now
        cost = Reading(field="read_ms", value=1000 * (self._clock() - started_s), source="our own clock")
        return (*instant, *per_s, *in_all, cost)


def read_machine() -> tuple[Reading, ...]:
    """The state of this machine now. Rates and growths are those since the last call in this process."""
    return _default_reader().read()


def read_thermal_level(system: System | None = None) -> Reading:
    """The thermal level alone, cheap enough to poll: 0 nominal, 1 moderate, 2 heavy, 3 trapping, 4 sleeping."""
    system = system or LocalSystem()
    fields, _, _ = _tables(system)
    return _take("thermal_level", *fields["thermal_level"], system)


@functools.cache
def _default_reader() -> MachineReader:
    return MachineReader()


Tables = tuple[
    dict[str, tuple[str, FieldReader]], dict[str, tuple[str, CounterReader]], dict[str, tuple[str, CounterReader]]
]


def _tables(system: System) -> Tables:
    """The platform's instant fields, rates and growths."""
    if system.platform == "darwin":
        return (
            macos.FIELDS | optional_tools.MACOS_FIELDS | _FIELDS,
            macos.RATES | _RATES,
            macos.GROWTHS | optional_tools.MACOS_GROWTHS,
        )
    return (
        linux.FIELDS | optional_tools.LINUX_FIELDS | _FIELDS,
        linux.RATES | _RATES,
        linux.GROWTHS | optional_tools.LINUX_GROWTHS,
    )


def _is_apart(before: _Totals, now: _Totals) -> bool:
    return now.at_s - before.at_s >= RATE_WINDOW_S


def _chosen(table: dict[str, tuple[str, Value]], only: Collection[str] | None) -> dict[str, tuple[str, Value]]:
    return table if only is None else {name: entry for name, entry in table.items() if name in only}


def _take(name: str, source: str, read: FieldReader, system: System) -> Reading:
    try:
        found = read(system)
    except Unreadable as error:
        return Reading(field=name, source=source, reason=str(error))
    if isinstance(found, str):
        return Reading(field=name, value_text=found, source=source)
    value, text = found if isinstance(found, tuple) else (found, None)
    return Reading(field=name, value=value, value_text=text, source=source)


def _count(read: CounterReader, system: System) -> dict[str, float] | str:
    try:
        return read(system)
    except Unreadable as error:
        return str(error)


def _grown(name: str, source: str, before: _Totals | None, now: _Totals, *, per_s: bool) -> Reading:
    """The growth of a counter. A new part grew from zero; a part that went away took its last growth along.

    No part takes anything from the others: one that began anew, or whose clocks disagree by a tick, grew by nothing.
    """
    new = now.found[name]
    old = FIRST if before is None else before.found[name]
    if isinstance(new, str) or isinstance(old, str):
        return Reading(field=name, source=source, reason=new if isinstance(new, str) else str(old))
    growth = sum(max(total - old.get(part, 0.0), 0.0) for part, total in new.items())
    elapsed_s = now.at_s - before.at_s if before is not None else 0.0
    if per_s and elapsed_s <= 0:
        return Reading(field=name, source=source, reason="no time passed since the last reading")
    return Reading(field=name, value=growth / (elapsed_s if per_s else 1.0), source=source)


# ---- fields of every platform ----


def _load(_system: System) -> float:
    try:
        return os.getloadavg()[0]
    except OSError as error:
        raise Unreadable("the system states no load average") from error


def _memory_available(system: System) -> float:
    return float(available_bytes(system))


def _cpu_of_others(system: System) -> dict[str, float]:
    """CPU seconds of the whole machine less those of our tree."""
    times = psutil.cpu_times()
    busy_s = sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))
    return {"": busy_s - _ours(system.root_pid).total_s()}


class OwnCpu:
    """CPU seconds of our tree, of what has ended as well: the programs that a reading starts live between two looks.

    When the root has waited for a child, the system adds the child's whole life, and that of the children which it had
    waited for, to what the root's children spent. Of that, what was seen of them while they lived has been counted.
    So what a process had when last seen stands to its credit from the moment it is gone; what the root's children
    spent is first taken from the credit, and only the rest counts. The credit stays until it is used up: a server is
    gone when its worker has waited for it, and comes to the root with the worker only. What left our tree for good (its
    parent died first) leaves its credit behind: then short programs count as others' again, and never ours twice.
    """

    def __init__(self, root_pid: int) -> None:
        self._root_pid = root_pid
        self._alive: dict[str, float] = {}
        self._reaped_s = self._credit_s = self._total_s = 0.0

    def total_s(self) -> float:
        """All so far: it only grows."""
        # Before the tree: a child that is waited for in between is then seen in neither, and counts at the next look.
        # The other way round it would be seen in both.
        reaped_s = self._reaped()
        alive = own_cpu_s(self._root_pid)
        for pid, spent_s in self._alive.items():
            if alive.get(pid, -1.0) < spent_s:  # gone, or the pid is another process's by now
                self._credit_s += spent_s
            else:
                self._total_s -= spent_s
        self._total_s += sum(alive.values())
        paid_s = min(reaped_s - self._reaped_s, self._credit_s)
        self._total_s += reaped_s - self._reaped_s - paid_s
        self._credit_s -= paid_s
        self._alive, self._reaped_s = alive, reaped_s
        return self._total_s

    def _reaped(self) -> float:
        """Return the value, or the last one if it cannot be read; the rest counts as other processes'."""
        try:
            return max(reaped_cpu_s(self._root_pid), self._reaped_s)
        except Unreadable:
            return self._reaped_s


@functools.cache
def _ours(root_pid: int) -> OwnCpu:
    return OwnCpu(root_pid)


_FIELDS: dict[str, tuple[str, FieldReader]] = {
    "memory_available_bytes": ("psutil", _memory_available),
    "load_1min": ("getloadavg", _load),
}
_RATES: dict[str, tuple[str, CounterReader]] = {
    "cpu_cores_others": ("cpu times, less this process's tree", _cpu_of_others),
}
