"""Text from others, made storable: a lone surrogate is no character, and neither UTF-8 nor a database takes it.

Standard library only. A surrogate gets into a string through an escape such as `\\ud83d` in JSON, which is valid there:
servers that cut a character in two send its halves in two chunks. Halves that stand side by side are joined.
"""

from typing import Any


def well_formed(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def well_formed_json(value: Any) -> Any:
    """A JSON value with every string in it made well formed, keys included."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [well_formed_json(each) for each in value]
    if isinstance(value, dict):
        return {well_formed(key): well_formed_json(each) for key, each in value.items()}
    return value
