"""The headline of a plan: its download, its memory and its duration in one line. Pure."""

from collections.abc import Mapping

from orchestrator.planning.estimate import Estimate, about
from orchestrator.planning.fit import gb
from orchestrator.planning.memory import MemoryPlan

_SMALL_BYTES = 100_000_000  # less is shown in MB


def headline(
    *, downloads: Mapping[str, int | None], memory: MemoryPlan, residency: str, duration: Estimate, basis: str
) -> str:
    """The line, as "downloads 13.2 GB; needs 21.0 of 36.0 GB; takes about 3 h on an M4 Max, from its bandwidth".

    Args:
        downloads: bytes to fetch, by checkpoint; None: unknown.
        residency: resident: all arms are loaded at once; swap: one at a time.
        basis: what the duration stands on, in a few words.
    """
    parts = [_downloads(downloads), _memory(memory, residency)]
    long = "how long is not known" if duration.duration_s is None else f"takes {about(duration.duration_s)} {basis}"
    return "; ".join(part for part in [*parts, long] if part)


def _downloads(sizes: Mapping[str, int | None]) -> str:
    if not sizes:
        return ""
    known = [size for size in sizes.values() if size is not None]
    if not known:
        return f"downloads {', '.join(sizes)} (size unknown)"
    total = sum(known)
    words = gb(total) if total >= _SMALL_BYTES else f"{total / 1e6:.1f} MB"
    return f"downloads {'' if len(known) == len(sizes) else 'at least '}{words}"


def _memory(memory: MemoryPlan, residency: str) -> str:
    if not memory.arms or memory.budget_bytes is None:
        return ""
    if all(arm.attached for arm in memory.arms):
        return "servers that run already hold the models"
    largest = max(memory.arms, key=lambda arm: arm.known_bytes)
    known, total = memory.known_bytes, memory.total_bytes
    if residency == "swap":
        known, total = largest.known_bytes, largest.total_bytes
    if all(arm.weights_bytes is None for arm in memory.arms):
        return f"memory unknown before the models are here, of {gb(memory.budget_bytes)}"
    needs = gb(total) if total is not None else f"at least {gb(known)}"
    fits = "needs" if known <= memory.budget_bytes else "does not fit: needs"
    return f"{fits} {needs} of {gb(memory.budget_bytes)}"
