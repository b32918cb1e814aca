"""Which trials the audit leaves out by what the machine did meanwhile: rules fixed in the plan before any result. Pure.

No rule looks at a trial's speed, tokens or text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.plan import Gate
from orchestrator.running.gate import HEAT, POWER, Passage
from workers.machine.telemetry import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Under what a trial ran."""

    passage: Passage
    wall_s: float
    monotonic_s: float
    before: Sequence[Reading]
    during: Sequence[Reading]
    after: Sequence[Reading]


def excluded_reason(gate: Gate, found: Circumstances) -> str | None:
    """The first rule that leaves the trial out, as `code: words`; None: it counts."""
    return next(_reasons(gate, found), None)


def _reasons(gate: Gate, found: Circumstances) -> Iterator[str]:
    if found.passage.skipped:
        yield f"skipped: {found.passage.hot_start}"
    if found.passage.hot_start is not None and _counts_as_hot(gate, found.passage):
        yield f"hot_start: {found.passage.hot_start}"
    gap_s = found.wall_s - found.monotonic_s
    if _above(abs(gap_s), gate.exclude_clock_gap_above_s):
        yield f"clock: wall ran {gap_s:+.1f} s against monotonic"
    level = hottest(found)
    if _above(level, gate.exclude_thermal_level_above):
        yield f"thermal: level {level:g} while it ran, above {gate.exclude_thermal_level_above}"
    if gate.exclude_off_mains and gate.power_source == "mains":
        sources = [_reading(readings, "power_source") for readings in (found.before, found.after)]
        off = next((each.value_text for each in sources if each and each.value_text not in (None, "mains")), None)
        if off is not None:
            yield f"power: ran on {off}"
    cores = _during_or_after(found, "cpu_cores_others")
    if _above(cores, gate.exclude_cpu_cores_others_above):
        yield f"cpu_others: others used {cores:.2f} cores, above {gate.exclude_cpu_cores_others_above:g}"
    spent = _during_or_after(found, "gpu_ms_per_s_others")
    if _above(spent, gate.exclude_gpu_ms_per_s_others_above):
        yield f"gpu_others: others used {spent:.0f} ms/s of the GPU, above {gate.exclude_gpu_ms_per_s_others_above:g}"
    growth = swap_growth(found)
    if _above(growth, gate.exclude_swap_growth_above_bytes):
        yield f"swap: grew by {growth:.0f} bytes while it ran"


def hottest(found: Circumstances) -> float | None:
    """The highest thermal level before, during and after; None: the machine tells none."""
    levels = [
        _value(found.before, "thermal_level"),
        _value(found.during, "thermal_level_max"),
        _value(found.after, "thermal_level"),
    ]
    return max((level for level in levels if level is not None), default=None)


def swap_growth(found: Circumstances) -> float | None:
    """Bytes of swap in use after less those before."""
    before, after = (_value(readings, "swap_used_bytes") for readings in (found.before, found.after))
    return None if before is None or after is None else after - before


def _counts_as_hot(gate: Gate, passage: Passage) -> bool:
    match gate.exclude_hot_start:
        case "all":
            return True
        case "heat":
            return any(kind in (HEAT, POWER) for kind in passage.hot_kinds)
    return False


def _during_or_after(found: Circumstances, field: str) -> float | None:
    """The sampler's mean; without one the rate of the reading after the trial, which covers the time since before."""
    mean = _value(found.during, f"{field}_mean")
    return _value(found.after, field) if mean is None else mean


def _above(value: float | None, limit: float | None) -> bool:
    """What cannot be read, or has no limit, excludes nothing."""
    return value is not None and limit is not None and value > limit


def _reading(readings: Sequence[Reading], field: str) -> Reading | None:
    return next((reading for reading in readings if reading.field == field), None)


def _value(readings: Sequence[Reading], field: str) -> float | None:
    reading = _reading(readings, field)
    return None if reading is None else reading.value
