"""The doctor's findings on a terminal of 80 columns."""

from rich.console import Console
from rich.text import Text

from orchestrator.doctor import Diagnosis, leftover_lines
from orchestrator.views.terminal import table
from workers.bandwidth import published_gb_per_s
from workers.telemetry import Reading

_BYTES = "_bytes"


def print_diagnosis(found: Diagnosis, out: Console) -> None:
    """All of it, what stands in the way last."""
    _print_machine(found, out)
    _print_versions(found, out)
    _print_readings(found, out)
    _print_gate(found, out)
    lines = leftover_lines(found.leftovers) or ["no leftovers of earlier runs"]
    _section("processes", out)
    for line in lines:
        out.print(Text(line))
    out.print()
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
    rows = {
        "host": f"{host.hostname}, {host.os}, {host.os_build or _why(host.missing, 'os_build')}",
        "chip": host.chip or _why(host.missing, "chip"),
        "cores": f"{host.cpu_count or '?'} logical; GPU: {host.gpu_cores or _why(host.missing, 'gpu_cores')}",
        "memory": f"{_size(host.memory_bytes)}, of which a run may count on {_size(found.memory_budget_bytes)}",
        "bandwidth": _bandwidth(found),
        "MLX": device.get("error") or f"{device.get('device')}, Metal {'yes' if device.get('metal') else 'no'}",
        "kept awake": found.awake.tool or f"no: {found.awake.reason}",
        "database": f"{found.database}; {_size(found.disk_free_bytes)} free",
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


def _print_readings(found: Diagnosis, out: Console) -> None:
    out.print()
    shown = table("reading", "now", "source, or why it is missing and what would bring it", right=["now"])
    for reading in found.readings:
        shown.add_row(reading.field, _value(reading), _source(reading, found.remedies.get(reading.field)))
    out.print(shown)


def _print_gate(found: Diagnosis, out: Console) -> None:
    out.print()
    shown = table("gate", "now", "")
    for finding in found.gate:
        state = "waits" if finding.problem else "passes unread" if finding.unreadable else "holds"
        shown.add_row(finding.name, state, finding.problem or finding.unreadable or "")
    out.print(shown)


def _bandwidth(found: Diagnosis) -> str:
    speed, source = published_gb_per_s(found.host.chip, found.host.gpu_cores)
    return f"unknown ({source})" if speed is None else f"{speed:g} GB/s ({source})"


def _value(reading: Reading) -> str:
    if reading.value is None:
        return reading.value_text or "-"
    number = _size(int(reading.value)) if reading.field.endswith(_BYTES) else f"{reading.value:,.4g}"
    return f"{number} {reading.value_text}" if reading.value_text else number


def _source(reading: Reading, remedy: str | None) -> str:
    if reading.reason is None:
        return reading.source or ""
    return reading.reason if remedy is None else f"{reading.reason} → {remedy}"


def _why(missing: dict[str, str], name: str) -> str:
    return f"unknown ({missing.get(name, 'not read')})"


def _size(size_bytes: int | None) -> str:
    return (
        "unknown"
        if size_bytes is None
        else f"{size_bytes / 1e9:.1f} GB"
        if size_bytes >= 1e8
        else f"{size_bytes / 1e6:.1f} MB"
    )
