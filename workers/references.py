"""References to environment variables in a configuration, `${oc.env:NAME}`, resolved where they are used.

A plan holds the reference and never the value, which may be a secret: it is looked up by the process that sends it, and
from then on masked in all that this process prints.
"""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from workers.errors import EngineError, FaultKind
from workers.masking import KNOWN

# Of an engine's configuration: what a reference may stand in. All else is a setting of the experiment.
PLACES = ("attach", "body", "environment", "url")
REFERENCE = re.compile(r"\$\{oc\.env:([A-Za-z_][A-Za-z0-9_]*)\}")
# Variables that say where things are on this machine: to mask their values would leave no message readable.
_PUBLIC = frozenset("HOME HOST HOSTNAME LANG LOGNAME OLDPWD PATH PWD SHELL TMPDIR USER VIRTUAL_ENV".split())


def names_in(value: Any) -> Iterator[str]:
    """The variables that plain JSON values refer to."""
    if isinstance(value, str):
        yield from REFERENCE.findall(value)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from names_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from names_in(each)


def names_of_engine(engine: Mapping[str, Any]) -> list[str]:
    """The variables that an engine's configuration refers to, `api_key_env` included."""
    named = [name] if isinstance(name := engine.get("api_key_env"), str) else []
    return list(dict.fromkeys([*named, *(each for place in PLACES for each in names_in(engine.get(place)))]))


def resolved_engine(engine: Mapping[str, Any]) -> dict[str, Any]:
    """An engine's settings with the values in place of the references.

    Raises:
        EngineError: a variable that the environment does not hold.
    """
    return {key: resolved(value, f"engine.{key}") if key in PLACES else value for key, value in engine.items()}


def resolved(value: Any, where: str) -> Any:
    """Plain JSON values with the variables' values in place of the references, which are masked from now on.

    Raises:
        EngineError: a variable that the environment does not hold.
    """
    if isinstance(value, str):
        return REFERENCE.sub(lambda found: _value(found.group(1), where), value)
    if isinstance(value, Mapping):
        return {key: resolved(each, f"{where}.{key}") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(each, where) for each in value]
    return value


def watch(names: Iterator[str] | list[str]) -> None:
    """Mask the values of these variables."""
    KNOWN.add_variables(name for name in names if name not in _PUBLIC)


def _value(name: str, where: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise EngineError(
            FaultKind.unsupported_setting,
            f"the environment has no variable {name}, which {where} refers to",
            remedy=f"export {name}",
        )
    watch([name])
    return value
