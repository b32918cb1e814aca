"""Whether the arms stay loaded between their trials, and so what a round holds, by what is known of their sizes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.configuration.workload import context_tokens
from orchestrator.plan import Arm, Prompt, canonical_json
from orchestrator.planning.memory import MemoryPlan, ModelSize, arm_memory, plan_memory, working_set_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The choice, and why."""

    interleave_by: str  # prompt | workload
    residency: str  # resident | swap
    note: str | None  # None: nothing was left to choose


def choose_order(interleave_by: str, residency: str, arms: Sequence[Arm], prompts: Sequence[Prompt]) -> Order:
    """Resolve `auto`: arms stay loaded where they fit together; a round is one prompt where they stay loaded."""
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
    """The memory plan of these arms on this machine, from what is known without loading anything."""
    known: dict[str, ModelSize] = {}

    def size(checkpoint: Mapping[str, Any]) -> ModelSize:
        key = canonical_json(checkpoint)
        if key not in known:
            known[key] = model_size(checkpoint)
        return known[key]

    context = max((context_tokens(prompt) for prompt in prompts), default=0)
    real = [arm for arm in arms if not is_simulated(arm)]
    memories = [
        arm_memory(
            arm.name,
            model=size(arm.checkpoint),
            draft=None if arm.draft is None else size(arm.draft),
            context_tokens=context,
        )
        for arm in real
    ]
    return plan_memory(memories, budget_bytes=working_set_bytes(_memory_bytes()) if real else None)


def explain(memory: MemoryPlan, arms: Sequence[Arm]) -> str:
    """The reason for a choice, in words."""
    if not memory.arms:
        return "simulated arms hold no model"
    if memory.total_bytes is None or memory.budget_bytes is None:
        vague = {each.name for each in memory.arms if each.total_bytes is None}
        models = [arm.checkpoint["name"] for arm in arms if arm.name in vague]
        models += [arm.draft["name"] for arm in arms if arm.name in vague and arm.draft is not None]
        return f"memory unknown before loading ({', '.join(dict.fromkeys(models))})"
    fits = "fit" if memory.resident_fits else "do not fit"
    return f"all arms together ({memory.total_bytes / 1e9:.1f} GB) {fits} the {memory.budget_bytes / 1e9:.1f} GB budget"


def model_size(checkpoint: Mapping[str, Any]) -> ModelSize:
    """What is known of a checkpoint without loading or fetching it."""
    from workers.checkpoints import describe, resolve
    from workers.errors import EngineError

    try:
        info = describe(resolve(checkpoint))
    except EngineError:
        info = None  # not there yet, or broken: preflight says what; here its size is unknown
    if info is None:
        return ModelSize(weights_bytes=None, kv_bytes_per_token=None)
    return ModelSize(weights_bytes=info.weights_bytes, kv_bytes_per_token=info.kv_bytes_per_token)


def is_simulated(arm: Arm) -> bool:
    target: str = arm.engine["_target_"]
    return target.endswith(".Simulated")


def _memory_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().total)


_WORD = {"resident": "stay loaded", "swap": "are loaded in turn"}
