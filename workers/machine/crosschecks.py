"""Readings of this machine checked against a second source, for `interlace doctor --selftest`.

Each check reads one fact twice, by interlace's own way and by another, and states whether the two agree. What
cannot be read here is unreadable with its reason: it proves nothing either way.
"""

import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil

from workers.machine.macos import THERMAL_KEY, parse_notifyutil, parse_power_source, parse_swap_used
from workers.machine.memory import available_bytes, wait_until_settled
from workers.machine.process_identity import started_s
from workers.machine.processes import PROCESS_FAULTS, own_cpu_s, own_pids
from workers.machine.system import System, Unreadable, reaped_cpu_s

AGREES, DISAGREES, UNREADABLE = "agrees", "disagrees", "unreadable"

_BURNT_S = 1.5
_TICKS_S = 0.05  # either source counts in hundredths, and we go on working between the two
_HELD_BYTES = 256 * 2**20
_SETTLE_S = 10.0  # macOS returns the memory of a killed process with a delay
_MIB = 2**20

# Allocates and touches so many bytes, prints a line, and waits to be ended.
_HOLD = "import sys; held = bytearray(int(sys.argv[1])); held[::4096] = b'x' * len(held[::4096]); print(1, flush=True);"
_HOLD += "sys.stdin.read()"
_BURN = "import time; t = time.process_time(); \nwhile time.process_time() - t < 0.5: pass\nprint(time.process_time())"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One fact, read twice."""

    name: str
    result: str  # agrees, disagrees or unreadable
    ours: str  # interlace's reading, or why there is none
    other: str = ""  # the second source


def cross_checks(system: System) -> Iterator[Check]:
    """Run every check, one after the other; some seconds in all."""
    for name, check in _CHECKS.items():
        try:
            yield check(name, system)
        except Unreadable as error:
            yield Check(name=name, result=UNREADABLE, ours=str(error))
        except PROCESS_FAULTS as error:
            yield Check(name=name, result=UNREADABLE, ours=f"{type(error).__name__}: {error}")


def compared(name: str, ours: float, other: float, *, unit: str, within: float) -> Check:
    """Two numbers that may differ by `within`."""
    result = AGREES if abs(ours - other) <= within else DISAGREES
    return Check(name=name, result=result, ours=f"{ours:.3f} {unit}", other=f"{other:.3f} {unit}, ±{within:.3f}")


def same(name: str, ours: object, other: object) -> Check:
    """Two values that must be equal."""
    return Check(name=name, result=AGREES if ours == other else DISAGREES, ours=str(ours), other=str(other))


def parse_ps_time(text: str) -> float:
    """Seconds of `ps -o time=`: [[days-]hours:]minutes:seconds, the seconds with a fraction on macOS."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", text.strip())
    if match is None:
        raise Unreadable(f"ps prints no time: {text.strip()!r}")
    days, hours, minutes, seconds = (float(each or 0) for each in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _cpu_of_this_process(name: str, system: System) -> Check:
    """psutil's CPU time of our own process after some work: against `ps` on a Mac. Linux's counts whole seconds, so
    there it is the process's own clock."""
    until_s = time.process_time() + _BURNT_S
    while time.process_time() < until_s:
        pass
    ours = own_cpu_s(os.getpid()).get(str(os.getpid()))
    if ours is None:
        raise Unreadable("psutil gives no CPU time of this process")
    other = time.process_time()
    if system.platform == "darwin":
        other = parse_ps_time(system.run("ps", "-o", "time=", "-p", str(os.getpid())))
    return compared(name, ours, other, unit="s", within=_TICKS_S)


def _cpu_of_an_ended_child(name: str, _system: System) -> Check:
    """Compare the CPU time of an ended child by the parent's accounting and by the child itself."""
    before = reaped_cpu_s(os.getpid())
    done = subprocess.run([sys.executable, "-c", _BURN], capture_output=True, text=True, check=True, timeout=60)
    return compared(name, reaped_cpu_s(os.getpid()) - before, float(done.stdout), unit="s", within=0.3)


def _ended_child_of_another(name: str, _system: System) -> Check:
    """The same by the call for another process, which the run uses for its workers."""
    code = f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', {_BURN!r}], text=True));"
    code += "sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout is not None
        spent = float(child.stdout.readline())
        try:
            return compared(name, reaped_cpu_s(child.pid), spent, unit="s", within=0.3)
        finally:
            child.kill()


def _descendants(name: str, _system: System) -> Check:
    """A child and its child: as the readings find them, by the system's list, and as each process names its parent."""
    code = "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1);"
    code += "print(1, flush=True); sys.stdin.read(); child.kill()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        ours = own_pids(child.pid) - {child.pid}
        parents = {each.pid: each.info["ppid"] for each in psutil.process_iter(["ppid"])}
        child.communicate()
    return same(name, len(ours), sum(parent == child.pid for parent in parents.values()))


def _memory_of_a_child(name: str, system: System) -> Check:
    """A child that holds 256 MiB: the size that interlace reads, and that the system's own tool prints."""
    with _holding() as child:
        try:
            ours = system.footprint_bytes(child.pid) if system.platform == "darwin" else _resident(child.pid)
            other = (
                _footprint_tool(system, child.pid) if system.platform == "darwin" else _status_rss(system, child.pid)
            )
        finally:
            child.kill()
    return compared(name, ours / _MIB, other / _MIB, unit="MiB", within=24)


def memory_comes_back(name: str, system: System) -> Check:
    """Check that at least half of the 256 MiB that a child held is available again after its SIGKILL."""
    before = available_bytes(system)
    with _holding() as child:
        held = available_bytes(system)
        child.kill()
        child.wait()
    wait_until_settled(_SETTLE_S, available_bytes=lambda: available_bytes(system))
    taken, returned = before - held, available_bytes(system) - held
    if not 0.5 * _HELD_BYTES <= taken <= 1.5 * _HELD_BYTES:
        raise Unreadable(
            f"other processes changed the available memory: {taken / _MIB:.0f} MiB less while 256 were held"
        )
    return Check(
        name=name,
        result=AGREES if returned >= 0.5 * _HELD_BYTES else DISAGREES,
        ours=f"{taken / _MIB:.0f} MiB less while {_HELD_BYTES // _MIB} MiB were held",
        other=f"{returned / _MIB:.0f} MiB came back",
    )


def _start_of_this_process(name: str, system: System) -> Check:
    """The time between this process's start and a child's: by their starts, and by the age that `ps` prints."""
    with _holding() as child:
        try:
            ours = started_s(psutil.Process(child.pid)) - started_s(psutil.Process())
            other = parse_ps_time(system.run("ps", "-o", "etime=", "-p", str(os.getpid())))
        finally:
            child.kill()
    return compared(name, ours, other, unit="s", within=3.0)  # ps prints whole seconds, and starts after the child


def _installed_memory(name: str, system: System) -> Check:
    if system.platform == "darwin":
        ours = int(system.run("sysctl", "-n", "hw.memsize"))
    else:
        ours = 1024 * int(re.findall(r"MemTotal:\s*(\d+)", system.read("/proc/meminfo"))[0])
    return compared(name, ours / _MIB, psutil.virtual_memory().total / _MIB, unit="MiB", within=1)


def _swap(name: str, system: System) -> Check:
    other = psutil.swap_memory().used / _MIB
    if system.platform == "darwin":
        ours = parse_swap_used(system.run("sysctl", "vm.swapusage")) / _MIB
    else:
        values = dict(re.findall(r"^(Swap\w+):\s*(\d+)", system.read("/proc/meminfo"), flags=re.MULTILINE))
        ours = (int(values["SwapTotal"]) - int(values["SwapFree"])) / 1024
    return compared(name, ours, other, unit="MiB", within=16)


def _thermal_level(name: str, system: System) -> Check:
    """The notification key itself, and the tool that prints it."""
    if system.platform != "darwin":
        raise Unreadable("only macOS has a thermal level")
    ours = system.notify_state(THERMAL_KEY)
    return same(name, ours, parse_notifyutil(system.run("notifyutil", "-g", THERMAL_KEY)))


def _power_source(name: str, system: System) -> Check:
    if system.platform != "darwin":
        raise Unreadable("pmset is macOS's")
    ours = parse_power_source(system.run("pmset", "-g", "batt"))
    battery = psutil.sensors_battery()
    if battery is None:
        return same(name, ours, "mains")
    return same(name, ours, "mains" if battery.power_plugged else "battery")


def _clocks(name: str, _system: System) -> Check:
    """Check that the monotonic clock and the wall clock agree over a second."""
    wall_s, monotonic_s = time.time(), time.monotonic()
    time.sleep(1.0)
    return compared(name, time.monotonic() - monotonic_s, time.time() - wall_s, unit="s", within=0.25)


def _priority(name: str, _system: System) -> Check:
    """A process that runs at a lower priority measures that."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    return Check(name=name, result=AGREES if nice <= 0 else DISAGREES, ours=f"nice {nice}", other="nice 0 or less")


def _page_size(name: str, system: System) -> Check:
    if system.platform != "darwin":
        raise Unreadable("vm_stat is macOS's")
    found = re.search(r"page size of (\d+) bytes", system.run("vm_stat"))
    if found is None:
        raise Unreadable("vm_stat names no page size")
    return same(name, int(found[1]), resource.getpagesize())


def _holding() -> "subprocess.Popen[str]":
    child = subprocess.Popen([sys.executable, "-c", _HOLD, str(_HELD_BYTES)], stdin=-1, stdout=-1, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def _resident(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss)


def _status_rss(system: System, pid: int) -> float:
    found = re.search(r"^VmRSS:\s*(\d+) kB", system.read(f"/proc/{pid}/status"), flags=re.MULTILINE)
    if found is None:
        raise Unreadable("/proc/PID/status has no VmRSS")
    return float(found[1]) * 1024


def _footprint_tool(system: System, pid: int) -> float:
    """The size in bytes that `footprint` prints for one process: `phys_footprint: 268 MB`."""
    text = system.run("footprint", "-p", str(pid))
    found = re.search(r"phys_footprint:\s*([\d.]+)\s*([KMG]?)B", text)
    if found is None:
        raise Unreadable("footprint prints no phys_footprint")
    return float(found[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[found[2]]


_CHECKS: dict[str, Callable[[str, System], Check]] = {
    "CPU time of this process": _cpu_of_this_process,
    "CPU time of an ended child": _cpu_of_an_ended_child,
    "CPU time of a process's ended child": _ended_child_of_another,
    "descendants of a process": _descendants,
    "memory of a child": _memory_of_a_child,
    "memory after SIGKILL": memory_comes_back,
    "start of a process": _start_of_this_process,
    "installed memory": _installed_memory,
    "swap": _swap,
    "thermal level": _thermal_level,
    "power source": _power_source,
    "clocks": _clocks,
    "priority": _priority,
    "page size": _page_size,
}
