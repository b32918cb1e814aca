"""Reading the state of a Linux machine from /proc and /sys. Much of it is absent in virtual machines.

Each reader returns a number, words, or a number with its words, and raises `Unreadable` with the reason.
"""

import os
import re
import resource

from workers.machine.processes import own_peak_rss_bytes, own_rss_bytes
from workers.machine.system import CounterReader, FieldReader, System, Unreadable

_ZONES = "/sys/class/thermal/thermal_zone*"
_SUPPLIES = "/sys/class/power_supply/*"
_FREQUENCIES = "/sys/devices/system/cpu/cpu[0-9]*/cpufreq"


def per_cpu_free_bytes(system: System) -> int:
    """Free memory on the per-processor lists of all zones, in bytes; `MemFree` and `MemAvailable` leave it out."""
    counts = re.findall(r"^\s+count:\s+(\d+)$", system.read("/proc/zoneinfo"), flags=re.MULTILINE)
    return sum(map(int, counts)) * resource.getpagesize()


def read_thermal_level(system: System) -> float:
    """Always raises `Unreadable`, with one of two reasons: the kernel states temperatures, not a level."""
    if system.list(_ZONES):
        raise Unreadable("Linux states temperatures (thermal_zone_c), not a level of thermal pressure")
    raise Unreadable("no thermal zones here: a virtual machine, or a kernel without them")


def read_hottest_zone(system: System) -> tuple[float, str]:
    """Degrees Celsius of the hottest thermal zone, and its type."""
    zones = system.list(_ZONES)
    if not zones:
        raise Unreadable("no thermal zones here: a virtual machine, or a kernel without them")
    found = []
    for zone in zones:
        try:
            found.append((_number(system, f"{zone}/temp") / 1000, system.read(f"{zone}/type")))
        except Unreadable:  # a zone whose sensor is off
            continue
    if not found:
        raise Unreadable("no thermal zone can be read")
    return max(found)


def read_power_source(system: System) -> str:
    """mains or battery; a machine that lists no supply is one without a battery, or a virtual one."""
    kinds = {}
    for supply in system.list(_SUPPLIES):
        try:
            kinds[supply] = system.read(f"{supply}/type")
        except Unreadable:
            continue
    mains = [supply for supply, kind in kinds.items() if kind in ("Mains", "USB", "UPS")]
    if any(_reads_as(system, f"{supply}/online", "1") for supply in mains):
        return "mains"
    batteries = [supply for supply, kind in kinds.items() if kind == "Battery"]
    if any(_reads_as(system, f"{supply}/status", "Discharging") for supply in batteries):
        return "battery"
    raise Unreadable("no power supply states its charge: a desktop, a server or a virtual machine")


def read_power_mode(system: System) -> str:
    """The platform's profile where the firmware has one, else the governor of the first processor's clock."""
    try:
        return system.read("/sys/firmware/acpi/platform_profile")
    except Unreadable:
        governors = system.list(f"{_FREQUENCIES}/scaling_governor")
        if not governors:
            raise Unreadable("neither a platform profile nor a clock governor here") from None
        return system.read(governors[0])


def _frequency(name: str) -> FieldReader:
    def read(system: System) -> float:
        paths = system.list(f"{_FREQUENCIES}/{name}")
        if not paths:
            raise Unreadable("no cpufreq here: a virtual machine, or a clock that the kernel does not set")
        return sum(_number(system, path) for path in paths) / len(paths) / 1000

    return read


def read_swap_used(system: System) -> float:
    """Bytes of swap in use."""
    return _meminfo(system, "SwapTotal") - _meminfo(system, "SwapFree")


def _meminfo(system: System, name: str) -> float:
    match = re.search(rf"^{name}:\s*(\d+) kB", system.read("/proc/meminfo"), flags=re.MULTILINE)
    if match is None:
        raise Unreadable(f"/proc/meminfo has no {name}")
    return float(match[1]) * 1024


def _stalled(resource: str) -> CounterReader:
    """Microseconds that some task has stood still for want of a resource (pressure stall information)."""

    def read(system: System) -> dict[str, float]:
        match = re.search(r"^some .*\btotal=(\d+)", system.read(f"/proc/pressure/{resource}"), flags=re.MULTILINE)
        if match is None:
            raise Unreadable(f"/proc/pressure/{resource} has no total")
        return {"": float(match[1])}

    return read


def read_stolen_cpu(system: System) -> dict[str, float]:
    """Seconds that the hypervisor gave to others while this virtual machine wanted to run."""
    match = re.match(r"cpu +(?:\d+ +){7}(\d+)", system.read("/proc/stat"))
    if match is None:
        raise Unreadable("/proc/stat has no stolen time")
    return {"": int(match[1]) / os.sysconf("SC_CLK_TCK")}


def read_tree_peak(system: System) -> float:
    """The highest resident bytes of each of our processes, added up: never less than the tree's own highest."""
    found = own_peak_rss_bytes(system.root_pid)
    if found is None:
        raise Unreadable("/proc names no VmHWM of our processes")
    return float(found)


def _number(system: System, path: str) -> float:
    text = system.read(path)
    if re.fullmatch(r"-?\d+", text) is None:
        raise Unreadable(f"{path} holds no number: {text[:40]!r}")
    return float(text)


def _reads_as(system: System, path: str, wanted: str) -> bool:
    try:
        return system.read(path) == wanted
    except Unreadable:
        return False


FIELDS: dict[str, tuple[str, FieldReader]] = {
    "thermal_level": ("/sys/class/thermal", read_thermal_level),
    "thermal_zone_c": ("/sys/class/thermal", read_hottest_zone),
    "power_source": ("/sys/class/power_supply", read_power_source),
    "power_mode": ("platform_profile, scaling_governor", read_power_mode),
    "cpu_mhz": ("scaling_cur_freq", _frequency("scaling_cur_freq")),
    "cpu_mhz_max": ("scaling_max_freq", _frequency("scaling_max_freq")),
    "swap_used_bytes": ("/proc/meminfo", read_swap_used),
    "wired_bytes": ("/proc/meminfo", lambda system: _meminfo(system, "Mlocked")),
    "tree_memory_bytes": ("rss", lambda system: float(own_rss_bytes(system.root_pid))),
    "tree_memory_peak_bytes": ("VmHWM", read_tree_peak),
    "nice": ("getpriority", lambda _system: float(os.getpriority(os.PRIO_PROCESS, 0))),
}

RATES: dict[str, tuple[str, CounterReader]] = {
    "cpu_cores_stolen": ("/proc/stat", read_stolen_cpu),
}
GROWTHS: dict[str, tuple[str, CounterReader]] = {
    f"stalled_{resource}_us": (f"/proc/pressure/{resource}", _stalled(resource)) for resource in ("cpu", "memory", "io")
}
