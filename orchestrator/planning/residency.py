"""Decide from the known sizes whether the arms stay loaded between trials, and with it what a round contains."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.plan import Arm, Prompt, canonical_json
from orchestrator.planning import hub_sizes
from orchestrator.planning.device import working_set_bytes
from orchestrator.planning.fit import Conversation, gb
from orchestrator.planning.memory import Cache, MemoryPlan, ModelSize, arm_memory, plan_memory, share_of_memory_bytes
from orchestrator.planning.published import published

if TYPE_CHECKING:
    from workers.weights.checkpoints import CheckpointInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The choice and its reason."""

    interleave_by: str  # prompt | workload
    residency: str  # resident | swap
    note: str | None  # None: nothing was left to choose


def choose_order(interleave_by: str, residency: str, arms: Sequence[Arm], prompts: Sequence[Prompt]) -> Order:
    """Resolve `auto`: arms stay loaded if they fit together, and a round is one prompt if they stay loaded."""
    if "auto" not in (interleave_by, residency):
        return Order(interleave_by=interleave_by, residency=residency, note=None)
    memory = plan_of(arms, prompts)
    if residency == "auto":
        residency = "swap" if memory.resident_fits is False else "resident"
    if interleave_by == "auto":
        interleave_by = "prompt" if residency == "resident" else "workload"
    note = f"rounds by {interleave_by}, arms {_WORD[residency]}: {explain(memory, arms)}"
    return Order(interleave_by=interleave_by, residency=residency, note=note)


def plan_of(arms: Sequence[Arm], prompts: Sequence[Prompt]) -> MemoryPlan:
    """Make the memory plan of these arms on this machine, without loading anything."""
    known: dict[str, ModelSize] = {}

    def size(checkpoint: Mapping[str, Any]) -> ModelSize:
        key = canonical_json(checkpoint)
        if key not in known:
            known[key] = model_size(checkpoint)
        return known[key]

    context = max((prompt.context_tokens for prompt in prompts), default=0)
    real = [arm for arm in arms if not is_simulated(arm)]
    memories = [
        arm_memory(
            arm.name,
            model=size(arm.checkpoint),
            draft=None if arm.draft is None else size(arm.draft),
            context_tokens=context,
            cache=cache_of(arm.engine),
            attached=is_attached(arm),
        )
        for arm in real
    ]
    return plan_memory(memories, budget_bytes=run_budget_bytes() if real else None)


# The budget of dflash-mlx's server, if none is set.
_DFLASH_SERVER_PREFIX_BYTES = 8 * 2**30


def cache_of(engine: Mapping[str, Any]) -> Cache:
    """Return the caches that an engine's settings produce. A server's budget is always the one planned here."""
    name = str(engine["name"])
    prefix_bytes: int | None = 0
    if "prefix_cache_bytes" in engine and engine.get("prefix_cache", True):
        prefix_bytes = engine["prefix_cache_bytes"] or 0
        if name == "dflash_server" and engine["prefix_cache_bytes"] is None:
            prefix_bytes = _DFLASH_SERVER_PREFIX_BYTES
    return Cache(
        can_quantise="kv_bits" in engine,
        bits=engine.get("kv_bits"),
        group_size=engine.get("kv_group_size", 64),
        quantised_from=engine.get("quantized_kv_start", 0),
        rotates_at=engine.get("max_kv_size"),
        prefix_bytes=prefix_bytes,
        keeps_last=name.startswith("mlx_lm_server") and bool(engine.get("prefix_cache", True)),
    )


def is_attached(arm: Arm) -> bool:
    """Return whether an already running server answers: it holds its model whatever this run does."""
    return bool(arm.engine.get("attach")) or str(arm.engine["_target_"]).endswith(".OpenaiHttp")


def conversations(prompts: Sequence[Prompt]) -> tuple[Conversation, ...]:
    """Return the prompts' lengths."""
    return tuple(
        Conversation(
            prompt_tokens=prompt.context_tokens - len(prompt.turns) * prompt.max_tokens,
            turns=len(prompt.turns),
            max_tokens=prompt.max_tokens,
        )
        for prompt in prompts
    )


def explain(memory: MemoryPlan, arms: Sequence[Arm]) -> str:
    """State the reason for a choice."""
    if not memory.arms:
        return "simulated arms hold no model"
    if memory.resident_fits is None:
        vague = {each.name for each in memory.arms if each.total_bytes is None}
        models = [arm.checkpoint["name"] for arm in arms if arm.name in vague]
        models += [arm.draft["name"] for arm in arms if arm.name in vague and arm.draft is not None]
        return f"memory unknown before loading ({', '.join(dict.fromkeys(models))})"
    fits = "fit" if memory.resident_fits else "do not fit"
    least = "" if memory.total_bytes is not None else "at least "
    return f"all arms together ({least}{gb(memory.known_bytes)}) {fits} the {gb(memory.budget_bytes)} budget"


def model_size(checkpoint: Mapping[str, Any]) -> ModelSize:
    """Return a checkpoint's size without fetching it: from its files, from public sources, or as the hub stated it."""
    info = found_here(checkpoint)
    if info is not None:
        return ModelSize(
            weights_bytes=info.weights_bytes,
            kv_bytes_per_token=info.kv_bytes_per_token,
            kv_value_bytes=4 if info.dtype == "float32" else 2,
        )
    stated = published(checkpoint) or hub_sizes.stated(checkpoint)
    if stated is None:
        return ModelSize(weights_bytes=None, kv_bytes_per_token=None)
    return ModelSize(weights_bytes=stated.weights_bytes, kv_bytes_per_token=stated.kv_bytes_per_token)


def read_bytes(checkpoint: Mapping[str, Any]) -> int | None:
    """Return the bytes of weights that one decoded token reads, or None if unknown."""
    info = found_here(checkpoint)
    if info is not None:
        return info.bytes_read_per_token or info.weights_bytes
    if (listed := published(checkpoint)) is not None:
        return listed.read_bytes or listed.weights_bytes
    stated = hub_sizes.stated(checkpoint)
    return None if stated is None else stated.bytes_read_per_token


def found_here(checkpoint: Mapping[str, Any]) -> "CheckpointInfo | None":
    """Read a checkpoint's files; None if they are not on this machine yet, or are broken (the preflight reports it)."""
    from workers.errors import EngineError
    from workers.weights.checkpoints import describe, resolve

    try:
        return describe(resolve(checkpoint))
    except EngineError:
        return None


def is_simulated(arm: Arm) -> bool:
    target: str = arm.engine["_target_"]
    return target.endswith(".Simulated")


def run_budget_bytes() -> int | None:
    """Return Metal's recommendation if there is one, else a share of the memory."""
    return working_set_bytes() or share_of_memory_bytes(_memory_bytes())


def _memory_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().total)


_WORD = {"resident": "stay loaded", "swap": "are loaded in turn"}
