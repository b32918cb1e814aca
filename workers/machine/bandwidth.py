"""Peak memory bandwidth: Apple's published figures for its chips, and a measurement for chips without one.

No interface of macOS states it. Unknown stays unknown: the brand does not separate the bins of a Max, the number of GPU
cores does.

`python -m workers.machine.bandwidth` prints the measured figure as JSON; it is a process of its own, so that the caller
never loads MLX. It goes through arrays far larger than most caches in the ways of a stream benchmark. The best pass of
all counts, because whatever disturbs a pass makes it slower.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

ARRAY_BYTES = 256 * 2**20
MEASURE_S = 1.0
TIMEOUT_S = 30.0  # starting an interpreter and making the arrays included
# Generation, kind: GB/s, or by the number of GPU cores.
_PUBLISHED: dict[tuple[int, str], float | dict[int, float]] = {
    (1, ""): 68.25,
    (1, "Pro"): 200,
    (1, "Max"): 400,
    (1, "Ultra"): 800,
    (2, ""): 100,
    (2, "Pro"): 200,
    (2, "Max"): 400,
    (2, "Ultra"): 800,
    (3, ""): 100,
    (3, "Pro"): 150,
    (3, "Max"): {30: 300, 40: 400},
    (3, "Ultra"): 819,
    (4, ""): 120,
    (4, "Pro"): 273,
    (4, "Max"): {32: 410, 40: 546},
    (5, ""): 153,
    (5, "Pro"): 307,
    (5, "Max"): {32: 460, 40: 614},
}


def published_gb_per_s(chip: str | None, gpu_cores: int | None) -> tuple[float | None, str]:
    """Return the figure and its source, or None and the reason.

    Args:
        chip: as macOS names it: "Apple M4 Max".
        gpu_cores: where known; needed where one name stands for several bins.
    """
    match = re.fullmatch(r"Apple M(\d+)(?: (Pro|Max|Ultra))?", chip or "")
    if match is None:
        return None, f"{chip or 'this chip'} is not an Apple chip with a published figure"
    found = _PUBLISHED.get((int(match[1]), match[2] or ""))
    if found is None:
        return None, f"no published figure for {chip}"
    if not isinstance(found, dict):
        return float(found), "published by Apple"
    if gpu_cores not in found:
        return None, f"{chip} comes with several; {gpu_cores or 'an unknown number of'} GPU cores name none"
    return float(found[gpu_cores]), "published by Apple"


def measured_bytes_per_s() -> tuple[float | None, str]:
    """Return bytes per second and how they were measured, or None and the reason. Takes about two seconds."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "workers.machine.bandwidth"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return float(found["bytes_per_s"]), str(found["source"])
    except subprocess.TimeoutExpired:
        return None, f"not measured within {TIMEOUT_S:g} s"
    except (ValueError, IndexError, KeyError):
        words = done.stderr.strip().splitlines()
        return None, f"measuring ended with status {done.returncode}: {words[-1] if words else 'no words'}"


def best_rate(
    passes: Mapping[str, tuple[Callable[[], None], float]],
    *,
    measure_s: float = MEASURE_S,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[str, float]:
    """The fastest way through memory and its bytes per second, each way in turn until the time is up, twice at least.

    Args:
        passes: by name, what does one pass, and how many bytes it reads and writes.
    """
    best: dict[str, float] = {}
    ends, rounds = clock() + measure_s, 0
    while rounds < 2 or clock() < ends:
        for name, (run, moved_bytes) in passes.items():
            started = clock()
            run()
            best[name] = max(best.get(name, 0.0), moved_bytes / (clock() - started))
        rounds += 1
    return max(best.items(), key=lambda each: each[1])


def main() -> int:
    """Measure, print."""
    import mlx.core as mx

    count = ARRAY_BYTES // 8  # wide elements: on a CPU, MLX spends more on each than memory does
    one, other = mx.full((count,), 3, mx.uint64), mx.full((count,), 5, mx.uint64)
    mx.eval(one, other)

    def evaluating(made: Callable[[], Any]) -> Callable[[], None]:
        return lambda: mx.eval(made())

    passes: dict[str, tuple[Callable[[], None], float]] = {
        "read by MLX": (evaluating(lambda: mx.max(one)), ARRAY_BYTES),
        "copy by MLX": (evaluating(lambda: mx.bitwise_xor(one, other)), 3 * ARRAY_BYTES),
    }
    if mx.default_device().type == mx.DeviceType.cpu:
        source, target = bytearray(ARRAY_BYTES), memoryview(bytearray(ARRAY_BYTES))
        passes["plain copy"] = (lambda: _copy(source, target), 2 * ARRAY_BYTES)
    name, found = best_rate(passes)
    words = f"measured: best {name} of arrays of {ARRAY_BYTES // 2**20} MiB, for {mx.default_device()}"
    sys.stdout.write(json.dumps({"bytes_per_s": found, "source": words}) + "\n")
    return 0


def _copy(source: bytearray, target: memoryview) -> None:
    target[:] = source


if __name__ == "__main__":
    sys.exit(main())
