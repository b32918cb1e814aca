"""The outputs that owners of Macs published, and what the parsers read from each."""

from collections.abc import Callable
from typing import Any

from tests.workers.machines import FIXTURES
from workers.machine import macos, optional_tools
from workers.machine.host import parse_performance_cores

CAPTURED = FIXTURES / "captured"
MIB = 2.0**20
Reader = Callable[[str], Any]


def _accelerator(text: str) -> tuple[float, float]:
    return macos.parse_accelerator(text, "Device Utilization %"), macos.parse_accelerator(text, "In use system memory")


def _memory(text: str) -> tuple[float, float]:
    return macos.parse_wired(text), macos.parse_compressed(text)


def _macmon(text: str) -> list[float | None]:
    keys = [("gpu_freq_mhz", "gpu_usage.0"), ("gpu_active_ratio", "gpu_usage.1"), ("all_power",), ("sys_power",)]
    return [round(optional_tools.parse_macmon(text, *each), 2) for each in keys]


def _pressure_and_swap(text: str) -> tuple[tuple[float, str], float]:
    return macos.parse_vm_pressure(text), macos.parse_swap_used(text)


def _cores_and_swap(text: str) -> tuple[str, float]:
    return parse_performance_cores(text), macos.parse_swap_used(text)


READ: dict[str, tuple[Reader, Any]] = {
    "ioreg_accelerator_m1_pro.captured.txt": (_accelerator, (2.0, 340_983_808.0)),
    "ioreg_accelerator_m4.captured.txt": (_accelerator, (30.0, 356_089_856.0)),
    "ioreg_accelerator_m4_max.captured.txt": (_accelerator, (16.0, 2_363_801_600.0)),
    "ioreg_clients.captured.txt": (
        macos.parse_gpu_time,  # the client that has submitted nothing counts nothing
        {(440, "0x100002dbd"): 38_814_507_416.0, (31299, "0x100002dbf"): 3_992_585_375.0},
    ),
    "macmon_16gb.captured.json": (_macmon, [198.0, 0.0, 0.26, 9.39]),
    "macmon_m1_max.captured.json": (_macmon, [388.0, 0.69, 2.5, 18.95]),
    "notifyutil_m4_air.captured.txt": (macos.parse_notifyutil, 1),
    "pmset_batt_charged.captured.txt": (macos.parse_power_source, "mains"),
    "pmset_batt_m3_pro.captured.txt": (macos.parse_power_source, "battery"),
    "pmset_lowpowermode_12.captured.txt": (macos.parse_power_mode, (0.0, "automatic")),
    "pmset_lowpowermode_off.captured.txt": (macos.parse_power_mode, (0.0, "automatic")),
    "pmset_therm_intel.captured.txt": (macos.parse_speed_limit, 28.0),
    "sysctl_hw_m3_max.captured.txt": (parse_performance_cores, "12"),
    "sysctl_hw_m4_pro_12_cores.captured.txt": (parse_performance_cores, "8"),
    "sysctl_hw_m4_pro_14_cores.captured.txt": (parse_performance_cores, "10"),
    "sysctl_m2_pro.captured.txt": (_cores_and_swap, ("8", 23_181.62 * MIB)),
    "sysctl_perflevels_m1_pro.captured.txt": (parse_performance_cores, "8"),  # macOS 12 names no level
    "sysctl_perflevels_m3_ultra.captured.txt": (parse_performance_cores, "20"),
    "sysctl_perflevels_m5_max.captured.txt": (parse_performance_cores, "6"),  # the Super ones
    "sysctl_perflevels_m6.captured.txt": (parse_performance_cores, "2"),  # of three levels
    "sysctl_pressure_18_cores.captured.txt": (_pressure_and_swap, ((2.0, "warning"), 11_625.69 * MIB)),
    "sysctl_swap_8gb.captured.txt": (macos.parse_swap_used, 982.69 * MIB),
    "sysctl_swap_m4_air.captured.txt": (macos.parse_swap_used, 13_263.56 * MIB),
    "tmutil_idle.captured.txt": (macos.parse_backup_running, (0.0, "idle")),
    "tmutil_running.captured.txt": (macos.parse_backup_running, (1.0, "running")),
    "top_m1_pro.captured.txt": (macos.parse_kernel_time, 18 * 3600 + 10 * 60 + 49.0),
    "vm_stat_4k_pages.captured.txt": (_memory, (715_958 * 4096.0, 0.0)),
    "vm_stat_8gb.captured.txt": (_memory, (84_856 * 16_384.0, 455_534 * 16_384.0)),
    "vm_stat_m4_air.captured.txt": (macos.parse_compressed, 3_037_310 * 16_384.0),
    "vm_stat_wired.captured.txt": (macos.parse_wired, 131_904 * 16_384.0),
}
