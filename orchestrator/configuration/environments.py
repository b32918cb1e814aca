"""The environment of an arm: its packages read and checked, and named by what they are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.configuration.engines import kind_by_target
from orchestrator.configuration.groups import Part, Parts
from orchestrator.configuration.overrides import COMMAND_LINE, Setting
from orchestrator.environments.requirements import check_python, label, read
from orchestrator.errors import InputError
from orchestrator.plan import Arm, canonical_json

CURRENT = "current"


def environment_of(
    environment: Mapping[str, Any],
    *,
    part: Part,
    parts: Parts,
    given: Sequence[tuple[Setting, Any]],
    engine: Mapping[str, Any],
) -> dict[str, Any]:
    """The environment with absolute paths and a name; empty for the one that interlace runs in.

    Args:
        given: overrides below `environment`.
        engine: the arm's resolved engine, to which it has to apply.

    Raises:
        InputError: a package that is none, a path that does not exist, or an engine that it does not apply to.
    """
    if not (environment["packages"] or environment["python"] or environment["newest"]):
        return {}
    _require_engine(engine)
    typed = next((setting for setting, _ in given if setting.key == "environment.packages"), None)
    on_line = typed is not None and typed.origin == COMMAND_LINE
    packages = [read(each, folder=None if on_line else parts.folder_of(part)).text for each in environment["packages"]]
    check_python(environment["python"])
    option = environment["name"]
    otherwise = f"Python {environment['python']}" if option == CURRENT and not packages else option
    return {**environment, "packages": packages, "name": label(packages, otherwise=otherwise)}


def _require_engine(engine: Mapping[str, Any]) -> None:
    """An environment has to reach the process that runs the model."""
    kind = kind_by_target(str(engine["_target_"]))
    name = engine["name"]
    if kind is not None and not kind.follows_environment:
        raise InputError(
            f"environment does not apply to engine {name}, whose server is not started by this Python; "
            "name its program in the engine's own settings, or choose environment=current"
        )
    for key, remedy in (("python", "leave out one of them"), ("server_python", "leave out one of them")):
        if engine.get(key):
            raise InputError(f"engine.{key} and environment both choose the interpreter of engine {name}; {remedy}")
    if engine.get("attach"):
        raise InputError(
            f"environment does not apply to engine {name} with engine.attach, whose server already runs; "
            "leave out engine.attach, or choose environment=current"
        )


def distinct_environments(arms: Sequence[Arm]) -> list[Arm]:
    """The arms with one name per environment: two that would share one are numbered."""
    names: dict[str, str] = {}
    taken: dict[str, int] = {}
    found = []
    for arm in arms:
        if arm.environment is None:
            found.append(arm)
            continue
        content = canonical_json({key: value for key, value in arm.environment.items() if key != "name"})
        if content not in names:
            own = str(arm.environment["name"])
            taken[own] = taken.get(own, 0) + 1
            names[content] = own if taken[own] == 1 else f"{own} no.{taken[own]}"
        found.append(replace(arm, environment={**arm.environment, "name": names[content]}))
    return found
