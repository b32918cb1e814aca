"""From a file's bytes to JSON values: byte order marks, and files of one object a line. Pure."""

import codecs
import json
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InputError

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

    body: Any  # a JSON value; of a file with an object a line, the list of them
    notes: tuple[str, ...]


def decode(content: bytes, *, name: str) -> Decoded:
    """The JSON that a file holds. `name` is the file's, for messages.

    Raises:
        InputError: not text, or not JSON.
    """
    codec, notes = _codec(content)
    try:
        text = content.decode(codec)
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not text ({error.reason} at byte {error.start}); give a JSON file") from error
    if not text.strip():
        raise InputError(f"{name}: empty; give the file that the tool wrote")
    try:
        return Decoded(body=json.loads(text), notes=notes)
    except ValueError as error:
        lines = _lines(text)
        if lines is None:
            raise InputError(f"{name}: not JSON ({error}); give the tool's JSON output") from error
        return Decoded(body=lines, notes=notes)


def _codec(content: bytes) -> tuple[str, tuple[str, ...]]:
    for mark, codec, called in _MARKS:
        if content.startswith(mark):
            return codec, (f"the file begins with a byte order mark ({called}), which was left out",)
    return "utf-8", ()


def _lines(text: str) -> list[Any] | None:
    """One JSON value a line; None where a line is none."""
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return None
