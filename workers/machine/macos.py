"""Reading the state of a Mac: parsers of its tools' output, and the fields made of them.

Each reader returns a number, words, or a number with its words, and raises `Unreadable` with the reason.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Callable

from workers.machine.processes import own_pids
from workers.machine.system import CounterReader, FieldReader, Found, NotThere, System, Unreadable

THERMAL_KEY = "com.apple.system.thermalpressurelevel"
THERMAL_LEVELS = ("nominal", "moderate", "heavy", "trapping", "sleeping")
POWER_SOURCES = {"AC Power": "mains", "Battery Power": "battery", "UPS Power": "ups"}
POWER_MODES = ("automatic", "low", "high")
VM_PRESSURES = {1: "normal", 2: "warning", 4: "critical"}
THERMAL_STATES = ("nominal", "fair", "serious", "critical")  # NSProcessInfo's: moderate and heavy both are fair
# Programs of the system that index or analyse in the background, by the field that counts their processor time.
SPOTLIGHT = re.compile(r"(?:mds|mds_stores|mdworker|mdworker_shared|mdbulkimport|mdsync|corespotlightd)")
PHOTOS = re.compile(r"(?:photoanalysisd|photolibraryd|mediaanalysisd)")
# Compiles the kernels of whatever program uses the GPU, in a process of its own that is not a child of that program.
COMPILERS = re.compile(r"MTLCompilerService")

_NS_PER_MS = 1e6
_BYTES_PER_MIB = 2**20


# ---- parsers ----


def thermal_level(number: int) -> tuple[float, str]:
    """The level of thermal pressure with its name."""
    if not 0 <= number < len(THERMAL_LEVELS):
        raise Unreadable(f"{THERMAL_KEY} is {number}, which is not a level")
    return float(number), THERMAL_LEVELS[number]


def parse_notifyutil(text: str) -> int:
    """The level that `notifyutil -g` prints; its failures come on standard output too, with status 0."""
    match = re.fullmatch(rf"{re.escape(THERMAL_KEY)} (\d+)", text.strip())
    if match is None:
        raise Unreadable(f"notifyutil: {text.strip() or 'no answer'}")
    return int(match[1])


def parse_power_source(text: str) -> str:
    """mains, battery or ups, from the first line of `pmset -g batt`."""
    match = re.match(r"Now drawing from '([^']+)'", text)
    if match is None or match[1] not in POWER_SOURCES:
        raise Unreadable(f"pmset -g batt names no known source: {text.splitlines()[0] if text else 'no answer'!r}")
    return POWER_SOURCES[match[1]]


def parse_power_mode(text: str) -> tuple[float, str]:
    """0 automatic, 1 low, 2 high, from `pmset -g`; older systems print `lowpowermode`, newer ones `powermode`."""
    match = re.search(r"^\s*(?:low)?powermode\s+(\d+)", text, flags=re.MULTILINE)
    if match is None or int(match[1]) >= len(POWER_MODES):
        raise Unreadable("pmset -g names no power mode")
    return float(match[1]), POWER_MODES[int(match[1])]


def parse_speed_limit(text: str) -> float:
    """The processor's speed limit in percent, from `pmset -g therm`. Apple silicon records none, throttled or not."""
    match = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", text)
    if match is None:
        raise Unreadable("pmset -g therm records no CPU_Speed_Limit; Apple silicon never does")
    return float(match[1])


def parse_sysctl(text: str) -> dict[str, str]:
    """The lines `name: value` of `sysctl`."""
    return dict(re.findall(r"^(\S+): (.*)$", text, flags=re.MULTILINE))


def parse_swap_used(text: str) -> float:
    """Bytes of swap in use, from `sysctl vm.swapusage`."""
    match = re.search(r"used = ([\d.]+)M", parse_sysctl(text).get("vm.swapusage", ""))
    if match is None:
        raise Unreadable("sysctl vm.swapusage names no used swap")
    return float(match[1]) * _BYTES_PER_MIB


def parse_vm_pressure(text: str) -> tuple[float, str]:
    """1 normal, 2 warning, 4 critical, from `sysctl kern.memorystatus_vm_pressure_level`."""
    level = _whole(parse_sysctl(text), "kern.memorystatus_vm_pressure_level")
    if level not in VM_PRESSURES:
        raise Unreadable(f"kern.memorystatus_vm_pressure_level is {level}, which is not a level")
    return float(level), VM_PRESSURES[level]


def parse_wired(text: str) -> float:
    """Bytes wired down, from `vm_stat`, which counts pages and names their size in its first line."""
    page = re.search(r"page size of (\d+) bytes", text)
    pages = re.search(r"^Pages wired down:\s*(\d+)", text, flags=re.MULTILINE)
    if page is None or pages is None:
        raise Unreadable("vm_stat names no wired pages")
    return float(int(page[1]) * int(pages[1]))


def parse_compressed(text: str) -> float:
    """Bytes that the compressor holds for programs, as large as they were before, from `vm_stat`."""
    page = re.search(r"page size of (\d+) bytes", text)
    pages = re.search(r"^Pages stored in compressor:\s*(\d+)", text, flags=re.MULTILINE)
    if page is None or pages is None:
        raise Unreadable("vm_stat names no pages in the compressor")
    return float(int(page[1]) * int(pages[1]))


def parse_wired_limit(text: str) -> float:
    """Bytes that the GPU may wire, from `sysctl iogpu.wired_limit_mb`; 0 there means the system's own default."""
    mib = _whole(parse_sysctl(text), "iogpu.wired_limit_mb")
    if mib == 0:
        raise Unreadable("iogpu.wired_limit_mb is 0: the system's default, whose value it does not state")
    return float(mib) * _BYTES_PER_MIB


def parse_accelerator(text: str, statistic: str) -> float:
    """A figure of IOAccelerator's statistics, matched by its whole name: others begin alike."""
    found = re.findall(rf'"{re.escape(statistic)}" ?= ?(\d+)', text)
    if not found:
        raise Unreadable(f"ioreg lists no {statistic!r}")
    return float(max(int(value) for value in found))


def parse_gpu_time(text: str) -> dict[tuple[int, str], float]:
    """Accumulated GPU time in ns by pid and client, from `ioreg -c AGXDeviceUserClient`: one block a client.

    A process has several clients, and one that it closes takes its time along: only apart do they never shrink.
    """
    times: dict[tuple[int, str], float] = {}
    for block in re.split(r"^\s*\+-o ", text, flags=re.MULTILINE)[1:]:
        creator = re.search(r'"IOUserClientCreator" = "pid (\d+),', block)
        spent = re.findall(r'"accumulatedGPUTime" ?= ?(\d+)', block)
        if creator is not None and spent:
            name = re.search(r"\bid (0x[0-9a-f]+)", block)
            client = (int(creator[1]), name[1] if name is not None else "")
            times[client] = times.get(client, 0.0) + sum(int(value) for value in spent)
    if not times:
        raise Unreadable("ioreg lists no client of the GPU with its accumulatedGPUTime")
    return times


def parse_backup_running(text: str) -> tuple[float, str]:
    """True if Time Machine runs, from `tmutil status`."""
    match = re.search(r"\bRunning = ([01]);", text)
    if match is None:
        raise Unreadable("tmutil status does not say whether a backup runs")
    return float(match[1]), "running" if match[1] == "1" else "idle"


def parse_priority(text: str) -> float:
    """The scheduling priority that `ps -o pri=` prints: 31 normal, 20 throttled, 4 background."""
    if not text.strip().isdecimal():
        raise Unreadable(f"ps prints no priority: {text.strip()!r}")
    return float(text)


def parse_lid(text: str) -> str:
    """open or closed, from `ioreg -r -d 1 -k AppleClamshellState`; a desktop has no such key."""
    match = re.search(r'"AppleClamshellState" ?= ?(Yes|No)', text)
    if match is None:
        raise Unreadable("ioreg lists no AppleClamshellState: this Mac has no lid")
    return "closed" if match[1] == "Yes" else "open"


def parse_display(text: str) -> str:
    """on, asleep, from the number of the main display and whether it sleeps, as `_ASK_DISPLAY` prints them."""
    match = re.fullmatch(r"(\d+) ([01])", text.strip())
    if match is None:
        raise Unreadable(f"CoreGraphics: {text.strip()[:60] or 'no answer'}")
    if match[1] == "0":
        raise Unreadable("CoreGraphics names no main display: none is attached, or nobody is logged in at the screen")
    return "asleep" if match[2] == "1" else "on"


def parse_cpu_times(text: str, names: re.Pattern[str]) -> dict[str, float]:
    """Processor seconds by pid of the processes of these names, from `ps -A -o pid= -o time= -o comm=`.

    The time is minutes and seconds, hours before them where there are any; the name is a path, which may hold spaces.
    """
    rows = re.findall(r"^\s*(\d+)\s+(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)\s+(.+)$", text, flags=re.MULTILINE)
    if not rows:
        raise Unreadable("ps lists no process with its time")
    return {
        pid: int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds)
        for pid, hours, minutes, seconds, path in rows
        if names.fullmatch(path.rsplit("/", 1)[-1].strip())
    }


def parse_kernel_time(text: str) -> float:
    """Processor seconds of kernel_task since the start of the system, from `top -l 1 -pid 0 -stats pid,time`.

    ps lists no process 0. Of less than 100 minutes top prints minutes and hundredths, of more hours and whole seconds.
    """
    header, row = (re.search(rf"^{first}\s.*$", text, flags=re.MULTILINE) for first in ("PID", "0"))
    columns, values = (match[0].split() if match is not None else [] for match in (header, row))
    shown = dict(zip(columns, values, strict=False)).get("TIME", "")
    match = re.fullmatch(r"(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", shown)
    if match is None:
        raise Unreadable(f"top names no processor time of kernel_task: {shown or 'no row of process 0'!r}")
    return int(match[1] or 0) * 3600 + int(match[2]) * 60 + float(match[3])


def parse_process_info(text: str) -> tuple[tuple[float, str], bool]:
    """NSProcessInfo's thermal state and whether low power mode is on, as `_ASK_PROCESS_INFO` prints them."""
    match = re.fullmatch(r"(\d) (\d)", text.strip())
    if match is None or int(match[1]) >= len(THERMAL_STATES):
        raise Unreadable(f"NSProcessInfo: {text.strip()[:60] or 'no answer'}")
    return (float(match[1]), THERMAL_STATES[int(match[1])]), match[2] == "1"


def _whole(values: dict[str, str], name: str) -> int:
    text = values.get(name, "")
    if not text.isdecimal():
        raise Unreadable(f"sysctl {name} is not a number: {text!r}")
    return int(text)


# ---- readers ----


def read_thermal_level(system: System) -> tuple[float, str]:
    """The level from the notification key itself, else from the tool that prints it."""
    try:
        return thermal_level(system.notify_state(THERMAL_KEY))
    except NotThere:
        raise  # the tool would print the same 0
    except Unreadable:
        return thermal_level(parse_notifyutil(system.run("notifyutil", "-g", THERMAL_KEY)))


def read_tree_footprint(system: System) -> float:
    """Bytes of the physical footprint of this process and its descendants: Metal memory included, unlike RSS."""
    return _over_tree(system, system.footprint_bytes)


def read_tree_peak(system: System) -> float:
    """The highest footprint of each of our processes, added up: never less than the tree's own highest."""
    return _over_tree(system, system.peak_footprint_bytes)


def _over_tree(system: System, read: Callable[[int], int]) -> float:
    """Added up over our processes, less those that have just ended, are zombies or became another user's."""
    found, reason = [], "none of our processes is there any more"
    for pid in own_pids(system.root_pid):
        try:
            found.append(read(pid))
        except Unreadable as error:
            reason = str(error)
    if not found:
        raise Unreadable(reason)
    return float(sum(found))


def read_power_mode(system: System) -> tuple[float, str]:
    """The mode that pmset names; where it names none, NSProcessInfo distinguishes low power mode from the others."""
    try:
        return parse_power_mode(system.run("pmset", "-g"))
    except Unreadable:
        try:
            _, low = _process_info(system)
        except Unreadable:
            raise Unreadable("pmset -g names no power mode") from None
        if low:
            return 1.0, "low"
        raise Unreadable("pmset -g names no power mode; low power mode is off") from None


def read_thermal_state(system: System) -> tuple[float, str]:
    """NSProcessInfo's thermal state, a second and coarser source of the thermal level."""
    state, _ = _process_info(system)
    return state


def _process_info(system: System) -> tuple[tuple[float, str], bool]:
    """Asked through pyobjc, in a child that ends at once: in a process that lives long the answer goes stale."""
    if importlib.util.find_spec("Foundation") is None:
        raise Unreadable("pyobjc-framework-Cocoa is not installed")
    return parse_process_info(system.run(sys.executable, "-c", _ASK_PROCESS_INFO))


def read_gpu_time_of_others(system: System) -> dict[str, float]:
    """Accumulated GPU milliseconds by client, those of our own processes left out."""
    times = parse_gpu_time(system.run("ioreg", "-r", "-d", "1", "-w", "0", "-c", "AGXDeviceUserClient"))
    ours = own_pids(system.root_pid)
    return {f"{pid} {client}": spent / _NS_PER_MS for (pid, client), spent in times.items() if pid not in ours}


def read_kernel_time(system: System) -> dict[str, float]:
    """Processor seconds of the kernel: what it does for us and for others, and its holding of cores against heat."""
    return {"": parse_kernel_time(system.run("top", "-l", "1", "-pid", "0", "-stats", "pid,time"))}


def _cpu_times(names: re.Pattern[str]) -> CounterReader:
    """Values of all users' processes: ps may read them, a library without root may not."""
    command = ("ps", "-A", "-o", "pid=", "-o", "time=", "-o", "comm=")
    return lambda system: parse_cpu_times(system.run(*command), names)


def _accelerator(statistic: str) -> FieldReader:
    command = ("ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator")
    return lambda system: parse_accelerator(system.run(*command), statistic)


def _parsed(parse: Callable[[str], Found], *command: str) -> FieldReader:
    return lambda system: parse(system.run(*command))


_ASK_PROCESS_INFO = (
    "from Foundation import NSProcessInfo; info = NSProcessInfo.processInfo();"
    " print(int(info.thermalState()), int(info.isLowPowerModeEnabled()))"
)

# In a child that ends at once: CoreGraphics connects its process to the window server.
_ASK_DISPLAY = (
    "import ctypes; graphics = ctypes.CDLL('/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics');"
    " main = graphics.CGMainDisplayID(); print(main & 0xFFFFFFFF, int(bool(graphics.CGDisplayIsAsleep(main))))"
)

FIELDS: dict[str, tuple[str, FieldReader]] = {
    "thermal_level": (f"notify {THERMAL_KEY}", read_thermal_level),
    "thermal_state": ("NSProcessInfo", read_thermal_state),
    "cpu_speed_limit_percent": ("pmset -g therm", _parsed(parse_speed_limit, "pmset", "-g", "therm")),
    "power_source": ("pmset -g batt", _parsed(parse_power_source, "pmset", "-g", "batt")),
    "power_mode": ("pmset -g", read_power_mode),
    "gpu_utilization_percent": ("ioreg IOAccelerator", _accelerator("Device Utilization %")),
    "gpu_memory_bytes": ("ioreg IOAccelerator", _accelerator("In use system memory")),
    "wired_bytes": ("vm_stat", _parsed(parse_wired, "vm_stat")),
    "compressed_bytes": ("vm_stat", _parsed(parse_compressed, "vm_stat")),
    "wired_limit_bytes": ("sysctl", _parsed(parse_wired_limit, "sysctl", "iogpu.wired_limit_mb")),
    "vm_pressure": ("sysctl", _parsed(parse_vm_pressure, "sysctl", "kern.memorystatus_vm_pressure_level")),
    "swap_used_bytes": ("sysctl", _parsed(parse_swap_used, "sysctl", "vm.swapusage")),
    "tree_memory_bytes": ("phys_footprint", read_tree_footprint),
    "tree_memory_peak_bytes": ("lifetime phys_footprint", read_tree_peak),
    "time_machine": ("tmutil status", _parsed(parse_backup_running, "tmutil", "status")),
    "lid": ("ioreg", _parsed(parse_lid, "ioreg", "-r", "-d", "1", "-w", "0", "-k", "AppleClamshellState")),
    "display": ("CoreGraphics", _parsed(parse_display, sys.executable, "-c", _ASK_DISPLAY)),
    "nice": ("getpriority", lambda _system: float(os.getpriority(os.PRIO_PROCESS, 0))),
    "priority": ("ps", lambda system: parse_priority(system.run("ps", "-o", "pri=", "-p", str(os.getpid())))),
}

RATES: dict[str, tuple[str, CounterReader]] = {
    "gpu_ms_per_s_others": ("ioreg AGXDeviceUserClient", read_gpu_time_of_others),
    "cpu_cores_spotlight": ("ps", _cpu_times(SPOTLIGHT)),
    "cpu_cores_photos": ("ps", _cpu_times(PHOTOS)),
    "cpu_cores_compilers": ("ps", _cpu_times(COMPILERS)),
}
GROWTHS: dict[str, tuple[str, CounterReader]] = {"kernel_cpu_s": ("top, process 0", read_kernel_time)}
