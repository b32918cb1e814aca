"""Tools and packages that are used where they are there: their output, their absence, stand-ins for the packages."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.workers.machines import NEW, Recorded
from workers.machine import optional_tools
from workers.machine.system import Unreadable
from workers.machine.telemetry import MachineReader

# The layouts of both lines of versions, as its documentation names the fields; no Mac was at hand to record one.
OLD = '{"temp": {"cpu_temp_avg": 50.0, "gpu_temp_avg": 45.0}, "gpu_usage": [461, 0.02], "all_power": 3.5}\n'
COMMAND = "macmon pipe -s 1 -i 100"


def fields(machine: Recorded) -> dict[str, tuple[float | None, str | None]]:
    return {reading.field: (reading.value, reading.reason) for reading in MachineReader(machine).read()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            NEW,
            {
                "gpu_mhz": 1380,
                "gpu_active_ratio": 0.97,
                "cpu_c": 71.5,
                "gpu_c": 68.25,
                "power_w": 31.5,
                "system_w": 44.5,
                "fan_rpm": 2300,
            },
        ),
        (
            OLD,
            {
                "gpu_mhz": 461,
                "gpu_active_ratio": 0.02,
                "cpu_c": 50.0,
                "gpu_c": 45.0,
                "power_w": 3.5,
                "fan_rpm": None,
                "system_w": None,
            },
        ),
    ],
)
def test_both_layouts_of_macmon_are_read(text: str, expected: dict[str, float | None]) -> None:
    mac = Recorded(platform="darwin", commands={COMMAND: text})
    found = fields(mac)
    assert {name: found[name][0] for name in expected} == expected
    assert mac.ran.count(COMMAND) == 1
    assert all(found[name][1] for name, value in expected.items() if value is None)


@pytest.mark.parametrize("text", ["", "Error: no such chip", "[]", '{"gpu_freq_mhz": null}', '{"gpu_freq_mhz": true}'])
def test_what_says_nothing_is_never_zero(text: str) -> None:
    with pytest.raises(Unreadable, match="macmon"):
        optional_tools.parse_macmon(text, "gpu_freq_mhz")


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        (NEW.replace("71.5", "0.0"), "cpu_c", "macmon reports 0: no sensor of it is valid"),
        (NEW.replace("68.25", "-3.5"), "gpu_c", "macmon reports -3.5: no sensor of it is valid"),
        (NEW.replace("1380", "0"), "gpu_mhz", "macmon reports 0: the GPU idled, or its clock is unknown"),
        (OLD.replace("461", "0"), "gpu_mhz", "macmon reports 0: the GPU idled, or its clock is unknown"),
    ],
)
def test_a_zero_that_means_unknown_is_a_reason(text: str, field: str, reason: str) -> None:
    assert fields(Recorded(platform="darwin", commands={COMMAND: text}))[field] == (None, reason)


def test_a_zero_that_is_meant_stays_one() -> None:
    still = fields(Recorded(platform="darwin", commands={COMMAND: NEW.replace("2300", "0").replace("0.97", "0")}))
    assert (still["fan_rpm"], still["gpu_active_ratio"]) == ((0.0, None), (0.0, None))


def test_without_the_tools_the_reason_names_them() -> None:
    found = fields(Recorded(platform="darwin"))
    assert found["gpu_mhz"] == (None, "macmon is not installed")
    assert found["energy_mj"][0] is None
    assert fields(Recorded(platform="linux"))["gpu_mhz"] == (None, "nvidia-ml-py is not installed")


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Installs a stand-in for a package."""

    def install(name: str, **members: Any) -> None:
        module = ModuleType(name)
        for key, value in members.items():
            setattr(module, key, value)
        monkeypatch.setitem(sys.modules, name, module)

    yield install
    optional_tools._device.cache_clear()  # noqa: SLF001 - the next test has another device
    optional_tools._zeus.cache_clear()  # noqa: SLF001


class NVMLError(Exception):
    pass


def refuse(*_: object) -> int:
    raise NVMLError("Not Supported")


def test_nvidia(package: Any) -> None:
    package(
        "pynvml",
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetClockInfo=lambda device, kind: 1980,
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=93),
        nvmlDeviceGetTemperature=lambda device, kind: 64,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda device: 0x24,
        nvmlDeviceGetTotalEnergyConsumption=refuse,
    )
    found = {reading.field: reading for reading in MachineReader(Recorded(platform="linux")).read()}
    assert found["gpu_mhz"].value == 1980
    assert found["gpu_active_ratio"].value == 0.93
    assert found["gpu_c"].value == 64
    assert (found["gpu_throttle"].value, found["gpu_throttle"].value_text) == (0x24, "power cap, software thermal")
    assert found["energy_mj"].reason == "NVML: Not Supported"


def test_energy_windows_add_up(package: Any) -> None:
    class Monitor:
        def begin_window(self, name: str) -> None: ...

        def end_window(self, name: str) -> SimpleNamespace:
            return SimpleNamespace(cpu_total_mj=100, gpu_mj=400, dram_mj=None)

    package("zeus_apple_silicon", AppleEnergyMonitor=Monitor)
    reader = MachineReader(Recorded(platform="darwin"))
    reader.read()
    found = {reading.field: reading.value for reading in reader.read()}
    assert found["energy_mj"] == 500


def test_an_energy_monitor_that_cannot_be_made_is_a_reason(package: Any) -> None:
    def monitor() -> None:
        raise RuntimeError("failed to create an IOReport subscription")

    package("zeus_apple_silicon", AppleEnergyMonitor=monitor)
    found = fields(Recorded(platform="darwin"))
    assert found["energy_mj"] == (None, "zeus-apple-silicon: failed to create an IOReport subscription")


def test_a_window_that_cannot_be_ended_is_a_reason_and_the_next_one_may_be(package: Any) -> None:
    class Monitor:
        def __init__(self) -> None:
            self.windows, self.ended = 0, 0

        def begin_window(self, name: str) -> None:
            self.windows += 1

        def end_window(self, name: str) -> SimpleNamespace:
            self.windows, self.ended = self.windows - 1, self.ended + 1
            if self.windows < 0 or self.ended == 1:
                raise KeyError
            return SimpleNamespace(gpu_mj=400)

    package("zeus_apple_silicon", AppleEnergyMonitor=Monitor)
    reader = MachineReader(Recorded(platform="darwin"), only={"energy_mj"})
    read = [reader.read()[0] for _ in range(3)]
    assert [each.value for each in read] == [None, None, 400]
    assert read[0].reason == "zeus-apple-silicon: KeyError"


def test_whatever_nvidia_s_package_throws_is_a_reason(package: Any) -> None:
    def broken() -> None:
        raise OSError("libnvidia-ml.so.1: invalid ELF header")

    package("pynvml", nvmlInit=broken)  # has no NVMLError either
    found = fields(Recorded(platform="linux"))
    for field in ("gpu_mhz", "gpu_active_ratio", "gpu_c", "gpu_throttle", "energy_mj"):
        assert found[field] == (None, "NVML: libnvidia-ml.so.1: invalid ELF header")


def test_a_package_that_breaks_while_it_is_imported_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("raise RuntimeError('wrong chip')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert fields(Recorded(platform="linux"))["gpu_mhz"] == (None, "nvidia-ml-py: wrong chip")
