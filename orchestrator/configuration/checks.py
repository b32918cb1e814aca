"""Check settings against their schema: unknown keys, wrong types, missing values and values out of bounds.

omegaconf does the checking; this module reports the result in one line that names the place and the remedy.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from conf.store import GROUP_SCHEMAS, PLAN_GROUPS, setting_names
from orchestrator.configuration.engines import engine_kinds
from orchestrator.configuration.overrides import Setting, suggest
from orchestrator.errors import InputError
from workers.settings import problems

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def has_key(schema: type[Any], key: str) -> bool:
    """Return whether a dotted key below a group may be set."""
    name, _, rest = key.partition(".")
    if name not in setting_names(schema):
        return False
    if not rest:
        return True
    inner = _hints(schema)[name]
    return is_open(inner) or (isinstance(inner, type) and is_dataclass(inner) and has_key(inner, rest))


@cache
def all_settings() -> tuple[str, ...]:
    """The full key of every setting that an override may change: design.rounds, engine.block_size, ..."""
    groups = [(group, GROUP_SCHEMAS[group]) for group in PLAN_GROUPS if group not in ("engine", "sweep")]
    engines = [("engine", kind.schema) for kind in engine_kinds().values()]
    return tuple(dict.fromkeys(key for group, config in [*groups, *engines] for key in _keys_below(group, config)))


def _keys_below(prefix: str, schema: type[Any]) -> Iterator[str]:
    for name in setting_names(schema):
        yield f"{prefix}.{name}"
        inner = _hints(schema)[name]
        if isinstance(inner, type) and is_dataclass(inner):
            yield from _keys_below(f"{prefix}.{name}", inner)


def engines_with(*keys: str) -> list[str]:
    """The engines that have all these settings, named as `engine=` takes them."""
    return [kind.name for kind in engine_kinds().values() if all(has_key(kind.schema, key) for key in keys)]


def is_open(hint: Any) -> bool:
    """Return whether a field accepts arbitrary keys below it."""
    return get_origin(hint) is dict


def key_error(where: str, group: str, schema: type[Any], key: str) -> InputError:
    """Return the error for a key that the group's schema does not have."""
    parents, name = key.split(".")[:-1], key.split(".")[-1]
    for parent in parents:
        schema = _hints(schema)[parent] if is_dataclass(schema) and has_key(schema, parent) else object
    prefix = ".".join([group, *parents])
    if not is_dataclass(schema):
        return InputError(f"{where}: {group}.{key} is not a setting; {prefix} has no keys below it")
    return InputError(f"{where}: {group}.{key} is not a setting; {suggest(name, setting_names(schema))}")


def type_error(where: str, group: str, schema: type[Any], key: str, value: Any) -> InputError:
    """Return the error for a value that the field does not accept."""
    expected = _words_of(_hint(schema, key))
    shown = "null" if value is None else f"{value!r}"
    return InputError(f"{where}: {group}.{key} takes {expected}, not {shown}")


def omegaconf_error(where: str, group: str, schema: type[Any], key: str, error: OmegaConfBaseException) -> InputError:
    """Return the error for a failure of omegaconf to merge a YAML file's values into a schema."""
    if not has_key(schema, key):
        return key_error(where, group, schema, key)
    message = first_line(error)
    if message.endswith("is not Optional") or message.startswith("Incompatible value 'None'"):
        return type_error(where, group, schema, key, None)
    found = re.search(r"[Vv]alue:? '?(.*?)'?(?: of type .*|, expected one of .*|$)", message)
    if found is None or found.group(1).startswith("assigned: "):  # names omegaconf's classes, not the value
        return InputError(f"{where}: {group}.{key} takes {_words_of(_hint(schema, key))}")
    return type_error(where, group, schema, key, found.group(1))


def check_sweep(where: str, sweep: DictConfig) -> None:
    """Require that a stored experiment's lists are lists. Runs before omegaconf, whose messages on lists are unclear.

    Raises:
        InputError: the message contains the corrected line.
    """
    plain = OmegaConf.to_container(sweep)
    assert isinstance(plain, dict)
    overrides, arms = plain.get("overrides", []), plain.get("arms", [])
    if not isinstance(overrides, list):
        raise InputError(f"{where}: sweep.overrides takes a list: [{_override(overrides, 'workload=quick')}]")
    if not isinstance(arms, list):
        raise InputError(f"{where}: sweep.arms takes a list of lists: [[{_override(arms, 'engine=mlx_lm')}]]")
    for arm in arms:
        if not isinstance(arm, list):
            raise InputError(f"{where}: each entry of arms is a list: `- [{_override(arm, 'engine=mlx_lm')}]`")
    for key, line in [*(("overrides", line) for line in overrides), *(("arms", line) for arm in arms for line in arm)]:
        if not isinstance(line, str):
            example = "workload=quick" if key == "overrides" else "engine=mlx_lm"
            raise InputError(f"{where}: each override in {key} is text: {_override(line, example)}")


def _override(value: Any, example: str) -> str:
    """Return a value of another form as an override in a YAML list, or the example if it cannot be converted."""
    if isinstance(value, Mapping) and len(value) == 1:
        ((key, inner),) = value.items()
        line = f"{key}={inner}" if isinstance(inner, (str, int, float)) else example
    else:
        line = value if isinstance(value, str) and "=" in value else example
    return line if re.fullmatch(r"[\w.=/-]+", line) else json.dumps(line, ensure_ascii=False)


def set_value(tree: DictConfig, schema: type[Any], setting: Setting, value: Any) -> None:
    """Set one key of a typed part, in place.

    Args:
        tree: {group: part}.

    Raises:
        InputError: naming the override, the key and what it takes.
    """
    group, _, key = setting.key.partition(".")
    if not has_key(schema, key):
        raise key_error(setting.where, group, schema, key)
    if _hint(schema, key) is bool and not isinstance(value, bool):
        raise type_error(setting.where, group, schema, key, value)  # omegaconf accepts any number as a boolean
    try:
        OmegaConf.update(tree, setting.key, value, merge=True, force_add=_is_or_below_open(schema, key))
    except OmegaConfBaseException as error:
        inner = str(error.full_key or setting.key).removeprefix(f"{group}.").partition("[")[0]  # of a list: its key
        if not has_key(schema, inner):
            raise key_error(setting.where, group, schema, inner) from error
        raise type_error(setting.where, group, schema, key, value) from error


def all_problems(schema: type[Any], values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(dotted key, what is wrong) for resolved values: missing ones and those outside their limits."""
    for key, value in values.items():
        if value == "???":
            yield key, f"is missing; it takes {_words_of(_hint(schema, key))}"
        elif not _fits(value, _hint(schema, key)):  # a reference's value, which omegaconf does not check
            yield key, f"takes {_words_of(_hint(schema, key))}, not {value!r}"
    yield from problems(getattr(schema, "settings_kind", schema), values)
    for name, hint in _hints(schema).items():
        if isinstance(hint, type) and is_dataclass(hint) and isinstance(values.get(name), Mapping):
            yield from ((f"{name}.{key}", problem) for key, problem in all_problems(hint, values[name]))


def _fits(value: Any, hint: Any) -> bool:
    """Return whether the value is a mapping or a list exactly if the type is one."""
    hints = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if value is None or Any in hints:
        return True
    mappings = any(is_open(each) or (isinstance(each, type) and is_dataclass(each)) for each in hints)
    lists = any(get_origin(each) is list for each in hints)
    return isinstance(value, Mapping) == mappings and isinstance(value, list) == lists


def first_line(error: Exception) -> str:
    """Return the informative line of an error message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


def _hint(schema: Any, key: str) -> Any:
    """The annotation of a key that exists; of one below an open mapping, Any."""
    for name in key.split("."):
        if not is_dataclass(schema):
            return Any
        schema = _hints(schema)[name]
    return schema


def _is_or_below_open(schema: type[Any], key: str) -> bool:
    return is_open(_hints(schema)[key.partition(".")[0]])


def expected(schema: type[Any], key: str) -> str:
    """Describe in words the values that a key of a schema accepts."""
    return _words_of(_hint(schema, key))


def _words_of(hint: Any) -> str:
    if isinstance(hint, UnionType):
        kinds = [_words_of(part) for part in get_args(hint) if part is not NoneType]
        return " or ".join([*kinds, "null"])
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "one of " + ", ".join(member.name for member in hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return "settings: {" + ", ".join(setting_names(hint)) + "}"
    if get_origin(hint) is list:
        return "a list of whole numbers" if int in get_args(hint) else "a list"
    return "settings: {key: value}" if is_open(hint) else _WORDS[hint]
