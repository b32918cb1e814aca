"""Interpolations in a configuration: which there may be, and which are resolved only when a worker needs their value.

A plan is made once and stored: what it holds must not depend on the day or the folder. A value from the environment is
written into the plan if it is a setting of the experiment. If it describes how to reach a server (an address, the
further keys of a request, a process's environment) the plan holds the reference, for the value may be a secret; see
`workers.references`.
"""

import os
import re
from collections.abc import Callable
from typing import Any

from omegaconf import Node, OmegaConf

from db.redaction import NOT_SECRET, allowed_by, is_plain, literals, looks_secret
from orchestrator.errors import InputError
from workers.references import PLACES

ALLOWED = ("${.key}", "${oc.env:NAME}", "${oc.env:NAME,DEFAULT}", "${oc.decode:TEXT}", "${oc.create:TEXT}")
# Resolvers of Hydra and omegaconf that a plan must not depend on.
_IMPURE = {
    "now": "the time of day would make another plan each time",
    "hydra": "Hydra's own settings have no part in a run",
    "python_version": "an interpreter is named by engine.python, and its version is recorded",
    "oc.deprecated": "no key here is deprecated",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# In place of a reference until all is resolved: a dollar would be taken for another interpolation. Of a private area.
_BEGIN, _END = "\ue0f0", "\ue0f1"
_MARKED = re.compile(f"{_BEGIN}([A-Za-z0-9_]+){_END}")


def register_resolvers() -> None:
    """Ours in place of omegaconf's and Hydra's, which Hydra registers anew whenever it composes."""
    OmegaConf.register_new_resolver("oc.env", _environment, replace=True)
    for name, why in _IMPURE.items():
        OmegaConf.register_new_resolver(name, _refusing(name, why), replace=True)


def _refusing(name: str, why: str) -> Callable[..., Any]:
    def refuse(*arguments: Any) -> Any:
        raise InputError(f"${{{name}:...}} is not allowed: {why}; allowed: {', '.join(ALLOWED)}")

    return refuse


def _environment(*arguments: Any, _node_: Node) -> Any:
    """Return a variable's value, or a mark if it is resolved later."""
    name, default = (arguments or (None,))[0], arguments[1:]
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(default) > 1:
        raise InputError("${oc.env:...} takes a variable's name, and after a comma a default: ${oc.env:NAME,DEFAULT}")
    value = os.environ.get(name)
    if value is None:
        if default:
            return default[0]
        raise InputError(
            f"the environment has no variable {name}; export {name}, or give a default: ${{oc.env:{name},DEFAULT}}"
        )
    key = _node_._get_full_key(None)  # noqa: SLF001 - omegaconf has no public way to get a node's place
    secret = name not in allowed_by(os.environ) and (looks_secret(name) or bool(literals(value)))
    if _may_refer(key):
        return value if is_plain(value) and not secret else f"{_BEGIN}{name}{_END}"
    if secret:
        raise InputError(_not_here(key, name))
    return value


def _may_refer(key: str) -> bool:
    group, _, rest = key.partition(".")
    return group == "engine" and re.split(r"[.\[]", rest)[0] in PLACES


def _not_here(key: str, name: str) -> str:
    places = ", ".join(f"engine.{place}" for place in PLACES)
    return (
        f"{name} looks like a secret, and {key} is stored, exported and shown; refer to secrets in {places} only; "
        f"if {name} is no secret, set {NOT_SECRET}={name}"
    )


def references_kept(value: Any, key: str) -> Any:
    """Resolved values with the references themselves in place of their marks.

    Raises:
        InputError: an interpolation has copied a reference to another place.
    """
    if isinstance(value, str) and _BEGIN in value:
        if not _may_refer(key):
            raise InputError(_not_here(key, _MARKED.findall(value)[0]))
        return _MARKED.sub(r"${oc.env:\1}", value)
    if isinstance(value, dict):
        return {name: references_kept(each, f"{key}.{name}" if key else str(name)) for name, each in value.items()}
    if isinstance(value, list):
        return [references_kept(each, key) for each in value]
    return value
