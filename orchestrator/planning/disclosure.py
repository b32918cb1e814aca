"""List what executing a plan would do to this machine, before it is done. Pure.

Every setting of every arm is listed. Settings that start a program, change its environment, name an address or name a
file to read have their own heads; all other settings stand under the last head. Unknown settings are listed too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.plan import Arm, Lock, Plan

HEADS = (
    "commands",
    "interpreters",
    "packages installed",
    "environment",
    "environment read",
    "addresses",
    "weights and files",
    "engine classes",
    "other settings",
)
_FILES = frozenset({"path", "hub_id", "revision", "log_file", "tokenizer", "draft"})
_NAMES = frozenset({"name", "source", "shape"})  # of weights; in other places a name is only a label
_ADDRESSES = frozenset({"url", "attach", "host", "port"})
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//\S", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_RUNS_ITS_WORDS = re.compile(r"command|exec|script|shell|hook", re.IGNORECASE)


def disclosure(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    """Return (head, lines) of what the plan would execute, read, set and connect to; heads without lines are left out.

    A line that holds for all arms appears once.
    """
    found: dict[str, dict[str, list[str]]] = {head: {} for head in HEADS}
    for arm in plan.arms:
        for head, line in _of_arm(arm):
            arms = found[head].setdefault(line, [])
            if arm.name not in arms:
                arms.append(arm.name)
    for lock in plan.locks:
        for line in _locked(lock):
            found["packages installed"].setdefault(line, []).extend(_arms_in(plan, lock))
    every = len(plan.arms)
    return [
        (head, tuple(line if len(arms) == every else f"{line} ({', '.join(arms)})" for line, arms in lines.items()))
        for head, lines in found.items()
        if lines
    ]


def _locked(lock: Lock) -> Iterator[str]:
    """Each package of an environment. What is built from source runs its own code while it is installed."""
    for each in lock.packages:
        built = each.tag is None
        origin = f" from {each.source}" if each.source else ""
        name = each.name if each.version is None else f"{each.name} {each.version}"
        yield f"{name}{origin}{': builds, which runs its code' if built else ''}"


def _arms_in(plan: Plan, lock: Lock) -> list[str]:
    return [arm.name for arm in plan.arms if plan.lock_of(arm) is lock]


def _of_arm(arm: Arm) -> Iterator[tuple[str, str]]:
    for each in (arm.environment or {}).get("packages", ()):
        yield "packages installed", str(each)
    if arm.environment is not None and arm.environment.get("python"):
        yield "interpreters", f"environment.python={arm.environment['python']}"
    for part, values in (("engine", arm.engine), ("checkpoint", arm.checkpoint), ("draft", arm.draft or {})):
        for path, value in _leaves(values, part):
            yield from _classified(part, path, value)
    for path, value in _leaves(arm.sampling, "sampling"):
        yield from _classified("sampling", path, value)


def _classified(part: str, path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield from (("environment read", f"{path}: {reference}") for reference in _REFERENCE.findall(value))
    if path.startswith("engine.environment."):
        yield "environment", f"{path.removeprefix('engine.environment.')}={value}"
    elif path == "engine._target_":
        yield "engine classes", str(value)
    else:
        key = path.rpartition(".")[2]
        yield _head(part, key, value), f"{path}: the value of {value}" if key.endswith("_env") else f"{path}={value}"


def _head(part: str, key: str, value: Any) -> str:
    """Return the head of a setting by its name; an address is recognised by its form under any name."""
    rules = (
        ("environment read", key.endswith("_env")),
        ("commands", _RUNS_ITS_WORDS.search(key) is not None),
        ("interpreters", key.endswith("python")),
        ("addresses", key in _ADDRESSES or (isinstance(value, str) and _ADDRESS.search(value) is not None)),
        ("weights and files", key in _FILES or (part != "engine" and key in _NAMES)),
    )
    return next((head for head, holds in rules if holds), "other settings")


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of everything set; None, empty collections and empty texts set nothing."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _leaves(each, f"{path}.{number}")
    elif value is not None and value != "":
        yield path, value
