"""Override lines, as one would give them to Hydra's --multirun, as values. Hydra's own grammar reads them.

Hydra's multirun is not used: it runs jobs one after the other in a fixed order, and drift then looks like an effect.
Here every value of a sweep belongs to an arm of one interleaved run.
"""

import csv
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, cast

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString, RangeSweep, Transformer, ValueType
from hydra.errors import HydraException

from orchestrator.configuration.places import exists, is_place
from orchestrator.errors import InputError

OptionsOf = Callable[[str], Sequence[str]]

MOST_VALUES = 10_000

COMMAND_LINE = "the command line"

# Taken literally: an arm's name contains spaces and equal signs, which the grammar would want quoted.
_TEXT_KEY = "control"
# Takes requirements, whose signs of comparison the grammar would want quoted; a shell removes the quotes.
_PACKAGE_KEY = "environment"
# May be a path, which holds what the grammar would want quoted: ~, spaces, parentheses.
_PLACE_KEYS = ("checkpoint", "engine.draft")
_NAMED_ALONE = ("sweep", "checkpoint", "engine", "workload")  # a name of one of these is typed without its group
_CALL = re.compile(r"\w+\(|[\[{$]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One override: a key and the value it takes, or the values, each of which makes arms."""

    key: str  # a group's name, a dotted key below one, or a key of the root
    values: tuple[Any, ...]
    line: str  # as given
    origin: str  # its source: COMMAND_LINE, or a sweep's file

    @property
    def swept(self) -> bool:
        return len(self.values) > 1

    @property
    def group(self) -> str:
        return self.key.split(".", 1)[0]

    @property
    def where(self) -> str:
        """The override and its origin, for messages."""
        return f"override {self.line!r}" if self.origin == COMMAND_LINE else f"{self.line!r} in {self.origin}"


def parse(lines: Iterable[str], *, origin: str, options_of: OptionsOf) -> list[Setting]:
    """The settings of one list of override lines, in order.

    Args:
        origin: whose list it is, for messages.
        options_of: the options of a group, for `glob()`.

    Raises:
        InputError: bad grammar, a prefix (`+`, `~`), a random, endless or empty sweep, a key given twice.
    """
    settings = [_parse_line(line, origin, options_of) for line in lines]
    first: dict[str, Setting] = {}
    for setting in settings:
        if (earlier := first.setdefault(setting.key, setting)) is not setting:
            raise InputError(
                f"{setting.key} is given twice, as {earlier.line!r} and {setting.line!r}; "
                f"to compare several values list them once: {setting.key}=a,b"
            )
    return settings


def merge(*layers: Iterable[Setting]) -> list[Setting]:
    """One setting per key. A later layer wins over an earlier one; a key keeps the place of its first mention."""
    merged: dict[str, Setting] = {}
    for layer in layers:
        merged |= {setting.key: setting for setting in layer}
    return list(merged.values())


def suggest(word: str, known: Sequence[str]) -> str:
    """A remedy for a word that is not known: the nearest one if there is any, then all of them."""
    near = nearest(word, known)
    hint = "" if near is None else f"did you mean {near}? "
    return f"{hint}valid: {', '.join(known) if known else 'none'}"


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The known word that this one was probably meant to be."""
    near = get_close_matches(word, known, n=1, cutoff=0.6) or [each for each in known if len(word) > 2 and word in each]
    return near[0] if near else None


def _parse_line(line: str, origin: str, options_of: OptionsOf) -> Setting:
    key, equals, text = line.partition("=")
    if equals and key == _TEXT_KEY:
        return Setting(key=key, values=(_unquoted(text),), line=line, origin=origin)
    if not equals and (re.fullmatch(r"[\w.-]+", line) or _is_lone_place(line)):
        raise InputError(_without_value(line, options_of))
    if equals and key in _PLACE_KEYS and (places := _places(text)) is not None:
        return Setting(key=key, values=places, line=line, origin=origin)
    override = _parsed(f"{key}={quoted_packages(text)}" if key == _PACKAGE_KEY else line, options_of)
    probe = Setting(key=override.key_or_group, values=(), line=line, origin=origin)
    _check_form(override, probe)
    values = tuple(_values(override, probe))
    if not values:
        raise InputError(
            f"{probe.where} yields no value: a range stops before its end (range(1,4) is 1,2,3), "
            f"and a glob has to match; {key} has {', '.join(options_of(key)) or 'no options'}"
        )
    return Setting(key=probe.key, values=values, line=line, origin=origin)


def quoted_packages(text: str) -> str:
    """A sweep's text with quotes around each requirement: mlx-lm==0.31.0,mlx-lm>=0.31,<0.32 has two.

    Texts with quotes or lists in them are left alone.
    """
    if not re.search(r"[=<>~!]", text) or re.search(r"""['"]|^\[|,\s*\[""", text):
        return text
    parts: list[str] = []
    for piece in text.split(","):
        if parts and re.match(r"\s*[<>=~!]", piece):
            parts[-1] += f",{piece}"  # a second condition on the same package
        else:
            parts.append(piece.strip())
    return ",".join(f'"{part}"' if re.search(r"[=<>~!]", part) else part for part in parts)


@lru_cache(maxsize=1)
def _parser() -> OverridesParser:
    return OverridesParser.create()


def _without_value(word: str, options_of: OptionsOf) -> str:
    """Describe the fault of a word alone on the override line, and name what was probably meant."""
    if _is_lone_place(word):
        return f"override {word!r} has no key; did you mean checkpoint={word}?"
    exact = [f"{group}={word}" for group in _NAMED_ALONE if word in options_of(group)]
    near = [f"{group}={found}" for group in _NAMED_ALONE if (found := nearest(word, options_of(group))) is not None]
    meant = exact or near[:2]
    hint = f"did you mean {' or '.join(meant)}? " if meant else ""
    return f"override {word!r} has no value; {hint}write key=value, such as sweep=quickstart"


def _is_lone_place(line: str) -> bool:
    """Return whether a line without a value is a hub id, a folder or a file, and not Hydra's `~key`."""
    return is_place(line) and "/" in line and not re.search(r"\s", line)


def _places(text: str) -> tuple[str, ...] | None:
    """The values of an override that names checkpoints by their places; None: the grammar reads it.

    A comma separates values, except within quotes, and except in a path that exists with it.
    """
    if _CALL.match(text) or not any(is_place(_unquoted(each)) for each in text.split(",")):
        return None
    if exists(text):
        return (text,)
    values = next(csv.reader([text], skipinitialspace=True, quotechar="'" if "'" in text else '"'))
    return tuple(value.strip() for value in values if value.strip()) or None


def _parsed(line: str, options_of: OptionsOf) -> Override:
    try:
        override: Override = _parser().parse_override(line)
    except HydraException as error:
        reason = re.sub(r"\s*See https?://\S+.*", "", str(error), flags=re.DOTALL)
        raise InputError(
            f"override {line!r} is not in Hydra's grammar: {' '.join(reason.split())}; "
            "write key=value, and quote a value that holds spaces, commas or = : key='a, b'"
        ) from error
    override.config_loader = cast(ConfigLoader, _Options(options_of))
    return override


@dataclass(frozen=True, slots=True)
class _Options:
    """The part of a config loader that `glob()` uses; Hydra's own does not see the user's folder."""

    options_of: OptionsOf

    def get_group_options(self, group: str, results_filter: object = None) -> list[str]:
        return list(self.options_of(group))


def _check_form(override: Override, probe: Setting) -> None:
    key = override.key_or_group
    if override.is_add() or override.is_force_add():
        raise InputError(f"{probe.where}: nothing can be added beside the schema; to set a key write {key}=value")
    if override.is_delete():
        raise InputError(f"{probe.where}: nothing can be deleted; set {key} to the value that you want")
    if override.package is not None:
        raise InputError(f"{probe.where}: packages (@) have no use here; write {key}=value")
    if key.startswith(("hydra.", "hydra/")):
        raise InputError(f"{probe.where}: Hydra's own settings have no effect here; leave it out")
    if override.value_type is ValueType.INTERVAL_SWEEP:
        raise InputError(f"{probe.where}: an interval has infinitely many values; use range(start,stop,step) or a,b,c")
    if getattr(override.value(), "shuffle", False):
        raise InputError(
            f"{probe.where}: shuffle() would make another plan each time, and the order of the trials is drawn at "
            "random anyway; list the values plainly"
        )


def _values(override: Override, probe: Setting) -> Iterable[Any]:
    if not override.is_sweep_override():
        return [override.value()]
    try:
        found = override.sweep_iterator(transformer=Transformer.identity)
        swept = [_plain(value) for value in itertools.islice(found, MOST_VALUES + 1)]
    except (HydraException, ArithmeticError, ValueError) as error:
        raise InputError(f"{probe.where}: {' '.join(str(error).split())}") from error
    if len(swept) > MOST_VALUES:
        raise InputError(f"{probe.where} has more than {MOST_VALUES} values; one run cannot hold them: sweep less")
    swept_range = override.value()
    return _tidy(swept, stop=swept_range.stop) if isinstance(swept_range, RangeSweep) else swept


def _tidy(values: list[Any], *, stop: float | None) -> list[Any]:
    """Return a range without the errors of binary fractions: 0.30000000000000004, or its excluded end included."""
    rounded = [float(f"{value:.12g}") if isinstance(value, float) else value for value in values]
    return [value for value in rounded if value != stop]


def _plain(value: Any) -> Any:
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return value


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text
