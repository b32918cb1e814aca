"""The memory plan: the memory that a run's models will hold, against what the machine can give them. Pure.

    an arm = weights + draft's weights + KV cache of both + prefix cache + overhead of its process
    KV cache = layers x kv heads x head dim x context x bytes x 2 (keys and values), for each model
    prefix cache = what the engine may keep beside the current conversation: its budget, or one more KV cache

Unknown sizes stay unknown: a sum with an unknown part is None, never a smaller number.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Interpreter, MLX, tokenizer and the buffers of one pass: 0.15 GB beside the weights with SmolLM2 on Linux, and four
# times that is allowed for larger vocabularies, longer prefill steps and Metal's own share.
PROCESS_OVERHEAD_BYTES = 600_000_000

# Apple recommends 67 to 78 % of the memory as the GPU's working set (37.4 of 48 GB on an M5 Pro). If no
# recommendation can be read, a run may count on two thirds of the memory.
SHARE_OF_MEMORY = 2 / 3

LOAD_TOLERANCE = 0.10  # above this share a difference between planned and measured weights is reported


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """A model's memory needs, as far as they are known."""

    weights_bytes: int | None
    kv_bytes_per_token: int | None  # growth of an unquantised cache per token, all layers
    kv_value_bytes: int = 2  # of one unquantised value


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """The caches as an engine's settings shape them."""

    can_quantise: bool = False
    bits: int | None = None  # of the KV cache, once it is quantised; None: never
    group_size: int = 64  # values that share a scale and an offset
    quantised_from: int = 0  # tokens
    rotates_at: int | None = None  # tokens that the KV cache keeps at most; None: all
    prefix_bytes: int | None = 0  # the prefix cache's budget; None: unknown
    keeps_last: bool = False  # the prefix cache holds one more KV cache instead

    def kv_bytes(self, model: ModelSize, tokens: int) -> int | None:
        """Return the size of one model's KV cache."""
        if model.kv_bytes_per_token is None:
            return None
        kept = tokens if self.rotates_at is None else min(tokens, self.rotates_at)
        size = model.kv_bytes_per_token * kept
        if self.bits is None or tokens < self.quantised_from:
            return size
        stored_bits = self.bits + 2 * 8 * model.kv_value_bytes / self.group_size
        return round(size * stored_bits / (8 * model.kv_value_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmMemory:
    """The memory of one loaded arm. None: unknown."""

    name: str
    weights_bytes: int | None
    draft_bytes: int | None  # 0: the arm has no draft
    kv_cache_bytes: int | None
    overhead_bytes: int
    prefix_cache_bytes: int | None = 0
    attached: bool = False  # a server that is already running holds all of it
    # Needed to compute a remedy: the context length that the caches are sized for, and how they grow.
    context_tokens: int = 0
    cache_bytes_per_token: float | None = None
    quantised_kv_bytes: int | None = None  # of the KV cache at 8 bits; None: the engine has no such setting, or uses it
    prefix_is_budget: bool = False  # engine.prefix_cache_bytes sets it

    @property
    def total_bytes(self) -> int | None:
        """Return the sum of all parts, or None if one is unknown."""
        return 0 if self.attached else _sum(self._parts)

    @property
    def known_bytes(self) -> int:
        """Return the sum of the known parts: the arm holds at least this."""
        return 0 if self.attached else sum(part for part in self._parts if part is not None)

    @property
    def _parts(self) -> tuple[int | None, ...]:
        return (
            self.weights_bytes,
            self.draft_bytes,
            self.kv_cache_bytes,
            self.prefix_cache_bytes,
            self.overhead_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """All arms against the budget."""

    arms: tuple[ArmMemory, ...]
    budget_bytes: int | None

    @property
    def total_bytes(self) -> int | None:
        """Return the sum over all arms loaded at once."""
        return _sum([arm.total_bytes for arm in self.arms])

    @property
    def known_bytes(self) -> int:
        """Return the sum of the known parts over all arms loaded at once."""
        return sum(arm.known_bytes for arm in self.arms)

    @property
    def resident_fits(self) -> bool | None:
        """Return whether all arms may stay loaded, or None if unknown."""
        if _within(self.known_bytes, self.budget_bytes) is False:
            return False  # whatever the unknown parts are
        return _within(self.total_bytes, self.budget_bytes)

    @property
    def too_large(self) -> tuple[ArmMemory, ...]:
        """Return the arms that do not fit even alone."""
        return tuple(arm for arm in self.arms if _within(arm.known_bytes, self.budget_bytes) is False)


def kv_bytes_per_token(*, layers: int, kv_heads: int, head_dim: int, bytes_per_value: float) -> int:
    """Return the bytes of one token's keys and values in all layers."""
    return round(2 * layers * kv_heads * head_dim * bytes_per_value)


def arm_memory(
    name: str,
    *,
    model: ModelSize,
    draft: ModelSize | None,
    context_tokens: int,
    overhead_bytes: int = PROCESS_OVERHEAD_BYTES,
    cache: Cache | None = None,
    attached: bool = False,
) -> ArmMemory:
    """Compute what one arm will hold.

    Args:
        draft: None if the arm drafts without a model.
        context_tokens: the longest prompt with its answer, in tokens.
        cache: None: an unquantised KV cache, and nothing beside it.
    """
    cache = cache or Cache()

    def kv(kept: Cache) -> int | None:  # a draft's cache is never quantised
        return _sum(
            [kept.kv_bytes(model, context_tokens), 0 if draft is None else Cache().kv_bytes(draft, context_tokens)]
        )

    held = kv(cache)
    # 8 bits from the start, if the engine has that setting and the arm does not use it.
    quantisable = cache.can_quantise and cache.bits is None and cache.rotates_at is None
    grown = None if held is None or not context_tokens else held * (2 if cache.keeps_last else 1) / context_tokens
    return ArmMemory(
        name=name,
        weights_bytes=model.weights_bytes,
        draft_bytes=0 if draft is None else draft.weights_bytes,
        kv_cache_bytes=held,
        overhead_bytes=overhead_bytes,
        prefix_cache_bytes=held if cache.keeps_last else cache.prefix_bytes,
        attached=attached,
        context_tokens=context_tokens,
        cache_bytes_per_token=None if cache.rotates_at is not None else grown,
        quantised_kv_bytes=kv(Cache(bits=8, group_size=cache.group_size)) if quantisable else None,
        prefix_is_budget=not cache.keeps_last and bool(cache.prefix_bytes),
    )


def load_note(*, planned_bytes: int | None, measured_bytes: int | None) -> str | None:
    """Describe how the memory after loading differs from the planned weights; None if hardly, or unknown.

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


def held_note(*, planned_bytes: int | None, held_bytes: int | None) -> str | None:
    """Do the same for an engine that does not report its models' size, by the memory of the server's process and ours.

    The processes hold more than weights: an excess up to the allowance for two processes counts as planned.
    """
    if not planned_bytes or held_bytes is None:
        return None
    most = planned_bytes + 2 * PROCESS_OVERHEAD_BYTES
    if (1 - LOAD_TOLERANCE) * planned_bytes <= held_bytes <= (1 + LOAD_TOLERANCE) * most:
        return None
    return (
        f"its processes hold {held_bytes / 1e9:.2f} GB after loading, against planned weights of"
        f" {planned_bytes / 1e9:.2f} GB and up to {(most - planned_bytes) / 1e9:.1f} GB beside them"
    )


def peak_note(*, planned_bytes: int | None, peak_bytes: int | None) -> str | None:
    """Describe how an arm's peak exceeds all memory that was planned for it; None if hardly, or unknown.

    Only an excess is reported: the plan's overhead is an allowance, and a cache may stay empty.
    """
    if not planned_bytes or peak_bytes is None or peak_bytes <= (1 + LOAD_TOLERANCE) * planned_bytes:
        return None
    return (
        f"up to {peak_bytes / 1e9:.2f} GB were held while it ran, {peak_bytes / planned_bytes - 1:+.0%} against the"
        f" {planned_bytes / 1e9:.2f} GB that were planned"
    )


def plan_memory(arms: Sequence[ArmMemory], *, budget_bytes: int | None) -> MemoryPlan:
    """Compare the arms with the budget: Metal's recommended working set, or `share_of_memory_bytes`."""
    return MemoryPlan(arms=tuple(arms), budget_bytes=budget_bytes)


def share_of_memory_bytes(memory_bytes: int | None) -> int | None:
    """Return the memory that a run may count on if the machine recommends nothing."""
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
