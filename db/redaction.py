"""What must not be stored or leave the machine: values of environment variables that look like secrets. Pure."""

import re
from collections.abc import Mapping
from typing import Any

ENVIRONMENT = "environment"  # the key under which a configuration holds environment variables
REDACTED = "<redacted>"
_SECRET = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PASSKEY|CREDENTIALS?|AUTH|AUTHORIZATION|BEARER|COOKIE|APIKEY"
    r"|API_KEY|ACCESS_KEY|PRIVATE_KEY)(_|$)|(^|_)(KEY|PWD|PAT|PASS)$",
    re.IGNORECASE,
)


def looks_secret(name: str) -> bool:
    """Whether an environment variable's name is that of a key, a token or a password."""
    return _SECRET.search(name) is not None


def redacted(value: Any) -> tuple[Any, tuple[str, ...]]:
    """JSON values with secrets replaced, and the names of the variables whose values were.

    Only what stands under a key `environment` is looked at: elsewhere a configuration holds names of variables.
    """
    names: list[str] = []
    return _walk(value, names), tuple(dict.fromkeys(names))


def _walk(value: Any, names: list[str]) -> Any:
    if isinstance(value, list | tuple):
        return [_walk(each, names) for each in value]
    if not isinstance(value, Mapping):
        return value
    return {
        key: _variables(each, names) if key == ENVIRONMENT and isinstance(each, Mapping) else _walk(each, names)
        for key, each in value.items()
    }


def _variables(variables: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    kept = {}
    for name, value in variables.items():
        hide = looks_secret(name) and value != REDACTED
        if hide:
            names.append(name)
        kept[name] = REDACTED if hide else value
    return kept
