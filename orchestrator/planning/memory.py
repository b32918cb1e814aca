"""The memory plan: what a run's models will hold, against what the machine can give them. Pure.

    an arm = weights + draft's weights + KV cache of both + overhead of its process
    KV cache = layers x kv heads x head dim x context x bytes x 2 (keys and values), for each model

Unknown sizes stay unknown: a sum with an unknown part is None, never a smaller number.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Interpreter, MLX, tokenizer and the buffers of one pass: 0.15 GB beside the weights with SmolLM2 on Linux, and four
# times that is allowed for larger vocabularies, longer prefill steps and Metal's own share.
PROCESS_OVERHEAD_BYTES = 600_000_000

# Apple recommends 67 to 78 % of the memory as the GPU's working set (37.4 of 48 GB on an M5 Pro). Where no
# recommendation can be read, two thirds of the memory is what a run may count on.
SHARE_OF_MEMORY = 2 / 3

LOAD_TOLERANCE = 0.10  # above this share a difference between planned and measured weights is reported


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """A model's share of memory, as far as it is known."""

    weights_bytes: int | None
    kv_bytes_per_token: int | None  # growth of the cache a token, all layers


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmMemory:
    """What one arm holds while it is loaded. None: unknown."""

    name: str
    weights_bytes: int | None
    draft_bytes: int | None  # 0: the arm has no draft
    kv_cache_bytes: int | None
    overhead_bytes: int

    @property
    def total_bytes(self) -> int | None:
        return _sum([self.weights_bytes, self.draft_bytes, self.kv_cache_bytes, self.overhead_bytes])


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """All arms against the budget."""

    arms: tuple[ArmMemory, ...]
    budget_bytes: int | None

    @property
    def total_bytes(self) -> int | None:
        """Of all arms loaded at once."""
        return _sum([arm.total_bytes for arm in self.arms])

    @property
    def resident_fits(self) -> bool | None:
        """Whether all arms may stay loaded. None: unknown."""
        return _within(self.total_bytes, self.budget_bytes)

    @property
    def too_large(self) -> tuple[ArmMemory, ...]:
        """Arms that do not fit even alone."""
        return tuple(arm for arm in self.arms if _within(arm.total_bytes, self.budget_bytes) is False)


def kv_bytes_per_token(*, layers: int, kv_heads: int, head_dim: int, bytes_per_value: float) -> int:
    """Keys and values of one token in every layer."""
    return round(2 * layers * kv_heads * head_dim * bytes_per_value)


def arm_memory(
    name: str,
    *,
    model: ModelSize,
    draft: ModelSize | None,
    context_tokens: int,
    overhead_bytes: int = PROCESS_OVERHEAD_BYTES,
) -> ArmMemory:
    """What one arm will hold.

    Args:
        draft: None: the arm drafts with no model.
        context_tokens: the longest prompt with its answer, in tokens.
    """
    models = [model] if draft is None else [model, draft]
    caches = [None if each.kv_bytes_per_token is None else each.kv_bytes_per_token * context_tokens for each in models]
    return ArmMemory(
        name=name,
        weights_bytes=model.weights_bytes,
        draft_bytes=0 if draft is None else draft.weights_bytes,
        kv_cache_bytes=_sum(caches),
        overhead_bytes=overhead_bytes,
    )


def load_note(*, planned_bytes: int | None, measured_bytes: int | None) -> str | None:
    """How the memory after loading differs from the weights that were planned; None: hardly, or unknown.

    Weights only: the cache is not there yet, and the plan's overhead is an allowance, not a prediction.
    """
    if not planned_bytes or measured_bytes is None:
        return None
    if abs(measured_bytes - planned_bytes) <= LOAD_TOLERANCE * planned_bytes:
        return None
    share = measured_bytes / planned_bytes - 1
    return (
        f"{measured_bytes / 1e9:.2f} GB are in use after loading, {share:+.0%} against the planned weights of"
        f" {planned_bytes / 1e9:.2f} GB"
    )


def peak_note(*, planned_bytes: int | None, peak_bytes: int | None) -> str | None:
    """How the highest that an arm held exceeds all that was planned for it; None: hardly, or unknown.

    Only more than planned is told: the plan's overhead is an allowance, and a cache may stay empty.
    """
    if not planned_bytes or peak_bytes is None or peak_bytes <= (1 + LOAD_TOLERANCE) * planned_bytes:
        return None
    return (
        f"up to {peak_bytes / 1e9:.2f} GB were held while it ran, {peak_bytes / planned_bytes - 1:+.0%} against the"
        f" {planned_bytes / 1e9:.2f} GB that were planned"
    )


def plan_memory(arms: Sequence[ArmMemory], *, budget_bytes: int | None) -> MemoryPlan:
    """The arms against the budget: Metal's recommended working set, or `working_set_bytes` of the memory."""
    return MemoryPlan(arms=tuple(arms), budget_bytes=budget_bytes)


def working_set_bytes(memory_bytes: int | None) -> int | None:
    """What a run may count on where the machine recommends nothing."""
    return None if memory_bytes is None else int(memory_bytes * SHARE_OF_MEMORY)


def _within(needed: int | None, budget: int | None) -> bool | None:
    return None if needed is None or budget is None else needed <= budget


def _sum(parts: Iterable[int | None]) -> int | None:
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total
