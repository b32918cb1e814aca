"""Rules that leave a trial out: by what the machine did, with the plan's thresholds, and never by the trial's speed."""

from dataclasses import replace

import pytest

from orchestrator.plan import Gate
from orchestrator.running.gate import OPEN, Passage
from orchestrator.running.trial import Circumstances, excluded_reason
from workers.machine.telemetry import Reading

QUIET = Circumstances(passage=OPEN, wall_s=10.0, monotonic_s=10.0, before=(), during=(), after=())
HOT = Passage(hot_start="thermal level 2", hot_kinds=("heat",))
LEFTOVER = Passage(hot_start="process 4711 listens on port 8080", hot_kinds=("orphan",))
BUSY = Passage(hot_start="others use 2 cores", hot_kinds=("busy",))


def number(field: str, value: float) -> tuple[Reading, ...]:
    return (Reading(field=field, value=value, source="test"),)


def word(field: str, text: str) -> tuple[Reading, ...]:
    return (Reading(field=field, value_text=text, source="test"),)


@pytest.mark.parametrize(
    ("gate", "found", "why"),
    [
        (Gate(), QUIET, None),
        (Gate(), replace(QUIET, passage=HOT), "hot_start: thermal level 2"),
        (Gate(exclude_hot_start="none"), replace(QUIET, passage=HOT), None),
        (Gate(), replace(QUIET, passage=BUSY), None),
        (Gate(exclude_hot_start="all"), replace(QUIET, passage=BUSY), "hot_start: others use 2 cores"),
        (Gate(), replace(QUIET, passage=LEFTOVER), None),
        (
            Gate(exclude_hot_start="all"),
            replace(QUIET, passage=LEFTOVER),
            "hot_start: process 4711 listens on port 8080",
        ),
        (Gate(), replace(QUIET, passage=replace(HOT, skipped=True)), "skipped: thermal level 2"),
        (Gate(), replace(QUIET, wall_s=11.5), "clock: wall ran +1.5 s against monotonic"),
        (Gate(), replace(QUIET, wall_s=-3590.0), "clock: wall ran -3600.0 s against monotonic"),
        (Gate(exclude_clock_gap_above_s=None), replace(QUIET, wall_s=11.5), None),
        (Gate(exclude_clock_gap_above_s=1.5), replace(QUIET, wall_s=11.5), None),  # not above it
        (Gate(), replace(QUIET, during=number("thermal_level_max", 1)), None),
        (
            Gate(),
            replace(QUIET, during=number("thermal_level_max", 2)),
            "thermal: level 2 while it ran, above 1",
        ),
        (Gate(), replace(QUIET, after=number("thermal_level", 3)), "thermal: level 3 while it ran, above 1"),
        (Gate(), replace(QUIET, after=word("power_source", "battery")), "power: ran on battery"),
        (Gate(power_source="any"), replace(QUIET, after=word("power_source", "battery")), None),
        (Gate(), replace(QUIET, during=number("cpu_cores_others_mean", 9)), None),
        (
            Gate(exclude_cpu_cores_others_above=0.5),
            replace(QUIET, during=number("cpu_cores_others_mean", 0.75), after=number("cpu_cores_others", 0.1)),
            "cpu_others: others used 0.75 cores, above 0.5",
        ),
        (
            Gate(exclude_cpu_cores_others_above=0.5),
            replace(QUIET, after=number("cpu_cores_others", 2.0)),
            "cpu_others: others used 2.00 cores, above 0.5",
        ),
        (  # a compiler of GPU kernels works for us, in a process of the system's
            Gate(exclude_cpu_cores_others_above=0.5),
            replace(
                QUIET,
                during=number("cpu_cores_others_mean", 1.25),
                after=(*number("cpu_cores_compilers", 1.0), *number("cpu_cores_others", 2.0)),
            ),
            None,
        ),
        (
            Gate(exclude_cpu_cores_others_above=0.5),
            replace(QUIET, after=(*number("cpu_cores_compilers", 1.0), *number("cpu_cores_others", 2.0))),
            "cpu_others: others used 1.00 cores, above 0.5",
        ),
        (  # so does the kernel: 8 s of its time in a trial of 10 s
            Gate(exclude_cpu_cores_others_above=0.5),
            replace(QUIET, after=(*number("kernel_cpu_s", 8.0), *number("cpu_cores_others", 1.25))),
            None,
        ),
        (
            Gate(exclude_cpu_cores_others_above=0.5),
            replace(QUIET, after=(*number("kernel_cpu_s", 8.0), *number("cpu_cores_others", 1.5))),
            "cpu_others: others used 0.70 cores, above 0.5",
        ),
        (
            Gate(exclude_gpu_ms_per_s_others_above=60),
            replace(QUIET, after=number("gpu_ms_per_s_others", 200)),
            "gpu_others: others used 200 ms/s of the GPU, above 60",
        ),
        (
            Gate(),
            replace(QUIET, before=number("swap_used_bytes", 0), after=number("swap_used_bytes", 1e9)),
            "swap: grew by 1000000000 bytes while it ran",
        ),
        (Gate(), replace(QUIET, after=number("swap_used_bytes", 1e9)), None),
    ],
)
def test_rules(gate: Gate, found: Circumstances, why: str | None) -> None:
    assert excluded_reason(gate, found) == why


def test_what_cannot_be_read_excludes_nothing() -> None:
    fields = ("thermal_level", "power_source", "cpu_cores_others", "gpu_ms_per_s_others", "swap_used_bytes")
    unread = tuple(Reading(field=field, reason="no sensor") for field in fields)
    strict = Gate(exclude_cpu_cores_others_above=0, exclude_gpu_ms_per_s_others_above=0, exclude_hot_start="all")
    assert excluded_reason(strict, replace(QUIET, before=unread, after=unread)) is None
