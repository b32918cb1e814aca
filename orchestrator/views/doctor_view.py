"""The doctor's findings on a terminal of 80 columns."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.doctor import Diagnosis, leftover_lines, unfinished_lines
from orchestrator.views.terminal import table
from workers.environment import METAL_BUILD
from workers.interpreter import Interpreter, unhide
from workers.machine.bandwidth import published_gb_per_s
from workers.machine.sleep_inhibitor import Awake
from workers.machine.telemetry import Reading

_FIELDS_WIDTH = 24
_NEURAL_KERNELS = 26  # the first macOS for which mlx-metal has a build with them
# The priorities that `ps` prints for a normal and a background program; macOS only, because Linux prints a niceness.
_NORMAL_PRIORITY, _BACKGROUND_PRIORITY = 31, 4
_UNITS = {"_mhz": " MHz", "_c": " °C", "_w": " W", "_rpm": " rpm", "_ms": " ms", "_mj": " mJ", "_percent": " %"}


def print_diagnosis(found: Diagnosis, out: Console) -> None:
    """Print the whole diagnosis, obstacles last."""
    _print_machine(found, out)
    _print_versions(found, out)
    _print_readings(found, out)
    _print_gate(found, out)
    lines = leftover_lines(found.leftovers) or ["no leftovers of earlier runs"]
    _section("processes", out)
    for line in (*lines, *unfinished_lines(found.unfinished)):
        out.print(Text(line))
    out.print()
    for note in found.notes:
        out.print(Text(f"! {note}"))
    if found.obstacles:
        for obstacle in found.obstacles:
            out.print(Text(f"✗ a run would be refused: {obstacle}"))
    else:
        out.print(Text("✓ nothing stands in the way of a run"))


def _section(name: str, out: Console) -> None:
    out.print()
    out.print(Text(name, style="bold"))


def _print_machine(found: Diagnosis, out: Console) -> None:
    host, device = found.host, found.device
    budget = size_words(found.memory_budget_bytes)
    rows = {
        "host": f"{host.hostname}, {host.os}, {host.os_build or _why(host.missing, 'os_build')}",
        "chip": host.chip or _why(host.missing, "chip"),
        "cores": f"{host.cpu_count or '?'} logical; GPU: {host.gpu_cores or _why(host.missing, 'gpu_cores')}",
        "Python": _python(found.interpreter),
        "memory": f"{size_words(host.memory_bytes)}, of which a run may count on {budget}",
        "bandwidth": _bandwidth(found),
        "MLX": device.get("error") or f"{device.get('device')}, Metal {'yes' if device.get('metal') else 'no'}",
        "kept awake": found.awake.tool or f"no: {_joined(found.awake.reason or '', _awake_remedy(found.awake))}",
        "database": f"{found.database}; {size_words(found.disk_free_bytes)} free",
    }
    shown = table("machine", "")
    for name, words in rows.items():
        shown.add_row(name, str(words))
    out.print(shown)


def _print_versions(found: Diagnosis, out: Console) -> None:
    _section("versions", out)
    there = [f"{name} {version}" for name, version in found.versions.items() if version is not None]
    missing = [name for name, version in found.versions.items() if version is None]
    out.print(Text(", ".join(there)))
    if missing:
        out.print(Text(f"not installed: {', '.join(missing)}"))
    for line in _version_warnings(found):
        out.print(Text(line))


def machine_warnings(found: Diagnosis) -> Iterator[str]:
    """List what makes a run slower or a version unusable, a line each, with its remedy."""
    yield from _version_warnings(found)
    if low := _low_priority(found.readings):
        yield low


def _version_warnings(found: Diagnosis) -> Iterator[str]:
    for hidden in found.interpreter.hidden_pth:
        yield f"! {Path(hidden).name} is hidden, so Python skips it → {unhide(hidden)}"
    if old := _old_build(found.host.os, found.versions.get(METAL_BUILD)):
        yield old


def _python(found: Interpreter) -> str:
    under = " under Rosetta" if found.translated else ""
    return f"{found.version} for {found.machine}{under}, built by {found.origin}"


def _old_build(os: str, build: str | None) -> str | None:
    """Report a build of MLX's Metal kernels for an older macOS, if this macOS has kernels of its own."""
    here, made_for = re.match(r"macOS (\d+)", os), re.search(r"macosx_(\d+)_", build or "")
    if here is None or made_for is None or int(here[1]) < _NEURAL_KERNELS or int(made_for[1]) >= _NEURAL_KERNELS:
        return None
    return (
        f"! mlx-metal was built for macOS {made_for[1]}: it lacks the kernels for the M5's neural accelerators"
        " → install it with a Python that knows macOS 26, such as uv's newest, Homebrew's or python.org's"
    )


def _print_readings(found: Diagnosis, out: Console) -> None:
    """Print the readings, then the unreadable fields, grouped by reason."""
    out.print()
    shown = table("reading", "now", "source", right=["now"])
    missing: dict[str, list[str]] = {}
    for reading in found.readings:
        if reading.reason is None:
            shown.add_row(reading.field, _value(reading), reading.source or "")
        else:
            words = _joined(reading.reason, found.remedies.get(reading.field))
            missing.setdefault(words, []).append(reading.field)
    out.print(shown)
    if low := _low_priority(found.readings):
        out.print()
        out.print(Text(low))
    if not missing:
        return
    out.print()
    absent = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    absent.add_column("not readable here", max_width=_FIELDS_WIDTH)
    absent.add_column("reason → remedy", overflow="fold")
    for words, fields in missing.items():
        absent.add_row(", ".join(fields), words)
    out.print(absent)


def _print_gate(found: Diagnosis, out: Console) -> None:
    """Print the conditions that would delay a trial now. An unreadable condition passes, with the reason."""
    out.print()
    shown = table("gate", "now", "")
    for finding in found.gate:
        if finding.unreadable is None:
            shown.add_row(finding.name, "waits" if finding.problem else "holds", finding.problem or "")
        else:
            shown.add_row(finding.name, "passes", f"not readable: {finding.unreadable}")
    out.print(shown)


def _low_priority(readings: Sequence[Reading]) -> str | None:
    """Describe the effect of a low priority, and the remedy."""
    value = next((each.value for each in readings if (each.field, each.source) == ("priority", "ps")), None)
    if value is None or value >= _NORMAL_PRIORITY:
        return None
    what = "runs this in the background, up to 8 times slower" if value <= _BACKGROUND_PRIORITY else "throttles this"
    return (
        f"! priority {value:g} instead of {_NORMAL_PRIORITY}: macOS {what}"
        " → start it from a terminal, without `nice` or `taskpolicy`; a launchd job needs ProcessType=Interactive"
    )


def _awake_remedy(awake: Awake) -> str | None:
    reason = awake.reason or ""
    if reason.startswith("systemd-inhibit cannot be started"):
        return "install systemd, which has it; in a container: keep its host awake"
    if reason.startswith("systemd-inhibit gave up"):
        return "it needs a running systemd and its bus, which a container lacks: keep the host awake"
    if reason.startswith("caffeinate"):
        return "it is macOS's own, in /usr/bin: put that on PATH"
    return "turn sleeping off in the system's settings"


def _bandwidth(found: Diagnosis) -> str:
    speed, source = published_gb_per_s(found.host.chip, found.host.gpu_cores)
    return f"unknown ({source})" if speed is None else f"{speed:g} GB/s ({source})"


def _value(reading: Reading) -> str:
    if reading.value is None:
        return reading.value_text or "-"
    number = _number(reading.field, reading.value)
    return f"{number} {reading.value_text}" if reading.value_text else number


def _number(field: str, value: float) -> str:
    """Format a number with the unit in the field's name."""
    if field.endswith("_bytes"):
        return size_words(int(value))
    if field.endswith("_us"):
        return f"{value / 1000:,.1f} ms"
    unit = next((unit for ending, unit in _UNITS.items() if field.endswith(ending)), "")
    return f"{value:,.4g}{unit}"


def _joined(reason: str, remedy: str | None) -> str:
    return reason if remedy is None else f"{reason} → {remedy}"


def _why(missing: dict[str, str], name: str) -> str:
    return f"unknown ({missing.get(name, 'not read')})"


def size_words(size_bytes: int | None) -> str:
    """Format a size for people."""
    return (
        "unknown"
        if size_bytes is None
        else f"{size_bytes / 1e9:.1f} GB"
        if size_bytes >= 1e8
        else f"{size_bytes / 1e6:.1f} MB"
    )
