"""The doctor's findings in about five lines, the verdict first. What is not well has a line of its own each."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from orchestrator.doctor import Diagnosis, leftover_lines, unfinished_lines
from orchestrator.views.doctor_view import machine_warnings, size_words
from workers.machine.telemetry import Reading

# Names for people; the columns of the database, with reasons and remedies, stand in `doctor --all`.
_GROUPS = {
    "thermal": "temperature",
    "cpu_c": "temperature",
    "gpu_c": "temperature",
    "power": "power",
    "power_w": "energy",
    "system_w": "energy",
    "energy": "energy",
    "cpu_mhz": "CPU clock",
    "cpu_speed": "CPU clock",
    "gpu": "GPU",
    "fan": "fans",
    "display": "display",
    "lid": "lid",
}
_UNITS = ("_bytes", "_us", "_ms", "_mj", "_mhz", "_c", "_w", "_rpm", "_percent")
_RUNS = ("mlx", "mlx-lm")


def print_summary(found: Diagnosis, out: Console) -> None:
    """Print the verdict, the machine, what runs on it, what it records, and where the rest is."""
    if not found.obstacles:
        out.print(Text("✓ nothing stands in the way of a run"))
    for obstacle in found.obstacles:
        out.print(Text(f"✗ a run would be refused: {obstacle}"))
    for line in _warnings(found):
        out.print(Text(line))
    for head, words in _facts(found):
        out.print(Text(f"{head:9} {words}"))
    out.print(Text("all readings, with reasons and remedies: interlace doctor --all"))


def _warnings(found: Diagnosis) -> Iterator[str]:
    yield from (f"! {note}" for note in found.notes)
    yield from (f"! a trial would wait: {each.problem}" for each in found.gate if each.problem)
    yield from machine_warnings(found)
    yield from (f"! {line}" for line in (*leftover_lines(found.leftovers), *unfinished_lines(found.unfinished)))


def _facts(found: Diagnosis) -> Iterator[tuple[str, str]]:
    host, device = found.host, found.device
    counts = f"{size_words(found.memory_budget_bytes)} of {size_words(host.memory_bytes)} for a run"
    yield "machine", f"{host.chip or host.hostname}, {host.os}, {counts}"
    where = "MLX fails" if device.get("error") else "on the GPU" if device.get("metal") else "on the CPU"
    versions = [f"{name} {found.versions.get(name) or 'missing'}" for name in _RUNS]
    yield "software", f"Python {found.interpreter.version}, {', '.join(versions)} ({where})"
    read = [each for each in found.readings if each.reason is None]
    missing = _names([each for each in found.readings if each.reason is not None])
    rest = f"; missing: {', '.join(missing)}" if missing else ""
    yield "records", f"{len(read)} {'reading' if len(read) == 1 else 'readings'}{rest}"


def _names(readings: Sequence[Reading]) -> list[str]:
    """Name the subjects of the fields in words, each once."""
    return list(dict.fromkeys(_name(each.field) for each in readings))


def _name(field: str) -> str:
    known = [start for start in _GROUPS if field.startswith(start)]
    if known:
        return _GROUPS[max(known, key=len)]
    unit = next((unit for unit in _UNITS if field.endswith(unit)), "")
    return field.removesuffix(unit).replace("_", " ")
