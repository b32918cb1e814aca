"""Build frozen dataclasses from JSON values, and check every field against its annotation. Pure.

A stored plan may have been written by anybody: a value of a wrong type must be found when it is read, not in the
middle of an audit.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def build(kind: Callable[..., T], values: Any, *, where: str) -> T:
    """A dataclass of these values; tuples are read from lists, and whole numbers count as floats.

    Raises:
        ValueError: a missing or unknown key, or a value of another type; the message names the place.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{where} is not an object")
    hints = _hints(kind)
    if unknown := sorted(set(values) - set(hints)):
        raise ValueError(f"{where} has an unknown key {unknown[0]!r}")
    optional = {
        each.name for each in _fields(kind) if each.default is not MISSING or each.default_factory is not MISSING
    }
    if missing := sorted(set(hints) - set(values) - optional):
        raise ValueError(f"{where} lacks {missing[0]!r}")
    return kind(**{name: _value(hints[name], value, f"{where}.{name}") for name, value in values.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, UnionType):
        return None if value is None and NoneType in arguments else _value(_without_none(arguments), value, where)
    if origin is tuple:
        return tuple(
            _value(arguments[0], each, f"{where}[{number}]") for number, each in enumerate(_list(value, where))
        )
    if origin is dict:
        return {key: _value(arguments[1], each, f"{where}.{key}") for key, each in _object(value, where).items()}
    if hasattr(hint, "__dataclass_fields__"):
        return build(hint, value, where=where)
    return _scalar(hint, value, where)


def _scalar(hint: type, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return value  # as it was hashed
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ValueError(f"{where} is not {_WORDS[hint]}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is not a finite number")
    return value


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def _list(value: Any, where: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where} is not a list")
    return value


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is not an object")
    return value


def _without_none(arguments: tuple[Any, ...]) -> Any:
    return next(each for each in arguments if each is not NoneType)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _fields(kind: Any) -> Any:
    return fields(kind)
