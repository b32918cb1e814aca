"""Between a plan and a run: find every arm's weights on this machine, without loading any."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InputError, RefusedError
from orchestrator.plan import Arm, Plan
from orchestrator.planning.memory import MemoryPlan
from orchestrator.planning.residency import is_simulated, plan_of
from orchestrator.running.crew import Weights
from workers.checkpoints import CheckpointInfo, describe, resolve
from workers.errors import EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmWeights:
    """What was found for one arm, for the worker and for the record. None: no weights, or unknown before loading."""

    for_worker: Weights
    target: CheckpointInfo | None
    draft: CheckpointInfo | None

    @property
    def planned_bytes(self) -> int | None:
        """Of the weights, the draft's included; None: unknown."""
        known = [each.weights_bytes for each in (self.target, self.draft) if each is not None]
        return sum(each for each in known if each is not None) if known and None not in known else None


def find_weights(plan: Plan) -> dict[str, ArmWeights]:
    """Every arm's checkpoints, found and their headers read.

    Raises:
        InputError: a folder is missing or broken; the message names the arm and the remedy.
    """
    found: dict[str, tuple[dict[str, Any], CheckpointInfo | None]] = {}
    weights = {}
    for arm in plan.arms:
        target, target_info = _find(arm, arm.checkpoint, found)
        draft, draft_info = (None, None) if arm.draft is None else _find(arm, arm.draft, found)
        weights[arm.name] = ArmWeights(
            for_worker=Weights(checkpoint=target, draft=draft), target=target_info, draft=draft_info
        )
    return weights


def _find(
    arm: Arm, checkpoint: Mapping[str, Any], found: dict[str, tuple[dict[str, Any], CheckpointInfo | None]]
) -> tuple[dict[str, Any], CheckpointInfo | None]:
    if is_simulated(arm):
        return dict(checkpoint), None
    name = checkpoint["name"]
    if name not in found:
        try:
            resolved = resolve(checkpoint)
            found[name] = resolved, describe(resolved)
        except EngineError as error:
            raise InputError(f"arm {arm.name}, checkpoint {name}: {error}") from error
    return found[name]


def refuse_what_does_not_fit(plan: Plan) -> None:
    """Hold the plan's memory against this machine's. Unknown sizes pass: loading will tell.

    Raises:
        RefusedError: with the numbers, and what would make it fit.
    """
    memory = plan_of(plan.arms, plan.prompts)
    for arm in memory.too_large:
        raise RefusedError(
            f"arm {arm.name} needs {_gb(arm.total_bytes)} (weights {_gb(arm.weights_bytes)}, draft"
            f" {_gb(arm.draft_bytes)}, cache {_gb(arm.kv_cache_bytes)}) of {_gb(memory.budget_bytes)}:"
            " choose a smaller checkpoint or a shorter context"
        )
    if plan.design.residency == "resident" and memory.resident_fits is False:
        raise RefusedError(
            f"all arms together need {_gb(memory.total_bytes)} of {_gb(memory.budget_bytes)}:"
            " say design.residency=swap, or take fewer arms"
        )


def memory_line(memory: MemoryPlan) -> str:
    """The memory plan in one line."""
    if not memory.arms:
        return "simulated arms hold no model"
    largest = max((arm.total_bytes for arm in memory.arms if arm.total_bytes is not None), default=None)
    return (
        f"all arms together {_gb(memory.total_bytes)}, the largest {_gb(largest)}, of {_gb(memory.budget_bytes)}"
        " that a run may count on"
    )


def _gb(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else f"{size_bytes / 1e9:.1f} GB"
