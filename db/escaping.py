"""Text of unknown origin as a reader may see it. Pure, and the standard library only.

What a model wrote, what an arm is called and what a server or a file says are data: nothing in them may act on a page,
on a terminal, on the site where Markdown is pasted, or on the reader's eye by turning the direction of writing round.
"""

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

_KEPT = frozenset("\n\t\u200c\u200d")  # line ends, tabs, and joiners: scripts need these, and they move nothing
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_CONTROL_PICTURES, _FIRST_PRINTED = 0x2400, 0x20
_DELETE, _DELETE_PICTURE = 0x7F, 0x2421

_WITHOUT_TEXT = frozenset((int, float, bool, bytes, type(None)))
_MARKUP = re.compile(r"([\\`*_\[\]<>|#~&$])")
_BLOCK = re.compile(r"^(?!-$)([0-9]{0,9})([-+=.)])(?=\s|[-=\s]*$)")  # an item or an underline; a dash alone is a number
_LIVE = re.compile(r"(?<=[@#])(?=\S)|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=GH-)(?=\d)", re.IGNORECASE)
_APART = "\u200c"  # a joiner of no width: the site that makes links of plain text undoes a backslash first


def shown(text: str) -> str:
    """The text with every control, directional or invisible character made visible; line ends and tabs stay."""
    return "".join(_picture(character) if _is_hidden(character) else character for character in text)


def storable(value: Any) -> Any:
    """A statement's parameters, of whatever nesting, as text that UTF-8 has: half a character becomes its escape."""
    if type(value) in _WITHOUT_TEXT:
        return value
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, Mapping):
        return {key: storable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([each if type(each) in _WITHOUT_TEXT else storable(each) for each in value])
    return value


def shown_line(text: str) -> str:
    """The same in one line."""
    return shown(text.replace("\r\n", "\n").replace("\n", "↵").replace("\t", " "))


def shown_json(text: str) -> str:
    """Return the same JSON with these characters as escapes."""
    return "".join(json.dumps(character)[1:-1] if _is_hidden(character) else character for character in text)


def in_markdown(text: str) -> str:
    """Markdown, in one line, that reads as the text: nothing in it is markup, HTML, an entity, a link or a mention.

    It may begin a line or an item, or be a cell. Addresses, people and issues, of which GitHub makes links, are broken
    up by a joiner of no width.
    """
    escaped = _MARKUP.sub(r"\\\1", _LIVE.sub(_APART, shown_line(text).strip()))
    return _BLOCK.sub(r"\1\\\2", escaped)


def _is_hidden(character: str) -> bool:
    return character not in _KEPT and unicodedata.category(character) in _HIDDEN


def _picture(character: str) -> str:
    code = ord(character)
    if code < _FIRST_PRINTED:
        return chr(_CONTROL_PICTURES + code)
    return chr(_DELETE_PICTURE) if code == _DELETE else f"⟨U+{code:04X}⟩"
