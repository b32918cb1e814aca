"""Readings from optional tools and packages: used if installed, never required.

macOS: the command `macmon` (GPU clock and use, temperatures, watts, fans), the package zeus-apple-silicon (energy).
Linux: the package nvidia-ml-py (NVIDIA's clocks, use, temperature, throttle reasons, energy).
"""

import functools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from workers.machine.system import CounterReader, FieldReader, Found, System, Unreadable

MACMON = ("macmon", "pipe", "-s", "1", "-i", "100")
# Of NVML's mask of clock event reasons, those that make a figure incomparable.
THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


# ---- macOS ----


def parse_macmon(text: str, *keys: str) -> float:
    """The first of these figures in a line of `macmon pipe`; a key is a path such as `temp.gpu_temp_avg`.

    Versions up to 0.7 pair the GPU's clock and use as `gpu_usage`, whose parts are `gpu_usage.0` and `gpu_usage.1`.
    """
    lines = text.strip().splitlines()
    try:
        body = json.loads(lines[-1]) if lines else None
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Unreadable("macmon printed invalid JSON")
    for key in keys:
        found = _at(body, key.split("."))
        if isinstance(found, int | float) and not isinstance(found, bool):
            return float(found)
    raise Unreadable(f"macmon names no {keys[0]}")


def _at(body: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(body, list) and part.isdecimal() and int(part) < len(body):
            body = body[int(part)]
        elif isinstance(body, dict):
            body = body.get(part)
        else:
            return None
    return body


def _macmon(*keys: str, zero: str | None = None) -> FieldReader:
    """Return a figure of macmon's; `zero` is the reason to reject a figure of 0 or less (None: it is accepted)."""

    def field(system: System) -> float:
        found = parse_macmon(system.run(*MACMON), *keys)
        if zero is not None and found <= 0:
            raise Unreadable(f"macmon reports {found:g}: {zero}")
        return found

    return field


def read_energy_mj(_system: System) -> dict[str, float]:
    """Millijoules by part of the chip since the first reading."""
    with _reasons_of("zeus-apple-silicon"):
        return _zeus().totals_mj()


class _Energy:
    """Windows of zeus-apple-silicon, added up: each reading ends one and begins the next."""

    def __init__(self, monitor: Any) -> None:
        self._monitor = monitor
        self._totals: dict[str, float] = {}
        monitor.begin_window("interlace")

    def totals_mj(self) -> dict[str, float]:
        try:
            found = self._monitor.end_window("interlace")
        finally:  # after a failure as well: the next reading may work
            self._monitor.begin_window("interlace")
        for part in ("cpu_total_mj", "gpu_mj", "ane_mj", "dram_mj"):
            value = getattr(found, part, None)
            if value is not None:
                self._totals[part] = self._totals.get(part, 0.0) + float(value)
        if not self._totals:
            raise Unreadable("zeus-apple-silicon states no energy for this chip")
        return dict(self._totals)


@functools.cache
def _zeus() -> _Energy:
    return _Energy(_module("zeus_apple_silicon", "zeus-apple-silicon").AppleEnergyMonitor())


# ---- Linux with NVIDIA ----


def _nvml(read: Callable[[Any, Any], Found]) -> FieldReader:
    """A reading of the first device."""

    def field(_system: System) -> Found:
        nvml = _module("pynvml", "nvidia-ml-py")
        with _reasons_of("NVML"):
            return read(nvml, _device())

    return field


@functools.cache
def _device() -> Any:
    nvml = _module("pynvml", "nvidia-ml-py")
    nvml.nvmlInit()
    return nvml.nvmlDeviceGetHandleByIndex(0)


def throttle(mask: int) -> tuple[float, str]:
    """The mask, and in words why the clocks are held down."""
    return float(mask), ", ".join(words for bit, words in THROTTLE_REASONS.items() if mask & bit) or "none"


def read_nvidia_energy_mj(system: System) -> dict[str, float]:
    """Millijoules since the driver was loaded."""
    found = _nvml(lambda nvml, device: float(nvml.nvmlDeviceGetTotalEnergyConsumption(device)))(system)
    if not isinstance(found, float):
        raise Unreadable("NVML states no energy")
    return {"": found}


# ---- both ----


def _module(name: str, distribution: str) -> Any:
    with _reasons_of(distribution):
        if name not in sys.modules and not _is_installed(name, tuple(sys.path)):
            raise Unreadable(f"{distribution} is not installed")
        return import_module(name)


@functools.cache
def _is_installed(name: str, _path: tuple[str, ...]) -> bool:
    """Looking for a package that is not there takes longer than most readings, so each path is searched once."""
    return find_spec(name) is not None


@contextmanager
def _reasons_of(package: str) -> Iterator[None]:
    """Turn any error of an optional package into the reason for a missing reading; it never ends a run."""
    try:
        yield
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"{package}: {error}" if str(error) else f"{package}: {type(error).__name__}") from error


_IDLE_GPU = "the GPU idled, or its clock is unknown"
_NO_SENSOR = "no sensor of it is valid"

MACOS_FIELDS: dict[str, tuple[str, FieldReader]] = {
    "gpu_mhz": ("macmon", _macmon("gpu_freq_mhz", "gpu_usage.0", zero=_IDLE_GPU)),
    "gpu_active_ratio": ("macmon", _macmon("gpu_active_ratio", "gpu_usage.1")),
    "cpu_c": ("macmon", _macmon("temp.cpu_temp_avg", zero=_NO_SENSOR)),
    "gpu_c": ("macmon", _macmon("temp.gpu_temp_avg", zero=_NO_SENSOR)),
    "power_w": ("macmon", _macmon("all_power")),  # processor, GPU and neural engine: without memory and the rest
    "system_w": ("macmon", _macmon("sys_power", zero=_NO_SENSOR)),
    "fan_rpm": ("macmon", _macmon("fans.0.rpm")),
}
MACOS_GROWTHS: dict[str, tuple[str, CounterReader]] = {"energy_mj": ("zeus-apple-silicon", read_energy_mj)}
LINUX_FIELDS: dict[str, tuple[str, FieldReader]] = {
    "gpu_mhz": ("NVML", _nvml(lambda nvml, device: float(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)))),
    "gpu_active_ratio": (
        "NVML",
        _nvml(lambda nvml, device: nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100),
    ),
    "gpu_c": (
        "NVML",
        _nvml(lambda nvml, device: float(nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU))),
    ),
    "gpu_throttle": (
        "NVML",
        _nvml(lambda nvml, device: throttle(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))),
    ),
}
LINUX_GROWTHS: dict[str, tuple[str, CounterReader]] = {"energy_mj": ("NVML", read_nvidia_energy_mj)}
