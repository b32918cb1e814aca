"""Find every arm's weights on this machine, without loading any: the step between a plan and a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InputError, RefusedError
from orchestrator.plan import Arm, Plan, canonical_json
from orchestrator.planning.fit import describe_arm, gb, misfit
from orchestrator.planning.memory import MemoryPlan
from orchestrator.planning.residency import conversations, is_simulated, plan_of
from workers.errors import EngineError
from workers.weights.checkpoints import CheckpointInfo, describe, find_folder, resolve
from workers.weights.drafts import BLOCK, MODEL, require_fit_of

# The kind of draft that each engine uses, by its module.
_DRAFT_KINDS = {
    **dict.fromkeys(("dflash", "dflash_server", "omlx_dflash"), BLOCK),
    **dict.fromkeys(("mlx_lm_draft", "mlx_lm_server_draft"), MODEL),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """An arm's checkpoints as the worker needs them, with absolute paths."""

    checkpoint: dict[str, Any]
    draft: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmWeights:
    """The weights found for one arm, for the worker and for the record. None: no weights, or unknown before loading."""

    for_worker: Weights
    target: CheckpointInfo | None
    draft: CheckpointInfo | None

    @property
    def planned_bytes(self) -> int | None:
        """Return the size of the weights, the draft's included, or None if unknown."""
        known = [each.weights_bytes for each in (self.target, self.draft) if each is not None]
        return sum(each for each in known if each is not None) if known and None not in known else None


def find_weights(plan: Plan) -> dict[str, ArmWeights]:
    """Find every arm's checkpoints and read their headers.

    Raises:
        InputError: a folder is missing or broken; the message names the arm and the remedy.
    """
    found: dict[str, tuple[dict[str, Any], CheckpointInfo | None]] = {}
    weights = {}
    for arm in plan.arms:
        target, target_info = _find(arm, arm.checkpoint, found)
        draft, draft_info = (None, None) if arm.draft is None else _find(arm, arm.draft, found)
        if draft is not None:
            _require_fit(arm, target, draft)
        weights[arm.name] = ArmWeights(
            for_worker=Weights(checkpoint=target, draft=draft), target=target_info, draft=draft_info
        )
    return weights


def _find(
    arm: Arm, checkpoint: Mapping[str, Any], found: dict[str, tuple[dict[str, Any], CheckpointInfo | None]]
) -> tuple[dict[str, Any], CheckpointInfo | None]:
    if is_simulated(arm):
        return dict(checkpoint), None
    name, key = checkpoint["name"], canonical_json(checkpoint)  # two folders may have one name
    if key not in found:
        try:
            resolved = resolve(checkpoint)
            if resolved["source"] == "hub":  # a worker of any environment, and a server, find it by its folder
                folder = find_folder(resolved)
                resolved["path"] = None if folder is None else str(folder)
            found[key] = resolved, describe(resolved)
        except EngineError as error:
            raise InputError(f"arm {arm.name}, checkpoint {name}: {error}") from error
    return found[key]


def wrong_draft(plan: Plan) -> str | None:
    """Describe in one line the first draft not made for its target; None if there is none, or files are missing."""
    try:
        for arm in plan.arms:
            if arm.draft is not None:
                _require_fit(arm, arm.checkpoint, arm.draft)
    except InputError as error:
        return str(error)
    return None


def _require_fit(arm: Arm, target: Mapping[str, Any], draft: Mapping[str, Any]) -> None:
    """Check the draft against its target, unless the server was started by somebody else and loaded its own."""
    kind = _DRAFT_KINDS.get(str(arm.engine.get("_target_")).split(".")[-2])
    if kind is None or arm.engine.get("attach") is not None:
        return
    try:
        require_fit_of(target, draft, kind=kind)
    except EngineError as error:
        raise InputError(f"arm {arm.name}: {error}") from error


def refuse_what_does_not_fit(plan: Plan) -> None:
    """Compare the plan's memory with this machine's. Unknown sizes pass: loading will show.

    Raises:
        RefusedError: it does not fit; the message has the numbers and what would make it fit.
    """
    if (why := what_does_not_fit(plan)) is not None:
        raise RefusedError(why)


def what_does_not_fit(plan: Plan) -> str | None:
    """State in one line the numbers and what would make the plan fit; None if it fits or sizes are unknown."""
    memory = plan_of(plan.arms, plan.prompts)
    return misfit(memory, residency=plan.design.residency, conversations=conversations(plan.prompts))


def memory_line(memory: MemoryPlan) -> str:
    """Format the memory plan in one line."""
    if not memory.arms:
        return "simulated arms hold no model"
    if all(arm.attached for arm in memory.arms):
        return "servers that are already running hold the models"
    known = [arm for arm in memory.arms if arm.weights_bytes is not None]
    total = gb(memory.total_bytes) if memory.total_bytes is not None else f"at least {gb(memory.known_bytes)}"
    line = f"all arms together {total if known else 'unknown'} of {gb(memory.budget_bytes)} that a run may count on"
    if not known:
        return line
    largest = max(known, key=lambda arm: arm.known_bytes)
    return f"{line}; the largest, {largest.name}: {describe_arm(largest)}"


def fetch_line(downloads: Mapping[str, int | None]) -> str:
    """State in one line what a run would fetch first.

    Args:
        downloads: bytes by checkpoint, see `orchestrator.planning.fetching.download_sizes`.
    """
    models = [f"{name} {gb(size)}" for name, size in downloads.items()]
    known = [size for size in downloads.values() if size is not None]
    rest = "" if len(known) == len(models) else ", and what is unknown"
    total = f" ({gb(sum(known))} in all{rest})" if known and len(models) > 1 else ""
    return f"{', '.join(models)}{total}: not on this machine yet"
