"""Check, before anything runs, that a checkpoint's configuration states where its weights are."""

import os
import re
from collections.abc import Mapping
from typing import Any

from orchestrator.configuration.engines import is_attached, is_simulated
from orchestrator.configuration.groups import Part, Parts
from orchestrator.configuration.overrides import Setting, suggest
from orchestrator.errors import InputError

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_WITHOUT_WEIGHTS = ("simulated", "served")
_NEEDED = {"hub": "hub_id", "local": "path", "gguf": "path", "dummy": "shape"}


def usable(
    checkpoint: dict[str, Any], *, part: Part, parts: Parts, given: Mapping[str, Setting], engine: type[Any]
) -> dict[str, Any]:
    """The checkpoint with an absolute path, fit for the engine.

    Args:
        given: overrides below `checkpoint`, by key.

    Raises:
        InputError: a source that lacks its place, a path that does not exist, no weights for a real engine.
    """
    name, source = checkpoint["name"], checkpoint["source"]
    if is_simulated(engine):
        return checkpoint
    if source == "unknown" and not is_attached(engine):
        raise InputError(
            f"checkpoint {name} is whatever a server holds, for engines that attach to one: {_real(parts)}"
        )
    if source == "simulated":
        raise InputError(f"checkpoint {name} has no weights and is for engine=simulated; {_real(parts)}")
    needed = _NEEDED.get(source)
    if needed is not None and checkpoint[needed] is None:
        raise InputError(f"checkpoint {name} ({parts.file(part)}): source {source} needs {needed}; set it")
    if source == "dummy":
        _check_shape(checkpoint)
    if source == "hub" and not _HUB_ID.fullmatch(checkpoint["hub_id"]):
        raise InputError(f"checkpoint {name}: hub_id {checkpoint['hub_id']!r} is not a valid hub id; use owner/model")
    if checkpoint["path"] is None:
        return checkpoint
    path = parts.absolute(checkpoint["path"], part=part, setting=given.get("checkpoint.path"))
    if not path.exists():
        raise InputError(f"checkpoint {name} ({parts.file(part)}): no such path {path}; set checkpoint.path")
    return checkpoint | {"path": str(path)}


def interpreter(engine: dict[str, Any], *, part: Part, parts: Parts, given: Mapping[str, Setting]) -> dict[str, Any]:
    """The engine with the absolute path of the interpreter that runs it, if it names one.

    Links are kept: a virtual environment's interpreter is a link, and knows its environment by its own place.

    Args:
        given: overrides below `engine`, by key.

    Raises:
        InputError: there is no such program.
    """
    if engine["python"] is None:
        return engine
    path = parts.absolute(engine["python"], part=part, setting=given.get("engine.python"))
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise InputError(
            f"engine {engine['name']}: engine.python={path} is not a program; give an interpreter, such as "
            "ENV/bin/python"
        )
    return engine | {"python": str(path)}


def _real(parts: Parts) -> str:
    return f"choose another: {', '.join(name for name in parts.options('checkpoint') if name not in _WITHOUT_WEIGHTS)}"


def _check_shape(checkpoint: Mapping[str, Any]) -> None:
    from workers.weights.dummies import SHAPES

    if checkpoint["shape"] not in SHAPES:
        hint = suggest(checkpoint["shape"], list(SHAPES))
        raise InputError(f"checkpoint {checkpoint['name']}: no dummy shape is named {checkpoint['shape']!r}; {hint}")
