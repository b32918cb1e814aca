"""Times as other tools write them. Pure."""

import datetime as dt
from typing import Any

_COMPACT = "%Y%m%d-%H%M%S"  # vLLM's, local


def parse_time(value: Any) -> dt.datetime | None:
    """A time of an ISO text, a compact local one, or seconds since the epoch; None where it is none of them.

    Naive where the text names no zone: somebody else must say which.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return dt.datetime.fromtimestamp(value, dt.UTC) if value > 0 else None
    if not isinstance(value, str):
        return None
    try:
        return dt.datetime.fromisoformat(value.strip())
    except ValueError:
        pass
    try:
        return dt.datetime.strptime(value.strip(), _COMPACT)  # noqa: DTZ007  # it has no zone, and that is what we say
    except ValueError:
        return None
