"""Find what would make a run fit this machine's memory, with the numbers. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.planning.memory import ArmMemory, MemoryPlan

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A prompt's length."""

    prompt_tokens: int
    turns: int
    max_tokens: int  # of each turn's answer

    @property
    def tokens(self) -> int:
        """Count the tokens from its start to its end."""
        return self.prompt_tokens + self.turns * self.max_tokens


def misfit(memory: MemoryPlan, *, residency: str, conversations: Sequence[Conversation]) -> str | None:
    """State in one line why the arms do not fit and what would make them fit; None if they fit or sizes are unknown.

    Args:
        residency: resident: all are loaded at once; swap: one at a time.
    """
    if memory.budget_bytes is None:
        return None
    if memory.too_large:
        arm = memory.too_large[0]
        helps = [*_remedies(arm, memory.budget_bytes, conversations)]
        return f"arm {arm.name} needs {describe_arm(arm)}, of {gb(memory.budget_bytes)}: {_either(helps)}"
    if residency == "resident" and memory.resident_fits is False:
        helps = [*_joint_remedies(memory, memory.budget_bytes, conversations)]
        return (
            f"all arms together need {_at_least(memory.total_bytes, memory.known_bytes)} of {gb(memory.budget_bytes)}"
            f" ({', '.join(f'{each.name} {gb(each.total_bytes)}' for each in memory.arms[:4])}"
            f"{', ...' if len(memory.arms) > 4 else ''}): {_either(helps)}"
        )
    return None


def describe_arm(arm: ArmMemory) -> str:
    """Describe what an arm holds, part by part."""
    parts = [f"weights {gb(arm.weights_bytes)}"]
    parts += [f"draft {gb(arm.draft_bytes)}"] if arm.draft_bytes else []
    parts.append(f"KV cache {gb(arm.kv_cache_bytes)} for {arm.context_tokens:,} tokens")
    parts += [f"prefix cache {gb(arm.prefix_cache_bytes)}"] if arm.prefix_cache_bytes else []
    parts.append(f"process {gb(arm.overhead_bytes)}")
    return f"{_at_least(arm.total_bytes, arm.known_bytes)} ({', '.join(parts)})"


def _at_least(total_bytes: int | None, known_bytes: int) -> str:
    return gb(total_bytes) if total_bytes is not None else f"at least {gb(known_bytes)}"


def _remedies(arm: ArmMemory, budget: int, conversations: Sequence[Conversation]) -> Iterator[str]:
    """Yield the remedies; each of them alone is enough."""
    over = arm.known_bytes - budget
    prefix = arm.prefix_cache_bytes or 0
    if arm.prefix_is_budget and over <= prefix:
        yield f"engine.prefix_cache_bytes={(prefix - over) // _MIB * _MIB}"
    if arm.quantised_kv_bytes is not None and arm.kv_cache_bytes is not None:
        saved = arm.kv_cache_bytes - arm.quantised_kv_bytes
        if over <= saved:
            yield f"engine.kv_bits=8 engine.quantized_kv_start=0 (KV cache {gb(arm.quantised_kv_bytes)})"
    if arm.cache_bytes_per_token:
        room = arm.context_tokens - over / arm.cache_bytes_per_token
        yield from _shorter(int(room), conversations)
    rest = arm.known_bytes - (arm.weights_bytes or 0)
    if rest < budget:
        yield f"a checkpoint with at most {gb(budget - rest)} of weights"


def _joint_remedies(memory: MemoryPlan, budget: int, conversations: Sequence[Conversation]) -> Iterator[str]:
    over = memory.known_bytes - budget
    largest = max(arm.known_bytes for arm in memory.arms)
    yield f"design.residency=swap (the largest alone needs {gb(largest)})"
    yield f"at most {_how_many(memory, budget)} of these {len(memory.arms)} arms"
    budgets = [arm for arm in memory.arms if arm.prefix_is_budget]
    prefix = sum(arm.prefix_cache_bytes or 0 for arm in budgets)
    if budgets and over <= prefix:
        yield f"engine.prefix_cache_bytes={(prefix - over) // len(budgets) // _MIB * _MIB}"
    growth = [arm.cache_bytes_per_token for arm in memory.arms if not arm.attached]
    if growth and all(growth):
        context = max(arm.context_tokens for arm in memory.arms)
        yield from _shorter(int(context - over / sum(each for each in growth if each)), conversations)


def _shorter(tokens: int, conversations: Sequence[Conversation]) -> Iterator[str]:
    """Suggest shorter answers if they are enough, else shorter prompts."""
    longer = [each for each in conversations if each.tokens > tokens]
    if tokens < 1 or not longer:
        return
    answers = min((tokens - each.prompt_tokens) // each.turns for each in longer)
    if answers >= 1:
        yield f"workload.max_tokens={answers} (a context of {tokens:,} tokens)"
    else:
        yield f"prompts of at most {tokens:,} tokens with their answers"


def _how_many(memory: MemoryPlan, budget: int) -> int:
    """Count the arms that fit together, the smallest first."""
    count, held = 0, 0
    for size in sorted(arm.known_bytes for arm in memory.arms):
        held += size
        if held > budget:
            break
        count += 1
    return count


def _either(helps: Sequence[str]) -> str:
    """Join the remedies as a choice."""
    if not helps:
        return "no setting makes it fit; take a smaller checkpoint"
    return f"it fits with {', or '.join(helps)}"


def gb(size_bytes: int | None) -> str:
    """Format a size for people."""
    return "unknown" if size_bytes is None else f"{size_bytes / 1e9:.1f} GB"
