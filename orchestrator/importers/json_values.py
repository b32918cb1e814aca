"""From a file's bytes to JSON values: byte order marks, one object per line, files appended to or cut off. Pure.

The content of an unknown file is bounded here: its size, its depth, its numbers. Whatever cannot be read is refused in
one line.
"""

import codecs
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import InputError

MOST_BYTES = 64 * 2**20
MOST_VALUES = 2_000_000  # a small object takes 230 bytes once it is read
DEEPEST = 60
_SHOWN = 60
_TOO_LARGE = 2**63
_END = 12  # characters from the end: a word or a number that was cut off
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # as written in JSON: a whole file is rewritten only if there is one
_SURROGATE = re.compile("[\ud800-\udfff]")
# UTF-32 begins as UTF-16 does, so it is asked first.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A file's content."""

    body: Any  # a JSON value; of a file with several, the list of them
    notes: tuple[str, ...]


class _Refused(Exception):
    """A JSON value that no result file has."""


def decode(content: bytes, *, name: str) -> Decoded:
    """The JSON that a file holds. `name` is the file's, for messages.

    NaN and infinite numbers become null, half surrogate pairs a replacement character; notes report both.

    Raises:
        InputError: not text, not JSON, or beyond every bound.
    """
    _require_bounds(content, name)
    codec, notes = _codec(content)
    try:
        text = content.decode(codec)
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not text ({error.reason} at byte {error.start}); give a JSON file") from error
    if not text.strip():
        raise InputError(f"{name}: empty; give the file that the tool wrote")
    if "\0" in text[:8]:
        raise InputError(f"{name}: looks like UTF-16 without a byte order mark; save it as UTF-8")
    reader = _Reader()
    try:
        body = reader.read(text)
        body = reader.clean(body) if _HALF.search(text) else body
        _require_depth(body)
    except _Refused as error:
        raise InputError(f"{name}: {error}") from error
    except RecursionError as error:
        raise InputError(f"{name}: {_too_deep()}") from error
    except ValueError as error:
        raise InputError(f"{name}: not JSON ({error}); give the tool's JSON output") from error
    return Decoded(body=body, notes=(*notes, *reader.notes()))


def _require_bounds(content: bytes, name: str) -> None:
    if len(content) > MOST_BYTES:
        raise InputError(f"{name}: {len(content) / 1e6:.0f} MB are too much for a result file; give the tool's JSON")
    values = sum(content.count(sign) for sign in (b",", b"[", b"{"))
    if values > MOST_VALUES:
        raise InputError(f"{name}: about {values} values are too many for a result file; give a summary of it")


def _require_depth(body: Any) -> None:
    """Refuse deeply nested values: the code that processes them later is recursive."""
    level, depth = [body] if isinstance(body, dict | list) else [], 0
    while level:
        if depth > DEEPEST:
            raise _Refused(_too_deep())
        level = [
            each
            for value in level
            for each in (value.values() if isinstance(value, dict) else value)
            if isinstance(each, dict | list)
        ]
        depth += 1


def _codec(content: bytes) -> tuple[str, tuple[str, ...]]:
    for mark, codec, called in _MARKS:
        if content.startswith(mark):
            return codec, (f"the file begins with a byte order mark ({called}), which was left out",)
    return "utf-8", ()


def _too_deep() -> str:
    return f"nested more than {DEEPEST} deep, as no result file is; give the tool's JSON output"


@dataclass(slots=True)
class _Reader:
    """Reads a text, and records its irregularities."""

    said: list[str] = field(default_factory=list)
    unmeasured: int = 0
    halves: int = 0

    def notes(self) -> list[str]:
        """The notes, one line each."""
        found = list(self.said)
        if self.unmeasured:
            found.append(f"NaN or an infinite number {_times(self.unmeasured)}, taken as not measured")
        if self.halves:
            found.append(f"half a surrogate pair in {self.halves} texts, replaced by U+FFFD")
        return found

    def read(self, text: str) -> Any:
        """One value, or several one after the other: an object per line, or lists that were appended to a file."""
        decoder = json.JSONDecoder(
            object_pairs_hook=_object, parse_int=_whole, parse_float=self._real, parse_constant=self._constant
        )
        found: list[Any] = []
        at, end = _skip(text, 0), len(text.rstrip())
        while at < end:
            try:
                value, past = decoder.raw_decode(text, at)
            except json.JSONDecodeError as error:
                whole = self._whole_part(decoder, text, at, end, error, found)
                if whole is None:
                    raise _explained(error, text, found) from None
                return whole
            found.append(value)
            at = _skip(text, past)
        return self._together(found)

    def _together(self, found: list[Any]) -> Any:
        if len(found) == 1:
            return found[0]
        lists = [value for value in found if isinstance(value, list)]
        if not lists:
            return found
        self.said.append(f"the file holds {len(found)} results, one after the other: it was appended to; all were read")
        return [each for value in found for each in (value if isinstance(value, list) else [value])]

    def _whole_part(
        self, decoder: json.JSONDecoder, text: str, at: int, end: int, error: json.JSONDecodeError, found: list[Any]
    ) -> Any:
        """The complete part of a truncated text: the entries of its last list, or the lines before the last."""
        if not _is_cut_off(error, end):
            return None
        entries: list[Any] = []
        if text[at] == "[":
            at = _skip(text, at + 1)
            while at < end and text[at] == "{":
                try:
                    entry, past = decoder.raw_decode(text, at)
                except json.JSONDecodeError:
                    break
                entries.append(entry)
                at = _skip(text, past)
                at = _skip(text, at + 1) if text[at : at + 1] == "," else at
        if not entries and not found:
            return None
        flat = [each for value in (*found, entries) for each in (value if isinstance(value, list) else [value])]
        rest = "its list is not closed" if at >= end else "its last entry is cut off"
        self.said.append(f"the file ends too early, {rest}: the {len(flat)} whole entries were read")
        return flat

    def _real(self, text: str) -> float | None:
        number = float(text)
        if math.isfinite(number):
            return number
        self.unmeasured += 1
        return None

    def _constant(self, _: str) -> None:
        self.unmeasured += 1

    def clean(self, value: Any) -> Any:
        """The value without half surrogate pairs."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.clean(each) for each in value]
        if isinstance(value, dict):
            return {self._text(key): self.clean(each) for key, each in value.items()}
        return value

    def _text(self, text: str) -> str:
        if text.isascii() or _SURROGATE.search(text) is None:
            return text
        self.halves += 1
        return _SURROGATE.sub("\ufffd", text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Refused(f"an object has the key {twice[:_SHOWN]!r} twice, and only one can hold; remove the other")
    return found


def _whole(text: str) -> int:
    number = int(text) if len(text) < 32 else _TOO_LARGE
    if not -_TOO_LARGE <= number < _TOO_LARGE:
        raise _Refused(f"the number {text[:_SHOWN]} is larger than any count or time; the file is damaged")
    return number


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _is_cut_off(error: json.JSONDecodeError, end: int) -> bool:
    return error.msg.startswith("Unterminated string") or error.pos >= end - _END


def _explained(error: json.JSONDecodeError, text: str, found: list[Any]) -> ValueError:
    if _is_cut_off(error, len(text.rstrip())) and text.lstrip()[:1] in ("{", "["):
        return ValueError(f"{error}: the file ends too early")
    if found:
        line = text[error.pos :].lstrip().split("\n", 1)[0][:_SHOWN]
        return ValueError(f"{error}: other text follows the JSON, {line!r}")
    return error


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
