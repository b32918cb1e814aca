"""Reads JSON from servers, so that nothing in it can do harm. Pure.

- NaN, Infinity and numbers beyond a float's range become null: they are not JSON, and not measurements.
- A key that is stated twice with different values is refused: it is unknown which value holds.
- Nesting beyond the parser's depth, and numbers of thousands of digits, are refused.

Surrogates stay as they are: the halves of a character may come in two texts.
"""

import json
import math
from typing import Any


def read_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: not JSON, or refused as above, in one line.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_null, parse_float=_finite)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        for key, value in pairs:
            if found[key] != value:
                raise ValueError(f"JSON states {key!r:.80} twice, with different values")
    return found


def _null(_: str) -> None:
    return None


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None
