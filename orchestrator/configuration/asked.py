"""The overrides that describe one arm of a plan: a line to type, made from what was resolved."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from orchestrator.configuration.engines import kind_by_target
from orchestrator.plan import Arm, Plan

_PLAIN = re.compile(r"[\w./+-]+")
_NOT_TYPED = frozenset({"_target_", "name", "draft"})
DEFAULT_SAMPLING = "greedy"


def overrides_of(arm: Arm, plan: Plan) -> list[str]:
    """The overrides of an arm's checkpoint, engine, sampling and prompts, as far as they differ from the defaults.

    Its environment is left out. Options of a user's own folder need `--config-dir` beside them, as they did before.
    """
    lines = [f"checkpoint={arm.checkpoint['name']}", f"engine={arm.engine['name']}"]
    lines += [f"engine.{key}={_typed(value)}" for key, value in _changed(arm.engine)]
    if arm.draft is not None:
        lines.append(f"engine.draft={arm.draft['name']}")
    if arm.sampling["name"] != DEFAULT_SAMPLING:
        lines.append(f"sampling={arm.sampling['name']}")
    lines.append(f"workload={','.join(dict.fromkeys(prompt.workload for prompt in plan.prompts))}")
    lengths = {prompt.max_tokens for prompt in plan.prompts}
    return [*lines, *([f"workload.max_tokens={lengths.pop()}"] if len(lengths) == 1 else [])]


def _changed(engine: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The settings that differ from the engine's defaults."""
    kind = kind_by_target(str(engine["_target_"]))
    if kind is None:
        return
    for each in fields(kind.schema):
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        if each.name not in _NOT_TYPED and each.name in engine and engine[each.name] != default:
            yield each.name, engine[each.name]


def _typed(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return _quoted(value)


def _quoted(value: Any) -> str:
    """A value in Hydra's grammar, in which the keys of a mapping stand bare."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_quoted(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_quoted, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
