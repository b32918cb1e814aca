"""Names made out of what other tools write. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_SHOWN = 48  # characters of a value in a name


def file_stem(path: str) -> str:
    """The last part of a path of either kind, without `.gguf`."""
    return re.split(r"[/\\]", path)[-1].removesuffix(".gguf") or "unknown"


def bits_of(text: str) -> int | None:
    """Bits a weight, from words such as 4bit, Q4_K, int8, nvfp4, bf16; None: none of them."""
    patterns = (
        r"(\d+)[-_ ]?bits?\b",
        r"\b[iI]?[qQ](\d+)(?:_|\b)",
        r"\bint(\d+)\b",
        r"\b(?:nvfp|mxfp|fp|bf|f)(\d+)\b",
        r"\bw(\d+)\b",
    )
    for pattern in patterns:
        match = re.search(pattern, text, re.IGNORECASE)
        if match and 1 <= int(match[1]) <= 32:
            return int(match[1])
    return None


def distinct_names(configurations: Sequence[Mapping[str, Any]], *, first: Sequence[str]) -> list[str]:
    """A short name each: the values of the keys in `first`, then whatever differs between the configurations."""
    keys = list(dict.fromkeys(key for one in configurations for key in one))
    varied = [key for key in keys if len({repr(one.get(key)) for one in configurations}) > 1]
    shown = [*first, *(key for key in varied if key not in first)]
    return [
        " ".join(_part(key, one[key], plain=key in first) for key in shown if one.get(key) is not None)
        for one in configurations
    ]


def _part(key: str, value: Any, *, plain: bool) -> str:
    text = str(value)
    text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
    return text if plain else f"{key}={text}"
