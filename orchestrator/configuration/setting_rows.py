"""The declared settings of a group or an engine as rows to show: in the terminal and in the documentation."""

from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

import yaml  # type: ignore[import-untyped]  # omegaconf's reader; no types without an extra package

from orchestrator.configuration.checks import expected
from workers.settings import MISSING as REQUIRED
from workers.settings import declarations


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One setting in words.

    Attributes:
        key: below its group, dotted where a group lies within it.
        takes: its type, and its limits.
        default: as YAML has it, or `required`.
        meaning: with the engine's own term if it differs.
    """

    key: str
    takes: str
    default: str
    meaning: str


def setting_rows(schema: type[Any], *, prefix: str = "", without: frozenset[str] = frozenset()) -> Iterator[SettingRow]:
    """The settings of a schema in the order of their declaration, those of groups within it last.

    Args:
        without: names that are left out.
    """
    declared = declarations(schema)
    nested: list[Field[Any]] = []
    for each in fields(schema):
        if is_dataclass(each.default_factory):
            nested.append(each)
        elif each.name in declared and each.name not in without and not each.name.startswith("_"):
            one = declared[each.name]
            limit = "" if one.limit is None else f", {one.limit.words}"
            unit = "" if one.unit is None else f" {one.unit}"
            word = "" if one.word is None else f" The engine's own: `{one.word}`."
            yield SettingRow(
                key=f"{prefix}{each.name}",
                takes=f"{expected(schema, each.name)}{limit}{unit}",
                default=_default(each),
                meaning=one.meaning + word,
            )
    for each in nested:
        assert isinstance(each.default_factory, type)
        yield from setting_rows(each.default_factory, prefix=f"{prefix}{each.name}.")


def _default(each: "Field[Any]") -> str:
    value = each.default_factory() if each.default_factory is not MISSING else each.default
    if value == REQUIRED:
        return "required"
    shown = value.name if isinstance(value, Enum) else value
    text: str = yaml.safe_dump(shown, default_flow_style=True).removesuffix("\n...\n").strip()
    return text
