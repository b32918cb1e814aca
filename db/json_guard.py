"""Reading JSON that somebody else wrote: what the rest of the program cannot hold or show is refused. Pure.

Python's own reader takes NaN, numbers of any length, lone surrogates and any depth, and fails elsewhere: in SQLite, in
pandas, on a terminal, or by the interpreter's recursion limit.
"""

import json
import math
import re
from typing import Any, NoReturn

DEEPEST = 64
MOST_CHARACTERS = 16_000_000
MOST_VALUES = 2_000_000  # each takes some 60 bytes once it is read
LARGEST_INTEGER = 2**63 - 1  # SQLite's and pandas' own

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
_LONGEST_SHOWN = 40


def read_json(text: str, *, most_characters: int = MOST_CHARACTERS) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: not JSON, or larger or deeper than it may be, or a number or text that nothing else can hold; the
            message is one short line.
    """
    if len(text) > most_characters:
        raise ValueError(f"{len(text):,} characters of JSON, at most {most_characters:,} are read")
    _refuse_size(text)
    try:
        value = json.loads(text, parse_int=_integer, parse_float=_real, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos}") from error
    if "\\ud" in text or "\\uD" in text or not text.isascii():
        _refuse_surrogates(value)
    return value


def _refuse_size(text: str) -> None:
    """Depth and number of values, before anything is built."""
    bare = _STRING.sub('""', text)
    depth = deepest = 0
    for bracket in _BRACKET.finditer(bare):
        depth += 1 if bracket[0] in "[{" else -1
        deepest = max(deepest, depth)
        if deepest > DEEPEST:
            raise ValueError(f"JSON deeper than {DEEPEST} levels")
    if bare.count(",") + bare.count("[") + bare.count("{") > MOST_VALUES:
        raise ValueError(f"JSON of more than {MOST_VALUES:,} values")


def _integer(text: str) -> int:
    if len(text) > len(str(LARGEST_INTEGER)) + 1 or abs(int(text)) > LARGEST_INTEGER:
        raise ValueError(f"the number {text[:_LONGEST_SHOWN]} in JSON is beyond 64 bits")
    return int(text)


def _real(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:_LONGEST_SHOWN]} in JSON is not finite")
    return value


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} in JSON is not a number")


def _refuse_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("a lone surrogate in JSON is not text") from error
