"""The secrets that this process uses, and their removal from everything that leaves it. Standard library only.

Whoever takes a secret into use adds it to `KNOWN`; whatever writes a message, a record, a row, a note or a file masks
it. A value is found as it is, as an address, JSON, HTML or base64 holds it, and where a text was cut off in it.
"""

import base64
import html
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, TextIO
from urllib.parse import quote, quote_plus, unquote, urlsplit

MASK = "<redacted>"
NAMES_VARIABLE = "INTERLACE_SECRET_NAMES"  # names the variables of a worker's environment that hold secrets

SHORTEST = 4  # characters: a shorter text occurs everywhere, and is not a secret
_SHORT = 8  # characters: less is masked as a whole word only
_NUMBER = re.compile(r"[\d.eE+-]+")
# Placeholders for servers that want a key and check none: words that occur in many texts.
_PLACEHOLDERS = frozenset(
    "bearer changeme default dummy empty example false fake key local localhost lm-studio mlx no-key no-key-required"
    " none not-needed null ollama omlx openai password secret test testing token true unused vllm".split()
)


class Secrets:
    """Values that must not be shown. Thread-safe: adding replaces what masking reads."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._finder = _Finder(())

    def add(self, *values: str | None) -> None:
        """Mask these from now on, except values that are too short for a secret and placeholders."""
        new = {each for value in values if value for each in _parts(value) if _maskable(each)} - self._values
        if new:
            self._values |= new
            self._finder = _Finder(frozenset(self._values))

    def add_variables(self, names: Iterable[str], environ: Mapping[str, str] | None = None) -> None:
        """Add the values that these environment variables have; paths of this machine are none."""
        found = os.environ if environ is None else environ
        self.add(*(value for name in names if (value := found.get(name)) and not _is_path(value)))

    def values(self) -> list[str]:
        """All of them, for a process that is to mask as this one does."""
        return sorted(self._values)

    def clear(self) -> None:
        """Forget all of them."""
        self._values, self._finder = set(), _Finder(())

    def mask(self, text: str, *, filler: str | None = None) -> str:
        """The text without the secrets.

        Args:
            filler: one character of ASCII; each byte of a secret is replaced by it, so that the text keeps its length.
        """
        return self._finder.replaced(text, filler)

    def mask_all(self, value: Any) -> Any:
        """Plain JSON values with every text masked, keys included."""
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {self.mask(key) if isinstance(key, str) else key: self.mask_all(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [each if type(each) in (int, float) else self.mask_all(each) for each in value]
        return value


OUTPUT = "the output"  # standard output or standard error, in messages


class MaskingStream:
    """A text stream that masks what is written to it; in all else it is the stream.

    An `OSError` of its own names `OUTPUT` as its file, so that it is not taken for an error of something else.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(mask(text))
        except OSError as error:
            error.filename = OUTPUT
            raise
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            error.filename = OUTPUT
            raise

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Any:
        return iter(self._stream)


class _Finder:
    """All forms of some values, found by their beginnings."""

    def __init__(self, values: Iterable[str]) -> None:
        whole = {form for value in values if len(value) >= _SHORT for form in _forms(value)}
        self._forms = {form: _head(form) for form in whole}
        self._words = {value: rf"(?<!\w){re.escape(value)}(?!\w)" for value in values if len(value) < _SHORT}
        self._beginnings = (*dict.fromkeys(self._forms.values()), *self._words)

    def replaced(self, text: str, filler: str | None) -> str:
        here = [each for each in self._beginnings if each in text]  # most texts hold none, and this is quick
        if not here:
            return text
        pattern = re.compile("|".join(self._words.get(each) or re.escape(each) for each in here))
        kept, place = [], 0
        while (found := pattern.search(text, place)) is not None:
            end = self._end(text, found)
            kept += [text[place : found.start()], _cover(text[found.start() : end], filler)]
            place = end
        return "".join([*kept, text[place:]])

    def _end(self, text: str, found: re.Match[str]) -> int:
        """The end of the longest form that begins here, or of its part that the text holds before a cut."""
        start = found.start()
        begun = [form for form, head in self._forms.items() if text.startswith(head, start)]
        return max([found.end(), *(start + _common(form, text[start : start + len(form)]) for form in begun)])


def _common(first: str, second: str) -> int:
    """The length of the common beginning of two texts."""
    pairs = zip(first, second, strict=False)
    return next((count for count, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def _cover(text: str, filler: str | None) -> str:
    return MASK if filler is None else filler * len(text.encode("utf-8", "surrogateescape"))


def _head(form: str) -> str:
    """The part of a secret from which on a text is masked: half of it."""
    return form[: max(_SHORT, (len(form) + 1) // 2)]


def _maskable(value: str) -> bool:
    return len(value) >= SHORTEST and not _NUMBER.fullmatch(value) and value.lower() not in _PLACEHOLDERS


def _is_path(value: str) -> bool:
    return value.startswith(("/", "~/")) and os.path.exists(os.path.expanduser(value))  # noqa: PTH110, PTH111


def _parts(value: str) -> list[str]:
    """The value and what of it may be shown alone: of an address the user's name and password, else the path."""
    value = value.strip()
    try:
        parts = urlsplit(value)
        address = bool(parts.hostname) and parts.scheme != ""
    except ValueError:
        address = False
    if not address:
        return [value]
    user, separator, password = parts.netloc.rpartition("@")[0].partition(":")
    pair = [f"{user}{separator}{password}", password or user] if user or password else []
    pair += [unquote(password or user), _base64(f"{unquote(user)}:{unquote(password)}")] if pair else []
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    return [value, *pair, *([target] if len(target) >= _SHORT and not pair else [])]


def _base64(value: str) -> str:
    return base64.b64encode(value.encode("utf-8", "surrogateescape")).decode()


def _forms(value: str) -> set[str]:
    """The value as other formats hold it."""
    raw = value.encode("utf-8", "surrogateescape")
    quoted = {quote(raw), quote(raw, safe=""), quote_plus(raw)}
    lowered = {re.sub(r"%[0-9A-F]{2}", lambda code: code.group().lower(), each) for each in quoted}
    escaped = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    escaped |= {json.dumps(each)[1:-1] for each in escaped}
    for_pages = {
        re.sub(letters, lambda found: f"\\u{ord(found.group()):04x}", each)
        for each in escaped
        for letters in ("[<>&]", "[<>&']", "[<>&'=+]")
    }
    slashed = {each.replace("/", "\\/") for each in escaped}
    marked_up = {html.escape(value), html.escape(value, quote=False)}
    forms = {value, repr(value)[1:-1], raw.hex()} | quoted | lowered | escaped | for_pages | slashed | marked_up
    return forms | _in_base64(raw)


def _in_base64(raw: bytes) -> set[str]:
    """The base64 of the secret within a longer text, at each of the three places in a group of bytes."""
    found = set()
    for before in range(3):
        code = base64.b64encode(b"\0" * before + raw + b"\0" * ((-before - len(raw)) % 3)).decode()
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        found |= {code[first:last], code[first:last].translate(str.maketrans("+/", "-_"))}
    return {form for form in found if len(form) >= _SHORT}


KNOWN = Secrets()


def mask(text: str) -> str:
    """The text without any secret that this process uses."""
    return KNOWN.mask(text)
