"""Keep secrets out of plans, which are stored, exported and shown.

A plan may refer to a secret, `${oc.env:NAME}`; one that stands in the configuration literally is refused, and not
repeated in the refusal.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from db.redaction import NOT_SECRET, allowed_by, is_plain, literals, literals_under, looks_secret, name_below
from orchestrator.errors import InputError
from orchestrator.plan import Arm, Plan, dump
from workers.masking import KNOWN
from workers.references import names_of_engine, watch

# Engine settings whose text may contain a secret after its name. Elsewhere only the form of a value reveals one.
_NAMED = frozenset(("attach", "body", "log_command", "url"))


def watch_for_literals(overrides: Sequence[str]) -> None:
    """Mask what looks like a secret in these lines from now on, whatever is wrong with them."""
    allowed = allowed_by(os.environ)
    for line in overrides:
        if line.partition("=")[0].rpartition(".")[2] not in allowed:
            KNOWN.add(*literals(line, allowed=allowed))


def watch_references(arms: Sequence[Arm]) -> None:
    """Mask the values of all variables that these arms refer to."""
    for arm in arms:
        watch(names_of_engine(arm.engine))


def refuse_literals(arms: Sequence[Arm]) -> None:
    """Raises:
    InputError: a secret stands in an arm's configuration; names the place and the remedy, not the secret.
    """
    allowed = allowed_by(os.environ)
    for arm in arms:
        packages = dict(enumerate((arm.environment or {}).get("packages", ())))
        parts = {"checkpoint": arm.checkpoint, "engine": arm.engine, "sampling": arm.sampling, "draft": arm.draft}
        parts["environment"] = {"packages": packages}
        for key, found in _literals(parts):
            if key.rpartition(".")[2] not in allowed:
                KNOWN.add(*found)
                raise InputError(_refusal(key))
        refuse_variable_name(arm.engine.get("api_key_env"))


def refuse_variable_name(name: Any) -> None:
    """Raises:
    InputError: `api_key_env` holds a key in place of a variable's name.
    """
    if name is None:
        return
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)) or literals(str(name)):
        KNOWN.add(str(name))
        raise InputError(
            "engine.api_key_env takes the name of an environment variable, never the key itself: export the key as "
            "MY_KEY and set engine.api_key_env=MY_KEY"
        )


def refuse_known(plan: Plan) -> None:
    """Raises:
    InputError: the plan holds the value of a secret that this process knows.
    """
    if KNOWN.mask(text := dump(plan)) == text:
        return
    body = asdict(plan)
    body["command"] = body.pop("command")  # looked at last: it repeats what stands elsewhere
    for key, value in _texts(body, ""):
        if KNOWN.mask(value) != value:
            raise InputError(_refusal(key))
    raise InputError(_refusal("a key of the configuration"))


def _refusal(key: str) -> str:
    name = re.sub(r"\W+", "_", key.rpartition(".")[2]).upper()
    return (
        f"{key} holds a secret, and a plan is stored, exported and shown; put it into an environment variable and "
        f"write {_remedy(key, name)}; if it is no secret, set {NOT_SECRET}={key}"
    )


def _remedy(key: str, name: str) -> str:
    if key == "engine.log_command":
        return f"a command that reads ${name} from its environment, which it inherits: arguments are shown by ps"
    return f"${{oc.env:{name if looks_secret(name) else 'NAME'}}}"


def _literals(parts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """(dotted key, the secrets in its value) for each that holds some."""
    for group, part in parts.items():
        for key, value in (part or {}).items():
            if key == "api_key_env":
                continue
            where = f"{group}.{key}"
            if group == "engine" and key == "environment":
                yield from _variables(where, value)
            elif isinstance(value, Mapping):
                yield from ((inner, found) for inner, found in _nested(where, value) if found)
            elif isinstance(value, str) and (found := literals(value, named=group == "engine" and key in _NAMED)):
                yield where, found


def _variables(where: str, variables: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    for name, value in variables.items():
        found = literals_under(name, str(value))
        if looks_secret(name) and "${" not in str(value) and not is_plain(str(value)):
            found = [str(value)]
        if found:
            yield f"{where}.{name}", found


def _nested(where: str, value: Mapping[str, Any], outer: str = "") -> Iterator[tuple[str, list[str]]]:
    for key, each in value.items():
        name = name_below(outer, str(key))
        if isinstance(each, Mapping):
            yield from _nested(f"{where}.{key}", each, name)
        else:
            yield f"{where}.{key}", literals_under(name, each)


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """(where, text) for all texts in plain values; an arm's and a prompt's number left out."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts(each, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each, key)
