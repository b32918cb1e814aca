"""Values as JSON has them."""

import math
from typing import Any


def bounded(value: Any) -> Any:
    """The value with open ends of intervals as null: JSON has no infinity."""
    if isinstance(value, dict):
        return {key: bounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [bounded(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
