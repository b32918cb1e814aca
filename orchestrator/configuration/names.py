"""Short names for arms, made of what differs between them; and the control that a name chooses."""

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError
from orchestrator.plan import Arm
from workers.environment import DISTRIBUTIONS, versions_by_files

# Characters that a name must not contain: SQL, a shell or a table would need them escaped.
_UNSAFE = re.compile(r"[^A-Za-z0-9 _.=+:/-]+")

_INTERPRETERS = ("python", "server_python")
_VERSIONS_SHOWN = 3

Values = Mapping[str, Any]
Shown = dict[str, dict[str, str]]  # by key that differs: by value (its repr), how a name says it


def name_arms(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    """The arms with their names: checkpoint, engine, sampling, settings and environment, as far as they differ.

    The first arm's engine goes without saying where the checkpoint is said.
    """
    named = []
    taken: dict[str, int] = defaultdict(int)
    for arm, tokens in zip(arms, _tokens(arms), strict=True):
        name = " ".join(tokens) or _safe(arm.checkpoint["name"])
        taken[name] += 1
        named.append(replace(arm, name=name if taken[name] == 1 else f"{name} no.{taken[name]}"))
    return tuple(named)


def choose_control(arms: Sequence[Arm], wanted: str | None) -> str:
    """The name of the control: the one asked for, in whole or by a part that no other has; else the first.

    Raises:
        InputError: no arm, or more than one, has it.
    """
    names = [arm.name for arm in arms]
    if wanted is None or wanted in names:
        return wanted or names[0]
    matching = [name for name in names if wanted in name]
    if len(matching) == 1:
        return matching[0]
    problem = f"fits {len(matching)} arms" if matching else "is not the name of an arm"
    shown = matching or names
    more = f" and {len(shown) - 20} more" if len(shown) > 20 else ""
    raise InputError(f"control={wanted} {problem}; choose one of: {'; '.join(shown[:20])}{more}")


def _tokens(arms: Sequence[Arm]) -> Iterator[list[str]]:
    checkpoints = _differing(arms, lambda arm: arm.checkpoint, lambda arm: arm.checkpoint["name"])
    engines = _differing(arms, _engine, lambda arm: arm.engine["name"])
    samplings = _differing(arms, lambda arm: arm.sampling, lambda arm: arm.sampling["name"])
    drafts = _differing(arms, _draft, lambda arm: (arm.engine["name"], arm.checkpoint["name"]))
    many = {part: len({_value(arm, part)["name"] for arm in arms}) > 1 for part in ("checkpoint", "engine", "sampling")}
    several_environments = len({environment_name(arm) for arm in arms}) > 1
    plain = arms[0].engine["name"]
    for arm in arms:
        engine = arm.engine["name"]
        tokens = [arm.checkpoint["name"]] if many["checkpoint"] else []
        tokens += _settings(arm.checkpoint, checkpoints[arm.checkpoint["name"]])
        if many["engine"] and not (many["checkpoint"] and engine == plain):
            tokens.append(engine)
        tokens += _settings(_engine(arm), engines[engine])
        tokens += _settings(_draft(arm), drafts[engine, arm.checkpoint["name"]])
        if many["sampling"]:
            tokens.append(arm.sampling["name"])
        tokens += _settings(arm.sampling, samplings[arm.sampling["name"]])
        if several_environments:
            tokens.append(environment_name(arm))
        yield [_safe(token) for token in tokens]


def environment_name(arm: Arm) -> str:
    """Return the name of an arm's environment, `current` for the one that interlace runs in."""
    return "current" if arm.environment is None else str(arm.environment["name"])


def _value(arm: Arm, part: str) -> dict[str, Any]:
    value: dict[str, Any] = getattr(arm, part)
    return value


def _engine(arm: Arm) -> dict[str, Any]:
    """The engine's settings without the draft, which may follow from the checkpoint and is compared separately."""
    return {key: value for key, value in arm.engine.items() if key != "draft"}


def _draft(arm: Arm) -> dict[str, Any]:
    return {"draft": arm.draft["name"] if arm.draft else None}


def _differing(arms: Iterable[Arm], values: Callable[[Arm], Values], kin: Callable[[Arm], Any]) -> dict[Any, Shown]:
    """The keys that differ among arms of the same kin, in the schema's order, with short distinct texts of values."""
    seen: dict[Any, dict[str, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for arm in arms:
        leaves = _leaves(values(arm))
        for key, value in leaves.items():
            seen[kin(arm)][key][repr(value)] = value
    return {
        group: {key: _told_apart(key, found) for key, found in keys.items() if len(found) > 1}
        for group, keys in seen.items()
    }


def _told_apart(key: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as short texts, each long enough to differ from the others."""
    name = key.rpartition(".")[2]
    if name in _INTERPRETERS:
        return _environments(values)
    short = {each: _text(value) for each, value in values.items()}
    if len(set(short.values())) == len(short):
        return short
    return _endings({each: str(value) for each, value in values.items()})


def _endings(paths: Mapping[str, str]) -> dict[str, str]:
    """The shortest ends of paths, in whole parts, that differ."""
    parts = {each: path.rstrip("/").split("/") for each, path in paths.items()}
    for count in range(1, max(map(len, parts.values())) + 1):
        found = {each: "/".join(own[-count:]) for each, own in parts.items()}
        if len(set(found.values())) == len(found):
            return found
    return {each: paths[each] for each in parts}


def _environments(values: Mapping[str, Any]) -> dict[str, str]:
    """Name interpreters by their environments' folders, and by the versions that differ, as far as files show them."""
    found = {each: Path(value or sys.executable) for each, value in values.items()}
    folders = {each: path.parent.parent if path.parent.name == "bin" else path for each, path in found.items()}
    named = _endings({each: str(folder) for each, folder in folders.items()})
    versions = {each: versions_by_files(path) for each, path in found.items()}
    every = [name for name in DISTRIBUTIONS if len({repr(own.get(name)) for own in versions.values()}) > 1]
    differing = every[:_VERSIONS_SHOWN] if all(versions.values()) else []
    return {
        each: " ".join(
            [
                _text(values[each]) if values[each] is None else named[each],
                *(f"{name}={versions[each].get(name) or 'none'}" for name in differing),
            ]
        )
        for each in values
    }


def _leaves(values: Values) -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            leaves |= {f"{key}.{inner}": leaf for inner, leaf in _leaves(value).items()}
        else:
            leaves[key] = value
    return leaves


def _settings(values: Values, shown: Shown) -> list[str]:
    leaves = _leaves(values)
    return [
        f"{key.rpartition('.')[2]}={found.get(repr(leaves.get(key)), _text(leaves.get(key)))}"
        for key, found in shown.items()
    ]


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).rstrip("/").rpartition("/")[2]


def _safe(text: str) -> str:
    return _UNSAFE.sub("_", text).strip()
