"""The two factors of which a run's arms form a full table, read from the plan. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.plan import Arm, canonical_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A full table of arms by two factors."""

    first: str
    second: str
    levels: Mapping[str, tuple[str, str]]  # by arm
    base: tuple[str, str]  # the control's


@dataclass(frozen=True, slots=True, kw_only=True)
class _Factor:
    """Settings that divide the arms in one way."""

    name: str
    levels: tuple[str, ...]  # one per arm
    groups: tuple[int, ...]  # the same division, numbered by first appearance


def two_factors(arms: Sequence[Arm], *, control: str) -> Table | None:
    """The table, when exactly two independent things differ between the arms and every combination is there once."""
    factors = _independent(_factors(arms))
    if len(factors) != 2:
        return None
    first, second = factors
    cells = set(zip(first.groups, second.groups, strict=True))
    if not len(cells) == len(arms) == (max(first.groups) + 1) * (max(second.groups) + 1):
        return None
    names = [arm.name for arm in arms]
    levels = dict(zip(names, zip(first.levels, second.levels, strict=True), strict=True))
    return Table(first=first.name, second=second.name, levels=levels, base=levels[control])


def _factors(arms: Sequence[Arm]) -> list[_Factor]:
    settings = [_settings(arm) for arm in arms]
    keys = list(dict.fromkeys(key for one in settings for key in one))
    return [_factor(key, tuple(one.get(key, "none") for one in settings)) for key in keys]


def _factor(name: str, levels: tuple[str, ...]) -> _Factor:
    numbers: dict[str, int] = {}
    groups = tuple(numbers.setdefault(level, len(numbers)) for level in levels)
    return _Factor(name=name, levels=levels, groups=groups)


def _independent(factors: Sequence[_Factor]) -> list[_Factor]:
    """One factor for each way that the arms are divided; a coarser division follows from a finer one."""
    varied = {factor.groups: factor for factor in reversed(factors) if max(factor.groups) > 0}
    return [
        factor
        for factor in reversed(varied.values())
        if not any(_refines(other.groups, factor.groups) for other in varied.values() if other is not factor)
    ]


def _refines(finer: Sequence[int], coarser: Sequence[int]) -> bool:
    """Return whether every group of the finer division lies within one of the coarser."""
    return len(set(zip(finer, coarser, strict=True))) == max(finer) + 1


def _settings(arm: Arm) -> dict[str, str]:
    """Return the settings that may differ between arms, the most informative first."""
    found = {"checkpoint": str(arm.checkpoint["name"]), "engine": str(arm.engine["name"])}
    found |= _flat("engine", {key: value for key, value in arm.engine.items() if key not in ("name", "_target_")})
    found |= _flat("sampling", arm.sampling)
    found["environment"] = "current" if arm.environment is None else str(arm.environment["name"])
    return found


def _flat(group: str, values: Mapping[str, Any]) -> dict[str, str]:
    texts = {key: value if isinstance(value, str) else canonical_json(value) for key, value in values.items()}
    return {f"{group}.{key}": text for key, text in texts.items()}
