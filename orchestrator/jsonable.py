"""Values as JSON has them."""

import datetime as dt
import math
from typing import Any


def bounded(value: Any) -> Any:
    """The value with open ends of intervals as null, for JSON has no infinity, and with times in ISO 8601."""
    if isinstance(value, dict):
        return {key: bounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [bounded(item) for item in value]
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return None if isinstance(value, float) and not math.isfinite(value) else value
