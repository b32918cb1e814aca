"""What executing a plan would do to this machine, said before it is done. Pure.

Every setting of every arm is listed: what is known to start a program, to change one's environment, to be spoken to or
to be read stands under its own head, and whatever else is set under the last. Nothing is left out for being unknown.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.plan import Arm, Plan

HEADS = (
    "commands",
    "interpreters",
    "environment",
    "environment read",
    "addresses",
    "weights and files",
    "engine classes",
    "other settings",
)
_FILES = frozenset({"path", "hub_id", "revision", "log_file", "tokenizer", "draft"})
_NAMES = frozenset({"name", "source", "shape"})  # of weights; elsewhere a name is only a name
_ADDRESSES = frozenset({"url", "attach", "host", "port"})
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//\S", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_RUNS_ITS_WORDS = re.compile(r"command|exec|script|shell|hook", re.IGNORECASE)


def disclosure(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    """(head, lines) of what the plan would execute, read, set and speak to; heads without a line are left out.

    A line that holds for all arms is said once.
    """
    found: dict[str, dict[str, list[str]]] = {head: {} for head in HEADS}
    for arm in plan.arms:
        for head, line in _of_arm(arm):
            arms = found[head].setdefault(line, [])
            if arm.name not in arms:
                arms.append(arm.name)
    every = len(plan.arms)
    return [
        (head, tuple(line if len(arms) == every else f"{line} ({', '.join(arms)})" for line, arms in lines.items()))
        for head, lines in found.items()
        if lines
    ]


def _of_arm(arm: Arm) -> Iterator[tuple[str, str]]:
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
    """By the setting's name; an address is known by its form wherever it stands."""
    rules = (
        ("environment read", key.endswith("_env")),
        ("commands", _RUNS_ITS_WORDS.search(key) is not None),
        ("interpreters", key.endswith("python")),
        ("addresses", key in _ADDRESSES or (isinstance(value, str) and _ADDRESS.search(value) is not None)),
        ("weights and files", key in _FILES or (part != "engine" and key in _NAMES)),
    )
    return next((head for head, holds in rules if holds), "other settings")


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of everything set; None, empty collections and empty texts set nothing."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _leaves(each, f"{path}.{number}")
    elif value is not None and value != "":
        yield path, value
