"""Messages as lines and back: what arrives is checked, field by field, against the annotations of its message.

Standard library only, as `workers.protocol`.
"""

import json
from collections.abc import Callable
from dataclasses import MISSING, asdict, fields, is_dataclass
from math import inf
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from workers.protocol import KINDS, Message
from workers.wellformed import well_formed_json

# A line longer than this is not a message: the longest real one, a generation of 100,000 tokens, has a few megabytes.
MAX_LINE_BYTES = 64 * 2**20


class ProtocolError(ValueError):
    """A line that is not a message of this protocol."""


def encode(message: Message, *, redact: Callable[[Any], Any] = lambda body: body) -> bytes:
    """One line, newline included, ASCII only: no character of a model's text can break the framing.

    Args:
        redact: what the message's plain values pass through on their way.
    """
    body = {"kind": message.kind} | asdict(message)
    return json.dumps(redact(body), separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def decode(line: bytes) -> Message:
    """The message of one line.

    Raises:
        ProtocolError: not JSON, an unknown kind, fields missing or unknown, or a value of another type than its field.
    """
    try:
        body = json.loads(line, parse_constant=_refuse_constant)
        if b"\\u" in line:
            body = well_formed_json(body)  # text of a model or a server may hold half a character
        cls = KINDS[body.pop("kind")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"not a message: {line[:200]!r}") from error
    return cls(**_checked_fields(cls, body, cls.kind))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def field_types(cls: type[Any]) -> dict[str, Any]:
    """The annotated types of a message's fields."""
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


def _checked_fields(cls: type[Any], body: dict[str, Any], where: str) -> dict[str, Any]:
    hints = field_types(cls)
    if unknown := set(body) - set(hints):
        raise ProtocolError(f"{where}: unknown fields {sorted(unknown)}")
    required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    if missing := required - set(body):
        raise ProtocolError(f"{where}: missing fields {sorted(missing)}")
    return {name: _checked(value, hints[name], f"{where}.{name}") for name, value in body.items()}


def _checked(value: Any, hint: Any, where: str) -> Any:
    """The value, if it is of the annotated type; an int may stand for a float."""
    if hint is Any:
        return value
    if isinstance(hint, UnionType):
        return _checked_optional(value, hint, where)
    origin = get_origin(hint)
    if origin is list and isinstance(value, list):
        (item_hint,) = get_args(hint)
        return [_checked(item, item_hint, where) for item in value]
    if origin is dict and isinstance(value, dict):  # JSON's keys are text
        return {key: _checked(item, get_args(hint)[1], where) for key, item in value.items()}
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        return hint(**_checked_fields(hint, value, where))
    # A bool is an int to isinstance, and must not pass for one. An int is stored in 64 bits.
    if type(value) is hint and value not in (inf, -inf) and not (hint is int and not -(2**63) <= value < 2**63):
        return value
    if hint is float and type(value) is int:
        return value
    raise ProtocolError(f"{where}: {hint} expected, not {value!r:.80}")


def _checked_optional(value: Any, hint: UnionType, where: str) -> Any:
    if value is None:
        return None
    (other,) = (arg for arg in get_args(hint) if arg is not NoneType)
    return _checked(value, other, where)
