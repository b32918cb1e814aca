"""Three Macs, by what their tools answer: a quiet Studio, a hot MacBook on battery, and one in Germany, its lid closed.

The texts are captured ones where there is one (tests/fixtures/macos/captured); what is put together from their layouts
stands here. None of these machines exists.
"""

import json
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.workers.machines import FIXTURES, recorded
from workers.machine.host import read_boot_id

STANDIN = Path(__file__).parent
CAPTURED = FIXTURES / "captured"
TOOLS = (
    "caffeinate footprint ioreg macmon memory_pressure netstat notifyutil pmset ps sw_vers sysctl system_profiler"
    " tmutil top vm_stat"
).split()
_PROCESSES = """\
    1   8:04.21 /sbin/launchd
  331  12:40.55 /System/Library/Frameworks/CoreServices.framework/Frameworks/Metadata.framework/Support/mds
  402 101:07.90 /System/Library/Frameworks/CoreServices.framework/Frameworks/Metadata.framework/Support/mds_stores
  440  44:10.02 /System/Library/PrivateFrameworks/SkyLight.framework/Resources/WindowServer
"""
_KERNEL = "Processes: 517 total, 2 running, 515 sleeping, 3740 threads\n\nPID TIME\n0   18:10:49\n"


def captured(name: str) -> str:
    """A published output."""
    return (CAPTURED / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandinMac:
    """A Mac: its facts, and what its tools print, by the command line."""

    name: str
    hostname: str
    chip: str
    cores: int
    gpu_cores: int
    memory_bytes: int
    macos: str
    build: str
    perflevels: str
    vm_stat: str
    swap: str
    pmset: str
    power: str
    thermal_level: int
    lid: str | None  # Yes: closed; None: a desktop
    display: str | None  # on, asleep; None: none
    pressure: int = 1
    macmon: str | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def answers(self) -> dict[str, str]:
        """Return the output of its tools."""
        accelerator = re.sub(
            r'"gpu-core-count" = \d+',
            f'"gpu-core-count" = {self.gpu_cores}',
            captured("ioreg_accelerator_m4.captured.txt"),
        )
        found = {
            "sw_vers -productVersion": self.macos,
            "sw_vers -buildVersion": self.build,
            "sysctl -n machdep.cpu.brand_string": self.chip,
            "sysctl -n hw.logicalcpu": str(self.cores),
            "sysctl -n hw.memsize": str(self.memory_bytes),
            # This machine's own boot: else its processes would look to a command like leftovers of another.
            "sysctl -n kern.bootsessionuuid": str(read_boot_id()),
            "sysctl -n sysctl.proc_translated": "0",
            "sysctl hw.nperflevels hw.perflevel0": self.perflevels,
            "sysctl vm.swapusage": self.swap,
            "sysctl kern.memorystatus_vm_pressure_level": f"kern.memorystatus_vm_pressure_level: {self.pressure}",
            "sysctl iogpu.wired_limit_mb": "iogpu.wired_limit_mb: 0",
            "vm_stat": self.vm_stat,
            "pmset -g": self.pmset,
            "pmset -g batt": self.power,
            "pmset -g therm": captured("pmset_therm_m.captured.txt"),
            "tmutil status": 'Backup session status:\n{\n    ClientID = "com.apple.backupd";\n    Running = 0;\n}',
            "ps -A -o pid= -o time= -o comm=": _PROCESSES,
            "ps -o pri= -p PID": "31",
            "top -l 1 -pid 0 -stats pid,time": _KERNEL,
            "ioreg -r -d 1 -w 0 -c IOAccelerator": accelerator,
            "ioreg -r -d 1 -w 0 -c AGXDeviceUserClient": captured("ioreg_clients.captured.txt"),
            "ioreg -r -d 1 -w 0 -c IOPlatformExpertDevice": f'      "IOPlatformUUID" = "{_uuid(self.name)}"',
            "ioreg -r -d 1 -w 0 -k AppleClamshellState": ""
            if self.lid is None
            else f'      "AppleClamshellState" = {self.lid}',
        }
        if self.macmon is not None:
            found |= {"macmon pipe -s 1 -i 100": self.macmon, "macmon pipe -s 0 -i 1000": self.macmon}
        return found

    def set_up(self, folder: Path) -> dict[str, str]:
        """Lay its tools and answers into a folder; the variables that make a process one of this Mac."""
        (folder / "answers").mkdir(parents=True)
        (folder / "bin").mkdir()
        for command, text in self.answers().items():
            name = re.sub(r"[^A-Za-z0-9.=_-]", "_", command)
            (folder / "answers" / name).write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        for tool in TOOLS:
            if tool != "macmon" or self.macmon is not None:
                (folder / "bin" / tool).symlink_to(STANDIN / "tools" / "tool")
        facts: dict[str, Any] = {
            "hostname": self.hostname,
            "machine": "arm64",
            "thermal_level": self.thermal_level,
            "display": self.display,
        }
        (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        paths = (str(STANDIN / "site"), str(STANDIN.parent.parent))
        return {
            "STANDIN_MAC": str(folder),
            "PATH": os.pathsep.join((str(folder / "bin"), os.environ["PATH"])),
            "PYTHONPATH": os.pathsep.join(paths),
            "COLUMNS": "80",
        } | self.environment


def _uuid(name: str) -> str:
    return f"{sum(name.encode()):08X}-0000-4000-8000-000000000000"


QUIET_STUDIO = StandinMac(
    name="quiet_studio",
    hostname="studio.local",
    chip="Apple M3 Ultra",
    cores=28,
    gpu_cores=60,
    memory_bytes=96 * 2**30,
    macos="15.5",
    build="24F74",
    perflevels=captured("sysctl_perflevels_m3_ultra.captured.txt"),
    vm_stat=recorded("vm_stat_m3_pro.public.txt"),
    swap="vm.swapusage: total = 0.00M  used = 0.00M  free = 0.00M  (encrypted)",
    pmset=captured("pmset_lowpowermode_off.captured.txt"),
    power="Now drawing from 'AC Power'",
    thermal_level=0,
    lid=None,
    display="on",
    macmon=captured("macmon_m1_max.captured.json"),
)
HOT_MACBOOK = StandinMac(
    name="hot_macbook",
    hostname="macbook-pro-7.home.example",
    chip="Apple M5 Max",
    cores=18,
    gpu_cores=40,
    memory_bytes=48 * 2**30,
    macos="26.1",
    build="25B78",
    perflevels=captured("sysctl_perflevels_m5_max.captured.txt"),
    vm_stat=recorded("vm_stat_m1_pro.public.txt"),
    swap=captured("sysctl_pressure_18_cores.captured.txt"),
    pmset=recorded("pmset_g_powermode_high.public.txt"),
    power="Now drawing from 'Battery Power'\n -InternalBattery-0 (id=11111111)\t61%; discharging; 2:10 remaining",
    thermal_level=2,
    lid="No",
    display="on",
    pressure=2,
    macmon=captured("macmon_16gb.captured.json"),
)
GERMAN_NIGHT = StandinMac(
    name="german_night",
    hostname="MacBook-von-Ada",
    chip="Apple M1 Pro",
    cores=10,
    gpu_cores=16,
    memory_bytes=16 * 2**30,
    macos="14.7.5",
    build="23H527",
    perflevels=captured("sysctl_perflevels_m1_pro.captured.txt"),
    vm_stat=recorded("vm_stat_m1_pro.public.txt"),
    swap=recorded("sysctl_swap_m1_pro.public.txt"),
    pmset=captured("pmset_lowpowermode_off.captured.txt"),
    power=captured("pmset_batt_charged.captured.txt"),
    thermal_level=0,
    lid="Yes",
    display="asleep",
    environment={"LANG": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8", "STANDIN_DECIMAL_COMMA": "1"},
)
MACS = (QUIET_STUDIO, HOT_MACBOOK, GERMAN_NIGHT)


def is_tool_executable() -> bool:
    """Return whether the checkout kept the script executable."""
    return bool((STANDIN / "tools" / "tool").stat().st_mode & stat.S_IXUSR)
