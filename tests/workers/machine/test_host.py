"""The machine's identity, on a recorded Mac, a made-up Linux machine, and this one."""

import psutil
import pytest

from tests.workers.machines import Recorded, recorded
from workers.machine.host import (
    distribution_name,
    parse_cpu_model,
    parse_performance_cores,
    read_boot_id,
    read_host,
)
from workers.machine.system import Unreadable

MAC = {
    "sw_vers -productVersion": "15.5\n",
    "sw_vers -buildVersion": "24F74\n",
    "sysctl -n machdep.cpu.brand_string": recorded("sysctl_brand.public.txt"),
    "sysctl -n hw.logicalcpu": "16\n",
    "sysctl -n hw.memsize": "51539607552\n",
    "sysctl hw.nperflevels hw.perflevel0": recorded("sysctl_perflevel.public.txt"),
    "sysctl -n kern.bootsessionuuid": "B7A3A1F0-0000-4000-8000-000000000001\n",
    "ioreg -r -d 1 -w 0 -c IOPlatformExpertDevice": '      "IOPlatformUUID" = "01234567-89AB-4CDE-8F01-23456789ABCD"\n',
    "ioreg -r -d 1 -w 0 -c IOAccelerator": '      "gpu-core-count" = 40\n',
}
LINUX = {
    "/proc/sys/kernel/osrelease": "6.1.0-18-arm64",
    "/etc/os-release": 'NAME="Debian GNU/Linux"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "/proc/cpuinfo": "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n",
    "/proc/meminfo": "MemTotal:       32000000 kB\n",
    "/proc/sys/kernel/random/boot_id": "838e0cd4-23e3-4320-9c7a-932f688a859c\n",
}


def test_a_mac() -> None:
    host = read_host(Recorded(platform="darwin", commands=MAC))
    assert (host.os, host.os_build, host.chip) == ("macOS 15.5", "24F74", "Apple M4")
    assert (host.cpu_count, host.performance_cores, host.gpu_cores) == (16, 12, 40)
    assert (host.memory_bytes, host.boot_id) == (48 * 2**30, "B7A3A1F0-0000-4000-8000-000000000001")
    assert host.hardware_uuid == "01234567-89AB-4CDE-8F01-23456789ABCD"
    assert host.missing == {}


def test_a_mac_without_a_boot_session_has_none() -> None:
    """The boot time is none: it moves when somebody sets the clock."""
    commands = {"sysctl -n kern.boottime": "{ sec = 1767225600, usec = 123456 } Thu Jan  1 00:00:00 2026\n"}
    assert read_boot_id(Recorded(platform="darwin", commands=commands)) is None


def test_a_linux_machine() -> None:
    host = read_host(Recorded(platform="linux", files=LINUX))
    assert (host.os, host.os_build) == ("Linux", "6.1.0-18-arm64, Debian GNU/Linux 12 (bookworm)")
    assert (host.chip, host.memory_bytes) == ("Some CPU @ 3 GHz", 32_000_000 * 1024)
    assert host.boot_id == "838e0cd4-23e3-4320-9c7a-932f688a859c"
    assert set(host.missing) == {"performance_cores", "gpu_cores", "hardware_uuid"}


@pytest.mark.parametrize("platform", ["darwin", "linux"])
def test_what_cannot_be_read_is_none_with_a_reason(platform: str) -> None:
    host = read_host(Recorded(platform=platform))
    unknown = {"os_build", "chip", "performance_cores", "gpu_cores", "memory_bytes", "boot_id", "hardware_uuid"}
    assert {name for name in unknown if getattr(host, name) is None} == unknown
    assert unknown <= set(host.missing)
    assert all(host.missing.values())
    assert host.os
    assert host.hostname


def test_words_for_a_number_are_none_with_a_reason() -> None:
    host = read_host(Recorded(platform="darwin", commands=MAC | {"sysctl -n hw.memsize": "a lot"}))
    assert (host.memory_bytes, host.missing) == (None, {"memory_bytes": "memory_bytes: 'a lot' is not a number"})


def test_the_fastest_cores_count_whatever_their_name() -> None:
    text = recorded("sysctl_perflevel.public.txt")
    assert parse_performance_cores(text) == "12"
    assert parse_performance_cores(text.replace("Performance", "Super")) == "12"
    assert parse_performance_cores(recorded("sysctl_perflevels_8gb.public.txt")) == "4"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [("Performance", "Efficiency", "fastest cores Efficiency"), ("physicalcpu", "logicalcpu", "no cores of level 0")],
)
def test_slow_or_unnamed_cores_are_not_taken_for_the_fastest(old: str, new: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse_performance_cores(recorded("sysctl_perflevel.public.txt").replace(old, new))


def test_an_arm_board_names_itself() -> None:
    assert parse_cpu_model("processor : 0\nBogoMIPS : 108\n\nModel\t\t: Raspberry Pi 5\n") == "Raspberry Pi 5"
    with pytest.raises(Unreadable):
        parse_cpu_model("processor : 0\nBogoMIPS : 108\n")


def test_a_distribution_without_quotes() -> None:
    assert distribution_name("PRETTY_NAME=Alpine\n") == "Alpine"


def test_this_machine() -> None:
    host = read_host()
    assert host.memory_bytes == psutil.virtual_memory().total
    assert host.cpu_count == psutil.cpu_count()
    for name in ("os_build", "chip", "performance_cores", "gpu_cores", "boot_id"):
        assert (getattr(host, name) is None) == (name in host.missing), name
