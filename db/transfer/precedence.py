"""Decides which of two states of the same row is the later one. Pure: the same answer whichever side asks.

For a run, in this order:

    1. a run that is done is later than one that is not
    2. the later sign of life: the last of heartbeat, end, creation, and start of the process that runs it
    3. the status further along: planned, running, interrupted, cancelled, failed, done
    4. the row that knows more: fewer columns without a value
    5. the text of the row, so that there is always an answer

For a trial, the excluded state is later than the included one, because exclusions are only ever added.
"""

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any

_FURTHER = ("planned", "running", "interrupted", "cancelled", "failed", "done")
_SIGNS = ("heartbeat_at", "finished_at", "created_at")

RunKey = tuple[bool, float, int, int, str]
TrialState = tuple[str, str | None]  # status, excluded_reason


def run_key(row: Mapping[str, Any]) -> RunKey:
    """The sort key of a run's row, from the columns as SQLite stores them (times in UTC without offset)."""
    own = {name: value for name, value in row.items() if value is not None}
    return (
        own["status"] == "done",
        max([_seconds(own[name]) for name in _SIGNS if name in own] + [float(own.get("runner_started_at", 0.0))]),
        _FURTHER.index(own["status"]),
        len(own),
        json.dumps(own, sort_keys=True, default=str),
    )


def more_advanced(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """True if their row of a run is later than ours; False for equal rows."""
    return run_key(theirs) > run_key(ours)


def later_trial(one: TrialState, other: TrialState) -> TrialState:
    """The later state of a trial that both sides know."""
    return max(one, other, key=lambda state: (state[1] is not None, state[1] or "", state[0]))


def attempts(ids: set[str]) -> dict[str, int]:
    """The number of each attempt at a round: ids are UUIDv7, so their order is that of their times."""
    return {key: number for number, key in enumerate(sorted(ids))}


def _seconds(text: str) -> float:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()
