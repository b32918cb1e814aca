"""The machine's identity: the facts that do not change during a run, and the versions installed.

A fact that cannot be read is None, and `missing` says why.
"""

import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from workers.machine.system import LocalSystem, System, Unreadable

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """A machine, as far as it can be read."""

    hostname: str
    os: str  # as "macOS 15.5" or "Linux"
    os_build: str | None  # macOS: the build, as "24F74"; Linux: kernel release and distribution
    chip: str | None
    cpu_count: int | None  # logical
    performance_cores: int | None  # physical, where the machine has cores of several kinds
    gpu_cores: int | None  # Apple silicon: distinguishes the bins of one chip name
    memory_bytes: int | None
    boot_id: str | None
    hardware_uuid: str | None = None  # macOS: IOPlatformUUID, which no network and no reinstallation changes
    missing: dict[str, str] = field(default_factory=dict)  # field: why it is None


def read_host(system: System | None = None) -> HostFacts:
    """The facts of this machine, or of the one that `system` stands for."""
    system = system or LocalSystem()
    readers = _MACOS if system.platform == "darwin" else _LINUX
    missing: dict[str, str] = {}

    def read(name: str) -> str | None:
        return _attempt(lambda: readers[name](system), name, missing)

    def count(name: str) -> int | None:
        return _attempt(lambda: _natural(readers[name](system), name), name, missing)

    return HostFacts(
        hostname=platform.node() or "unknown",
        os=read("os") or platform.platform(),
        os_build=read("os_build"),
        chip=read("chip"),
        cpu_count=count("cpu_count"),
        performance_cores=count("performance_cores"),
        gpu_cores=count("gpu_cores"),
        memory_bytes=count("memory_bytes"),
        boot_id=read("boot_id"),
        hardware_uuid=read("hardware_uuid"),
        missing=missing,
    )


def read_boot_id(system: System | None = None) -> str | None:
    """An identifier of the present boot; None where the system has none."""
    system = system or LocalSystem()
    readers = _MACOS if system.platform == "darwin" else _LINUX
    return _attempt(lambda: readers["boot_id"](system), "boot_id", {})


def is_translated(system: System | None = None) -> bool | None:
    """Return whether this process runs under Rosetta; None if unknown, as on a Mac with an Intel processor."""
    system = system or LocalSystem()
    if system.platform != "darwin":
        return False
    try:
        return system.run("sysctl", "-n", "sysctl.proc_translated").strip() == "1"
    except Unreadable:
        return None


def _attempt(read: Callable[[], Value], name: str, missing: dict[str, str]) -> Value | None:
    try:
        return read()
    except Unreadable as error:
        missing[name] = str(error)
        return None


# ---- macOS ----


def _sysctl(name: str) -> Callable[[System], str]:
    return lambda system: _not_empty(system.run("sysctl", "-n", name), f"sysctl {name}")


def _macos_performance_cores(system: System) -> str:
    return parse_performance_cores(system.run("sysctl", "hw.nperflevels", "hw.perflevel0"))


def parse_performance_cores(text: str) -> str:
    """The physical cores of the fastest level, which is level 0 whatever its name (Performance, from the M5 on Super).

    From `sysctl hw.nperflevels hw.perflevel0`.
    """
    found: dict[str, str] = dict(re.findall(r"^(\S+): (.*)$", text, flags=re.MULTILINE))
    if found.get("hw.perflevel0.name") == "Efficiency":
        raise Unreadable("sysctl names the fastest cores Efficiency")
    if "hw.perflevel0.physicalcpu" not in found:
        raise Unreadable("sysctl names no cores of level 0")
    return found["hw.perflevel0.physicalcpu"]


def _macos_gpu_cores(system: System) -> str:
    match = re.search(
        r'"gpu-core-count" ?= ?(\d+)', system.run("ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator")
    )
    if match is None:
        raise Unreadable("ioreg lists no gpu-core-count")
    return match[1]


def _macos_hardware_uuid(system: System) -> str:
    return parse_hardware_uuid(system.run("ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOPlatformExpertDevice"))


def parse_hardware_uuid(text: str) -> str:
    """The IOPlatformUUID in the output of `ioreg -r -d 1 -c IOPlatformExpertDevice`."""
    match = re.search(r'"IOPlatformUUID" ?= ?"([0-9A-Fa-f-]{36})"', text)
    if match is None:
        raise Unreadable("ioreg lists no IOPlatformUUID")
    return match[1].upper()


_MACOS: dict[str, Callable[[System], str]] = {
    "os": lambda system: f"macOS {_not_empty(system.run('sw_vers', '-productVersion'), 'sw_vers')}",
    "os_build": lambda system: _not_empty(system.run("sw_vers", "-buildVersion"), "sw_vers"),
    "chip": _sysctl("machdep.cpu.brand_string"),
    "cpu_count": _sysctl("hw.logicalcpu"),
    "performance_cores": _macos_performance_cores,
    "gpu_cores": _macos_gpu_cores,
    "memory_bytes": _sysctl("hw.memsize"),
    "boot_id": _sysctl("kern.bootsessionuuid"),
    "hardware_uuid": _macos_hardware_uuid,
}


# ---- Linux ----


def _linux_os_build(system: System) -> str:
    kernel = system.read("/proc/sys/kernel/osrelease")
    try:
        return f"{kernel}, {distribution_name(system.read('/etc/os-release'))}"
    except Unreadable:
        return kernel


def distribution_name(os_release: str) -> str:
    """The readable name in the text of /etc/os-release."""
    match = re.search(r'^PRETTY_NAME=["\']?(.*?)["\']?$', os_release, flags=re.MULTILINE)
    return match[1] if match else "unknown distribution"


def _linux_chip(system: System) -> str:
    return parse_cpu_model(system.read("/proc/cpuinfo"))


def parse_cpu_model(text: str) -> str:
    """The processor's name in /proc/cpuinfo; Arm kernels often give none."""
    match = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(\S.*)$", text, flags=re.MULTILINE)
    if match is None:
        raise Unreadable("/proc/cpuinfo names no model")
    return match[1].strip()


def _linux_memory(system: System) -> str:
    match = re.search(r"^MemTotal:\s*(\d+) kB", system.read("/proc/meminfo"), flags=re.MULTILINE)
    if match is None:
        raise Unreadable("/proc/meminfo has no MemTotal")
    return str(int(match[1]) * 1024)


def _not_there(reason: str) -> Callable[[System], str]:
    def read(_system: System) -> str:
        raise Unreadable(reason)

    return read


_LINUX: dict[str, Callable[[System], str]] = {
    "os": lambda _system: "Linux",
    "os_build": _linux_os_build,
    "chip": _linux_chip,
    "cpu_count": lambda _system: _not_empty(str(os.cpu_count() or ""), "os.cpu_count"),
    "performance_cores": _not_there("Linux does not name kinds of cores"),
    "gpu_cores": _not_there("only Apple silicon's own GPU states its cores"),
    "memory_bytes": _linux_memory,
    "boot_id": lambda system: system.read("/proc/sys/kernel/random/boot_id"),
    "hardware_uuid": _not_there("Linux shows it to root alone; the machine is known by its name and hardware"),
}


def _not_empty(text: str, source: str) -> str:
    if not text.strip():
        raise Unreadable(f"{source} answered nothing")
    return text.strip()


def _natural(text: str, source: str) -> int:
    if not text.isdecimal():
        raise Unreadable(f"{source}: {text!r} is not a number")
    return int(text)
