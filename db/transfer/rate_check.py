"""Rates that do not follow from their own stamps are not measurements: in a copy they become NULL, with a flag.

By the definitions of `orchestrator.running.measures`, n tokens with stamps t_1 .. t_n since the request's start:

    ttft_s t_1    total_s t_n    end_to_end_tps n / t_n    prefill_tps (prompt - cached) / t_1
    decode_tps (n - m) / (t_n - t_1), m the tokens of the first pass: 1, or as the first verify step or chunk says
    inter_token_p95_s: the 95th percentile, nearest rank, of t_2 - t_1 .. t_n - t_(n-1)

Other tools' rates have definitions of their own and are left as the file states them. A generation without stamps has
nothing that its rates could contradict.
"""

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

FLAG = "rate_contradicts_stamps"
_TOLERANCE = 0.01
_COLUMNS = (
    "id flags stamps_us steps stamps_of prompt_tokens cached_tokens"
    " ttft_s total_s end_to_end_tps prefill_tps decode_tps inter_token_p95_s"
).split()


def drop_contradictions(copy: Path) -> int:
    """Make NULL what contradicts its stamps, in a copy that is current and sound. Returns the number of generations."""
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        rows = connection.execute(
            f"SELECT {', '.join(f'generation.{name}' for name in _COLUMNS)} FROM generation"
            " JOIN trial ON trial.id = generation.trial_id JOIN run ON run.id = trial.run_id"
            " WHERE run.origin = 'interlace' AND stamps_us IS NOT NULL"
        )
        changed = [(row["id"], row["flags"], wrong) for row in rows if (wrong := list(contradicting(dict(row))))]
        for key, flags, names in changed:
            nulls = ", ".join(f"{name} = NULL" for name in names)
            new_flags = json.dumps([*json.loads(flags), FLAG], separators=(",", ":"))
            connection.execute(f"UPDATE generation SET {nulls}, flags = ? WHERE id = ?", (new_flags, key))
        connection.execute("COMMIT")
    return len(changed)


def contradicting(row: Mapping[str, Any]) -> Iterator[str]:
    """The columns of a generation's row whose values its stamps do not allow. Pure."""
    stamps = json.loads(row["stamps_us"])
    if not stamps:
        return
    for name, (least, most) in _allowed(row, [stamp / 1e6 for stamp in stamps]).items():
        value = row[name]
        if value is not None and not least * (1 - _TOLERANCE) <= value <= most * (1 + _TOLERANCE):
            yield name


def _allowed(row: Mapping[str, Any], stamps_s: list[float]) -> dict[str, tuple[float, float]]:
    first_s, last_s, tokens = stamps_s[0], stamps_s[-1], len(stamps_s)
    found = {"ttft_s": (first_s, first_s), "total_s": (last_s, last_s)}
    if tokens > 1:
        gaps = sorted(later - earlier for earlier, later in pairwise(stamps_s))
        p95_s = gaps[math.ceil(0.95 * len(gaps)) - 1]
        found["inter_token_p95_s"] = (p95_s, p95_s)
    if last_s > 0:
        found["end_to_end_tps"] = (tokens / last_s, tokens / last_s)
    if last_s > first_s:
        span_s = last_s - first_s
        found["decode_tps"] = ((tokens - _most_at_first(row, tokens)) / span_s, (tokens - 1) / span_s)
    if first_s > 0 and row["prompt_tokens"] is not None:
        cached = row["cached_tokens"]
        uncached = row["prompt_tokens"] - (cached or 0)
        found["prefill_tps"] = (0.0 if cached is None else uncached / first_s, uncached / first_s)
    return found


def _most_at_first(row: Mapping[str, Any], tokens: int) -> int:
    """The most tokens that the first pass can have committed."""
    if row["stamps_of"] == "chunk":
        return tokens
    steps = json.loads(row["steps"]) if row["steps"] else []
    return max(1, min(tokens, steps[0][2])) if steps else 1
