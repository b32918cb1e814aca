"""Reading the machine: every recording of a Mac, a made-up Linux machine, and this one."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from tests.workers.machines import FIXTURES, Recorded, recorded
from workers.machine import macos, telemetry
from workers.machine.macos import THERMAL_KEY
from workers.machine.processes import own_cpu_s
from workers.machine.system import LocalSystem, NotThere, Unreadable, reaped_cpu_s
from workers.machine.telemetry import CHEAP, FIRST, MachineReader, OwnCpu, Reading, read_machine, read_thermal_level


@pytest.fixture(autouse=True)
def own_cpu_forgotten() -> Iterator[None]:
    """Keep one test's knowledge of our process tree from the next."""
    yield
    telemetry._ours.cache_clear()  # noqa: SLF001


def _with_hours(text: str) -> str:
    """As other systems' `ps` shows more than an hour."""
    return text.replace("  2:00.25", "2:03:25.25")


# ---- the recordings, each by the parser that reads it ----

PARSED: list[tuple[str, Callable[[str], Any], Any]] = [
    ("ioreg_agx_user_client.layout.txt", macos.parse_gpu_time, {(440, "0x100002dbd"): 38_814_507_416.0}),
    ("ioreg_ioaccelerator_busy.public.txt", lambda text: macos.parse_accelerator(text, "Device Utilization %"), 99.0),
    (
        "ioreg_ioaccelerator_busy.public.txt",
        lambda text: macos.parse_accelerator(text, "In use system memory"),
        28_367_667_200.0,
    ),
    ("notifyutil_level0.public.txt", macos.parse_notifyutil, 0),
    ("notifyutil_level1.layout.txt", macos.parse_notifyutil, 1),
    ("notifyutil_level2.layout.txt", macos.parse_notifyutil, 2),
    ("notifyutil_level3.layout.txt", macos.parse_notifyutil, 3),
    ("notifyutil_level4.layout.txt", macos.parse_notifyutil, 4),
    ("pmset_batt_ac_m1.public.txt", macos.parse_power_source, "mains"),
    ("pmset_batt_battery.public.txt", macos.parse_power_source, "battery"),
    ("pmset_batt_desktop.layout.txt", macos.parse_power_source, "mains"),
    ("pmset_g_arm64.public.txt", macos.parse_power_mode, (0.0, "automatic")),
    ("pmset_g_powermode.layout.txt", macos.parse_power_mode, (2.0, "high")),
    ("pmset_g_powermode_high.public.txt", macos.parse_power_mode, (2.0, "high")),
    ("sysctl_swap_m1_pro.public.txt", macos.parse_swap_used, 1_470.06 * 2.0**20),
    ("vm_stat_m1_pro.public.txt", macos.parse_compressed, 1_022_243 * 16_384.0),
    ("vm_stat_m3_pro.public.txt", macos.parse_wired, 106_180 * 16_384.0),
    ("sysctl_memory.layout.txt", macos.parse_vm_pressure, (1.0, "normal")),
    ("sysctl_memory.layout.txt", macos.parse_wired_limit, 40_960 * 2.0**20),
    ("sysctl_memory.layout.txt", macos.parse_swap_used, 0.0),
    ("tmutil_status_idle.layout.txt", macos.parse_backup_running, (0.0, "idle")),
    (
        "ps_cpu_times.layout.txt",
        lambda text: macos.parse_cpu_times(text, macos.SPOTLIGHT),
        {"331": 760.55, "402": 6067.9, "690": 3.0},
    ),
    ("ps_cpu_times.layout.txt", lambda text: macos.parse_cpu_times(text, macos.PHOTOS), {"711": 120.25}),
    ("ps_cpu_times.layout.txt", lambda text: macos.parse_cpu_times(_with_hours(text), macos.PHOTOS), {"711": 7405.25}),
]
UNREADABLE: list[tuple[str, Callable[[str], Any], str]] = [
    ("notifyutil_failure.layout.txt", macos.parse_notifyutil, "Failed with code 9"),
    ("pmset_therm_nominal_m1pro.public.txt", macos.parse_speed_limit, "Apple silicon never does"),
]
READ_BY_HOST = {"sysctl_brand.public.txt", "sysctl_perflevel.public.txt", "sysctl_perflevels_8gb.public.txt"}


@pytest.mark.parametrize(("name", "parse", "expected"), PARSED)
def test_a_recording_is_read(name: str, parse: Callable[[str], Any], expected: Any) -> None:
    assert parse(recorded(name)) == expected


@pytest.mark.parametrize(("name", "parse", "reason"), UNREADABLE)
def test_a_recording_without_the_value_gives_the_reason(name: str, parse: Callable[[str], Any], reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse(recorded(name))


def test_no_recording_is_left_out() -> None:
    used = {name for name, _, _ in (*PARSED, *UNREADABLE)} | READ_BY_HOST
    assert {path.name for path in FIXTURES.glob("*.txt")} == used


@pytest.mark.parametrize(
    "parse",
    [
        macos.parse_gpu_time,
        macos.parse_notifyutil,
        macos.parse_power_source,
        macos.parse_power_mode,
        macos.parse_speed_limit,
        macos.parse_vm_pressure,
        macos.parse_wired,
        macos.parse_wired_limit,
        macos.parse_swap_used,
        macos.parse_backup_running,
        macos.parse_priority,
        macos.parse_lid,
        macos.parse_display,
        macos.parse_compressed,
        macos.parse_process_info,
        lambda text: macos.parse_cpu_times(text, macos.SPOTLIGHT),
        lambda text: macos.parse_accelerator(text, "Device Utilization %"),
    ],
)
@pytest.mark.parametrize("text", ["", "\n", "command not found", '"Device Utilization %"', "powermode 9", "nil"])
def test_what_says_nothing_is_never_zero(parse: Callable[[str], Any], text: str) -> None:
    with pytest.raises(Unreadable, match=r"\w"):
        parse(text)


def test_a_limit_of_zero_is_the_systems_default_and_not_zero() -> None:
    with pytest.raises(Unreadable, match="the system's default"):
        macos.parse_wired_limit("iogpu.wired_limit_mb: 0\n")


# The layout of vm_stat, with made-up counts.
VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               70000.
Pages wired down:                           250.
Pages stored in compressor:                1000.
Pages occupied by compressor:               300.
"""


def test_wired_pages_are_bytes_by_the_size_that_vm_stat_names() -> None:
    assert macos.parse_wired(VM_STAT) == 250 * 16384.0


@pytest.mark.parametrize(("text", "state"), [("1 0\n", "on"), ("724053261 1\n", "asleep")])
def test_the_display_is_on_or_asleep(text: str, state: str) -> None:
    assert macos.parse_display(text) == state


def test_a_mac_without_a_display_or_a_login_has_no_state_of_it() -> None:
    with pytest.raises(Unreadable, match="names no main display"):
        macos.parse_display("0 1\n")


def _client(pid: int, name: str, ns: int | None) -> str:
    """A block of ioreg's, in the recording's layout; None: one that has submitted nothing."""
    text = recorded("ioreg_agx_user_client.layout.txt")
    usage = "" if ns is None else f'{{"API"="Metal","lastSubmittedTime"=1,"accumulatedGPUTime"={ns}}}'
    lines = [f'      "AppUsage" = ({usage})' if "AppUsage" in line else line for line in text.splitlines()]
    return "\n".join(lines).replace("pid 440, WindowServer", f"pid {pid}, app").replace("0x100002dbd", name) + "\n"


def test_gpu_time_is_counted_by_client() -> None:
    text = _client(440, "0xa", 5) + _client(7, "0xb", 6) + _client(7, "0xc", 7) + _client(8, "0xd", None)
    assert macos.parse_gpu_time(text) == {(440, "0xa"): 5, (7, "0xb"): 6, (7, "0xc"): 7}


def test_clients_without_the_counter_are_no_zero() -> None:
    with pytest.raises(Unreadable, match="accumulatedGPUTime"):
        macos.parse_gpu_time(_client(8, "0xd", None))


@pytest.mark.parametrize("number", [-1, 5, 2**64 - 1])
def test_a_level_that_is_none_is_refused(number: int) -> None:
    with pytest.raises(Unreadable, match="which is not a level"):
        macos.thermal_level(number)


# ---- a recorded Mac ----

IOACCELERATOR = "ioreg -r -d 1 -w 0 -c IOAccelerator"
AGX_CLIENTS = "ioreg -r -d 1 -w 0 -c AGXDeviceUserClient"


def _mac(**changes: str) -> Recorded:
    commands = {
        "pmset -g": recorded("pmset_g_arm64.public.txt"),
        "pmset -g batt": recorded("pmset_batt_ac_m1.public.txt"),
        "pmset -g therm": recorded("pmset_therm_nominal_m1pro.public.txt"),
        IOACCELERATOR: recorded("ioreg_ioaccelerator_busy.public.txt"),
        AGX_CLIENTS: recorded("ioreg_agx_user_client.layout.txt"),
        "sysctl vm.swapusage": recorded("sysctl_memory.layout.txt"),
        "sysctl iogpu.wired_limit_mb": recorded("sysctl_memory.layout.txt"),
        "sysctl kern.memorystatus_vm_pressure_level": recorded("sysctl_memory.layout.txt"),
        "tmutil status": recorded("tmutil_status_idle.layout.txt"),
        "ioreg -r -d 1 -w 0 -k AppleClamshellState": '      "AppleClamshellState" = No\n',
        f"{sys.executable} -c {macos._ASK_DISPLAY}": "1 1\n",  # noqa: SLF001
        "vm_stat": VM_STAT,
        f"ps -o pri= -p {os.getpid()}": "31\n",
    }
    return Recorded(platform="darwin", commands=commands | changes, notifications={THERMAL_KEY: 2})


def _by_field(readings: tuple[Reading, ...]) -> dict[str, Reading]:
    assert len({reading.field for reading in readings}) == len(readings)
    return {reading.field: reading for reading in readings}


def test_a_mac_is_read_whole() -> None:
    found = _by_field(MachineReader(_mac()).read())
    values = {name: (reading.value, reading.value_text) for name, reading in found.items()}
    expected = {
        "thermal_level": (2.0, "heavy"),
        "power_source": (None, "mains"),
        "power_mode": (0.0, "automatic"),
        "gpu_utilization_percent": (99.0, None),
        "gpu_memory_bytes": (28_367_667_200.0, None),
        "wired_limit_bytes": (40_960 * 2.0**20, None),
        "vm_pressure": (1.0, "normal"),
        "swap_used_bytes": (0.0, None),
        "time_machine": (0.0, "idle"),
        "priority": (31.0, None),
        "lid": (None, "open"),
        "display": (None, "asleep"),
        "wired_bytes": (250 * 16384.0, None),
        "compressed_bytes": (1000 * 16384.0, None),
        "nice": (float(os.getpriority(os.PRIO_PROCESS, 0)), None),
        "cpu_speed_limit_percent": (None, None),
    }
    assert {name: values[name] for name in expected} == expected
    assert found["cpu_speed_limit_percent"].reason


def test_a_command_runs_once_for_all_its_fields() -> None:
    mac = _mac()
    MachineReader(mac).read()
    assert mac.ran.count(IOACCELERATOR) == 1


def test_without_the_key_the_tool_is_asked() -> None:
    mac = Recorded(
        platform="darwin",
        commands={f"notifyutil -g {THERMAL_KEY}": recorded("notifyutil_level1.layout.txt")},
    )
    assert (read_thermal_level(mac).value, read_thermal_level(mac).value_text) == (1.0, "moderate")


@pytest.mark.parametrize(
    ("mac", "reason"),
    [
        (Recorded(platform="darwin", notifications={THERMAL_KEY: 17}), "notifyutil is not installed"),
        (
            Recorded(
                platform="darwin",
                commands={f"notifyutil -g {THERMAL_KEY}": recorded("notifyutil_failure.layout.txt")},
            ),
            "Failed with code 9",
        ),
    ],
)
def test_an_unreadable_level_is_none_with_the_reason(mac: Recorded, reason: str) -> None:
    found = read_thermal_level(mac)
    assert found.value is None
    assert reason in (found.reason or "")


def test_a_bare_mac_gives_reasons_and_no_zeros() -> None:
    found = _by_field(MachineReader(Recorded(platform="darwin")).read())
    for name in macos.FIELDS.keys() - {"nice"}:  # of this very process
        assert found[name].value is None, name
        assert found[name].value_text is None, name
        assert found[name].reason, name


def test_gpu_time_of_others_is_a_rate_between_two_readings() -> None:
    text = recorded("ioreg_agx_user_client.layout.txt")
    mine = text.replace("pid 440, WindowServer", f"pid {os.getpid()}, python")
    later = text.replace("38738170958", str(38_738_170_958 + 120_000_000))  # 120 ms more
    clock = iter([0.0, 0.0, 2.0, 2.0])
    mac = _mac(**{AGX_CLIENTS: text + mine})
    reader = MachineReader(mac, clock=lambda: next(clock))
    assert _by_field(reader.read())["gpu_ms_per_s_others"].reason == FIRST
    mac.commands = {**mac.commands, AGX_CLIENTS: later + mine.replace("38738170958", "99999999999")}
    assert _by_field(reader.read())["gpu_ms_per_s_others"].value == pytest.approx(60.0)


def test_a_client_that_closes_takes_nothing_from_what_others_do() -> None:
    clock = iter([0.0, 0.0, 5.0, 5.0])
    before = _client(7, "0xb", 1_000_000_000) + _client(8, "0xc", 38_000_000_000) + _client(8, "0xd", 2_000_000_000)
    mac = _mac(**{AGX_CLIENTS: before})
    reader = MachineReader(mac, clock=lambda: next(clock))
    reader.read()
    after = _client(7, "0xb", 5_000_000_000) + _client(8, "0xd", 1_000_000_000)  # 0xc closed, 0xd told less than before
    mac.commands = {**mac.commands, AGX_CLIENTS: after}
    assert _by_field(reader.read())["gpu_ms_per_s_others"].value == pytest.approx(800.0)


@pytest.mark.parametrize("answer", ["", "\n", _client(8, "0xd", None)])
def test_a_mac_that_reports_no_gpu_time_is_not_one_at_rest(answer: str) -> None:
    clock = iter([0.0, 0.0, 5.0, 5.0])
    reader = MachineReader(_mac(**{AGX_CLIENTS: answer}), clock=lambda: next(clock))
    reader.read()
    found = _by_field(reader.read())["gpu_ms_per_s_others"]
    assert (found.value, "accumulatedGPUTime" in (found.reason or "")) == (None, True)


PS = "ps -A -o pid= -o time= -o comm="


def test_what_spotlight_and_photos_use_is_a_rate_in_cores() -> None:
    """They index and analyse at night; a worker that is new counts from nothing."""
    before = recorded("ps_cpu_times.layout.txt")
    later = before.replace("101:07.90", "101:09.90").replace("2:00.25", "2:01.25")
    later += "  950   0:01.00 /System/Library/Frameworks/CoreServices.framework/mdworker\n"
    clock = iter([0.0, 0.0, 4.0, 4.0])
    mac = _mac(**{PS: before})
    reader = MachineReader(mac, clock=lambda: next(clock))
    assert _by_field(reader.read())["cpu_cores_spotlight"].reason == FIRST
    mac.commands = {**mac.commands, PS: later}
    found = _by_field(reader.read())
    assert found["cpu_cores_spotlight"].value == pytest.approx((2.0 + 1.0) / 4)
    assert found["cpu_cores_photos"].value == pytest.approx(1.0 / 4)


TOP = "top -l 1 -pid 0 -stats pid,time"


def test_what_the_kernel_spent_between_two_readings_is_their_difference_in_seconds() -> None:
    mac = _mac(**{TOP: "Processes: 517 total\n\nPID TIME\n0   78:00.09\n"})
    reader = MachineReader(mac)
    assert _by_field(reader.read())["kernel_cpu_s"].reason == FIRST
    mac.commands = {**mac.commands, TOP: "Processes: 518 total\n\nPID TIME\n0   78:03.59\n"}
    assert _by_field(reader.read())["kernel_cpu_s"].value == pytest.approx(3.5)


@pytest.mark.parametrize("answer", ["", "PID TIME\n", "PID TIME\n0   100 hrs\n", "PID COMMAND\n0   kernel_task\n"])
def test_a_time_of_the_kernel_that_top_does_not_print_is_unreadable(answer: str) -> None:
    with pytest.raises(Unreadable, match="top names no processor time of kernel_task"):
        macos.parse_kernel_time(answer)


class WithFootprints(Recorded):
    """A Mac that tells the footprints of processes 1 and 2, and fails for what has ended or is another user's."""

    def footprint_bytes(self, pid: int) -> int:
        return {1: 15 * 10**9, 2: 4 * 10**9}[pid] if pid in (1, 2) else Recorded.footprint_bytes(self, pid)

    def peak_footprint_bytes(self, pid: int) -> int:
        return self.footprint_bytes(pid) + 10**9


@pytest.mark.parametrize(
    ("pids", "now", "peak"), [({1, 2}, 19e9, 21e9), ({1, 2, 3}, 19e9, 21e9), ({3}, None, None), (set(), None, None)]
)
def test_one_process_that_ended_does_not_cost_the_tree_s_memory(
    monkeypatch: pytest.MonkeyPatch, pids: set[int], now: float | None, peak: float | None
) -> None:
    monkeypatch.setattr("workers.machine.macos.own_pids", lambda root_pid: pids)
    mac = WithFootprints(platform="darwin")
    found = _by_field(MachineReader(mac, only={"tree_memory_bytes", "tree_memory_peak_bytes"}).read())
    assert (found["tree_memory_bytes"].value, found["tree_memory_peak_bytes"].value) == (now, peak)
    assert (found["tree_memory_bytes"].reason is None) == (now is not None)
    assert not mac.ran


def test_cheap_readings_of_a_mac_start_no_program() -> None:
    mac = Recorded(platform="darwin", notifications={THERMAL_KEY: 0})
    MachineReader(mac, only=CHEAP - {"swap_used_bytes", "gpu_mhz", "gpu_c"}).read()  # Linux's own
    assert not mac.ran


class VirtualMac(Recorded):
    """A Mac whose notification key answers 0 although nothing sets it."""

    def notify_state(self, key: str) -> int:
        raise NotThere("a virtual Mac")


def test_a_virtual_mac_has_no_thermal_level_whatever_the_tool_prints() -> None:
    mac = VirtualMac(
        platform="darwin", commands={f"notifyutil -g {THERMAL_KEY}": recorded("notifyutil_level0.public.txt")}
    )
    found = read_thermal_level(mac)
    assert (found.value, found.reason, mac.ran) == (None, "a virtual Mac", [])


FOUNDATION = """
class NSProcessInfo:
    @classmethod
    def processInfo(cls): return cls()
    def thermalState(self): return {state}
    def isLowPowerModeEnabled(self): return {low}
"""


class PyobjcMac(Recorded):
    """A recorded Mac on which this interpreter, and nothing else, is really run."""

    def run(self, *command: str) -> str:
        return LocalSystem().run(*command) if command[0] == sys.executable else Recorded.run(self, *command)


def foundation(folder: Path, monkeypatch: pytest.MonkeyPatch, *, state: int, low: bool) -> None:
    """A stand-in for pyobjc, for this interpreter and for the child that asks it."""
    (folder / "Foundation.py").write_text(FOUNDATION.format(state=state, low=low))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.delitem(sys.modules, "Foundation", raising=False)


def test_pyobjc_reports_the_thermal_state_and_low_power_where_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foundation(tmp_path, monkeypatch, state=2, low=True)
    found = _by_field(MachineReader(PyobjcMac(platform="darwin")).read())
    assert (found["thermal_state"].value, found["thermal_state"].value_text) == (2.0, "serious")
    assert (found["power_mode"].value, found["power_mode"].value_text) == (1.0, "low")  # pmset is not there
    with_pmset = PyobjcMac(platform="darwin", commands={"pmset -g": recorded("pmset_g_powermode.layout.txt")})
    assert _by_field(MachineReader(with_pmset).read())["power_mode"].value_text == "high"


def test_a_state_that_pyobjc_does_not_know_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foundation(tmp_path, monkeypatch, state=7, low=False)
    found = _by_field(MachineReader(PyobjcMac(platform="darwin")).read())
    assert found["thermal_state"].reason == "NSProcessInfo: 7 0"
    assert "names no power mode" in (found["power_mode"].reason or "")


@pytest.mark.skipif(sys.platform == "darwin", reason="it may be installed there")
def test_without_pyobjc_nothing_is_started_and_the_reason_names_it() -> None:
    mac = _mac()
    found = _by_field(MachineReader(mac).read())
    assert found["thermal_state"].reason == "pyobjc-framework-Cocoa is not installed"
    assert not any("NSProcessInfo" in line for line in mac.ran)


# ---- a made-up Linux machine ----

LAPTOP = {
    "/sys/class/thermal/thermal_zone0/temp": "48000",
    "/sys/class/thermal/thermal_zone0/type": "acpitz",
    "/sys/class/thermal/thermal_zone1/temp": "71500",
    "/sys/class/thermal/thermal_zone1/type": "x86_pkg_temp",
    "/sys/class/thermal/thermal_zone2/temp": "",
    "/sys/class/thermal/thermal_zone2/type": "iwlwifi",
    "/sys/class/power_supply/AC/type": "Mains",
    "/sys/class/power_supply/AC/online": "0",
    "/sys/class/power_supply/BAT0/type": "Battery",
    "/sys/class/power_supply/BAT0/status": "Discharging",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1800000",
    "/sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "2200000",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "4000000",
    "/sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq": "4000000",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
    "/proc/meminfo": "MemTotal: 16000 kB\nMemAvailable:    9000 kB\nSwapTotal:   2000 kB\nSwapFree:   1500 kB",
    "/proc/stat": "cpu  10 20 30 40 50 60 70 800 90 100\ncpu0 1 2 3 4 5 6 7 8 9 10",
    "/proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0.00 total=5",
    "/proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull total=0",
    "/proc/pressure/io": "some avg10=1.25 avg60=0.00 avg300=0.00 total=777\nfull total=7",
}


def test_a_laptop_is_read_whole() -> None:
    found = _by_field(MachineReader(Recorded(platform="linux", files=LAPTOP)).read())
    values = {name: (reading.value, reading.value_text) for name, reading in found.items()}
    expected = {
        "thermal_level": (None, None),
        "thermal_zone_c": (71.5, "x86_pkg_temp"),
        "power_source": (None, "battery"),
        "power_mode": (None, "powersave"),
        "cpu_mhz": (2000.0, None),
        "cpu_mhz_max": (4000.0, None),
        "swap_used_bytes": (500 * 1024.0, None),
    }
    assert {name: values[name] for name in expected} == expected
    assert (
        found["thermal_level"].reason == "Linux states temperatures (thermal_zone_c), not a level of thermal pressure"
    )


def test_mains_goes_before_a_battery_and_a_profile_before_a_governor() -> None:
    files = LAPTOP | {
        "/sys/class/power_supply/AC/online": "1",
        "/sys/firmware/acpi/platform_profile": "performance\n",
    }
    found = _by_field(MachineReader(Recorded(platform="linux", files=files)).read())
    assert (found["power_source"].value_text, found["power_mode"].value_text) == ("mains", "performance")


def test_stalls_are_the_growth_since_the_last_reading() -> None:
    linux = Recorded(platform="linux", files=LAPTOP)
    clock = iter([0.0, 0.0, 4.0, 4.0])
    reader = MachineReader(linux, clock=lambda: next(clock))
    first = _by_field(reader.read())
    assert [first[f"stalled_{name}_us"].reason for name in ("cpu", "memory", "io")] == [FIRST] * 3
    linux.files = {**LAPTOP, "/proc/pressure/cpu": "some avg10=0.00 total=3500\nfull total=9"}
    linux.files |= {"/proc/stat": f"cpu  10 20 30 40 50 60 70 {800 + 2 * os.sysconf('SC_CLK_TCK')} 90 100"}
    second = _by_field(reader.read())
    assert [second[f"stalled_{name}_us"].value for name in ("cpu", "memory", "io")] == [2500.0, 0.0, 0.0]
    assert second["cpu_cores_stolen"].value == pytest.approx(0.5)


def test_a_counter_that_cannot_be_read_any_more_gives_the_reason() -> None:
    linux = Recorded(platform="linux", files=LAPTOP)
    reader = MachineReader(linux)
    reader.read()
    linux.files = {path: text for path, text in LAPTOP.items() if path != "/proc/pressure/io"}
    assert _by_field(reader.read())["stalled_io_us"].reason == "/proc/pressure/io does not exist"


def test_a_virtual_machine_gives_reasons_and_no_zeros() -> None:
    found = _by_field(MachineReader(Recorded(platform="linux")).read())
    for name in ("thermal_level", "thermal_zone_c", "power_source", "power_mode", "cpu_mhz", "swap_used_bytes"):
        assert (found[name].value, found[name].value_text) == (None, None), name
        assert found[name].reason, name


# ---- this machine ----


def test_this_machine_is_read_with_values_or_reasons() -> None:
    readings = read_machine()
    assert len(readings) > 10
    for reading in readings:
        said = (reading.value is not None, reading.value_text is not None, reading.reason is not None)
        assert any(said), reading
        assert said[2] != (said[0] or said[1]), reading
        assert reading.source, reading


def test_the_fields_that_the_tables_name_are_there() -> None:
    assert {"thermal_level", "power_source"} <= {reading.field for reading in read_machine()}


@pytest.mark.skipif(sys.platform != "linux", reason="on a Mac some fields are told by programs only")
def test_a_full_reading_starts_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken between two trials: a program started for each field would warm the machine and cost the round."""

    def started(*command: object, **_: object) -> NoReturn:
        raise AssertionError(f"starts {command}")

    monkeypatch.setattr(os, "posix_spawn", started)
    monkeypatch.setattr(subprocess, "Popen", started)
    assert len(MachineReader().read()) > 10


def test_a_reading_reports_its_own_cost_in_milliseconds() -> None:
    times = iter([5.0, 5.25])
    (cost,) = (each for each in MachineReader(only=(), clock=lambda: next(times)).read() if each.field == "read_ms")
    assert cost.value == 250.0


def test_the_work_of_our_own_processes_is_not_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = iter([psutil_times(user=90.0, system=10.0), psutil_times(user=95.0, system=11.0)])
    ours = iter([{"1": 10.0, "2": 5.0}, {"1": 13.0, "3": 1.0}])  # one ended, one is new
    reaped = iter([20.0, 25.5])  # of the one that ended half a second was not seen
    monkeypatch.setattr("workers.machine.telemetry.psutil.cpu_times", lambda: next(busy))
    monkeypatch.setattr("workers.machine.telemetry.own_cpu_s", lambda root_pid: next(ours))
    monkeypatch.setattr("workers.machine.telemetry.reaped_cpu_s", lambda root_pid: next(reaped))
    clock = iter([0.0, 0.0, 2.0, 2.0])
    reader = MachineReader(Recorded(platform="linux"), clock=lambda: next(clock))
    reader.read()
    assert _by_field(reader.read())["cpu_cores_others"].value == pytest.approx((6 - 3 - 1 - 0.5) / 2)


def spent(monkeypatch: pytest.MonkeyPatch, *looks: tuple[float, dict[str, float]]) -> list[float]:
    """Return the growth of our CPU seconds from reading to reading, given those of ended children and living pids."""
    reaped, alive = iter([look[0] for look in looks]), iter([look[1] for look in looks])
    monkeypatch.setattr("workers.machine.telemetry.reaped_cpu_s", lambda root_pid: next(reaped))
    monkeypatch.setattr("workers.machine.telemetry.own_cpu_s", lambda root_pid: next(alive))
    ours = OwnCpu(1)
    totals = [ours.total_s() for _ in looks]
    return [after - before for before, after in pairwise(totals)]


@pytest.mark.parametrize(
    ("looks", "grown"),
    [
        # short programs that no look has seen
        ([(5.0, {"1": 10.0}), (5.5, {"1": 11.0})], [1.5]),
        # a worker of 100 s ends after one more second, and a program beside it
        ([(0.0, {"1": 1.0, "2": 100.0}), (101.25, {"1": 1.0})], [1.25]),
        # a worker that is dead for a while before it is waited for
        ([(0.0, {"1": 1.0, "2": 100.0}), (0.0, {"1": 1.0}), (100.5, {"1": 1.0})], [0.0, 0.5]),
        # a server of 50 s is waited for by its worker, which goes on, spends 2 s more, and ends
        (
            [
                (0.0, {"1": 1.0, "2": 7.0, "3": 50.0}),
                (0.0, {"1": 1.0, "2": 8.0}),
                (59.5, {"1": 1.0}),
            ],
            [1.0, 1.5],
        ),
        # a process that left our tree for good: programs count as others' until its seconds are used up
        ([(0.0, {"1": 1.0, "3": 2.0}), (0.5, {"1": 1.0}), (3.0, {"1": 1.0})], [0.0, 1.0]),
        # a pid that is another process's by now
        ([(0.0, {"1": 1.0, "2": 100.0}), (100.0, {"1": 1.0, "2": 0.25})], [0.25]),
    ],
)
def test_what_ended_is_ours_and_counts_once(
    monkeypatch: pytest.MonkeyPatch, looks: list[tuple[float, dict[str, float]]], grown: list[float]
) -> None:
    assert spent(monkeypatch, *looks) == pytest.approx(grown)


def test_where_the_children_s_time_cannot_be_read_they_count_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(root_pid: int) -> float:
        raise Unreadable("no such process")

    monkeypatch.setattr("workers.machine.telemetry.reaped_cpu_s", unreadable)
    alive = iter([{"1": 1.0}, {"1": 3.0}])
    monkeypatch.setattr("workers.machine.telemetry.own_cpu_s", lambda root_pid: next(alive))
    ours = OwnCpu(1)
    before_s = ours.total_s()
    assert ours.total_s() - before_s == 2.0


BURN = "import time\nwhile time.process_time() < {:g}: pass\n"
WORKER = (
    BURN + "import subprocess, sys\nprint('seen', flush=True)\ninput()\n"
    "subprocess.run([sys.executable, '-c', {!r}], check=True)\nwhile time.process_time() < {:g}: pass\n"
)


def test_real_programs_and_a_real_worker_that_ends_are_ours_and_count_once() -> None:
    def children_s() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    def spent_s() -> float:
        """Counted otherwise: this process, and its children, whose time is whole once all have been waited for."""
        return own_cpu_s(os.getpid())[str(os.getpid())] + children_s()

    ours = OwnCpu(os.getpid())
    total_s, true_s = ours.total_s(), spent_s()
    LocalSystem().run(sys.executable, "-c", BURN.format(0.4))
    assert ours.total_s() - total_s == pytest.approx(spent_s() - true_s, abs=0.1)
    assert spent_s() - true_s > 0.4
    code = WORKER.format(0.5, BURN.format(0.3), 0.8)
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        assert ours.total_s() - total_s > 0.4 + 0.5 - 0.1  # seen while it lives
        worker.communicate(b"\n")
    assert ours.total_s() - total_s == pytest.approx(spent_s() - true_s, abs=0.1)
    assert spent_s() - true_s > 0.4 + 0.8 + 0.3


def test_the_children_of_another_process_are_reported_too() -> None:
    """The sampler is a child of the run, whose readings start programs."""
    code = (
        "import resource, subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {BURN.format(0.3)!r}], check=True)\n"
        "spent = resource.getrusage(resource.RUSAGE_CHILDREN)\nprint(spent.ru_utime + spent.ru_stime, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        told_s = float(run.stdout.readline())
        assert told_s > 0.3
        assert reaped_cpu_s(run.pid) == pytest.approx(told_s, abs=0.03)
        run.communicate(b"\n")
    with pytest.raises(Unreadable, match=str(run.pid)):
        reaped_cpu_s(run.pid)


def psutil_times(*, user: float, system: float) -> SimpleNamespace:
    """As psutil gives them, on a platform without interrupt times."""
    return SimpleNamespace(user=user, nice=0.0, system=system, idle=1e6)


def test_the_work_of_this_process_is_seen_as_its_own() -> None:
    before = own_cpu_s(os.getpid())
    burned_until = time.process_time() + 0.3
    while time.process_time() < burned_until:
        pass
    me = str(os.getpid())
    assert own_cpu_s(os.getpid())[me] - before[me] == pytest.approx(0.3, abs=0.1)


def test_a_missing_program_and_a_failing_one_give_their_reasons() -> None:
    with pytest.raises(Unreadable, match="no-such-program is not installed"):
        LocalSystem().run("no-such-program")
    with pytest.raises(Unreadable, match=r"sh failed with status 3: broken"):
        LocalSystem().run("sh", "-c", "echo broken >&2; exit 3")


def test_a_program_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.machine.system.COMMAND_TIMEOUT_S", 0.1)
    with pytest.raises(Unreadable, match="did not answer within"):
        LocalSystem().run("sleep", "5")


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has both")
def test_calls_that_only_a_mac_has_say_so() -> None:
    with pytest.raises(Unreadable, match="only macOS"):
        LocalSystem().notify_state(THERMAL_KEY)
    with pytest.raises(Unreadable, match="only macOS"):
        LocalSystem().footprint_bytes(os.getpid())
