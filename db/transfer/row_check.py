"""Checks every row of a copy of another database against what our own code writes, before any of it is merged.

SQLite stores any type in any column, so a text may be a blob, or bytes that are no UTF-8; a date may be anything. What
passes here can be read by today's tables, shown by every command and judged. The first value that does not pass refuses
the file, with its place.
"""

import datetime as dt
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Column, String, Table

from db.column_types import Finite, UtcDateTime
from db.errors import TransferError
from db.guard import LONGEST_VALUE_BYTES
from db.json_guard import LARGEST_INTEGER, read_json
from db.models import Base
from db.transfer.schema_check import connect_strange
from db.transfer.tables import STAYS, columns
from db.vocabulary import METRICS

Rule = Callable[[Any], str | None]  # what is wrong with a value that is not NULL; None: nothing

EARLIEST = dt.datetime(2000, 1, 1)  # noqa: DTZ001 - as stored: UTC without offset
_AHEAD = dt.timedelta(days=2)  # clocks differ
_LARGEST_COUNT = 2**53
_LARGEST_REAL = 1e15
_ID = re.compile(r"[0-9A-Za-z_.-]{1,64}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
_SHORT, _LONG = 1_000, 1_000_000  # characters
_LONG_TEXTS = frozenset(
    "error_message excluded_reason note remark summary reason text value_text context_text control_text arm_text"
    " thermal_reason power_reason state_reason memory_note drift_reason bandwidth_source prompt_id".split()
)
_UNBOUNDED = frozenset({("run", "plan"), ("generation", "text")})
_ANY_INTEGER = frozenset({"seed", "sequence"})
_ANY_REAL = frozenset("engine_gap drift value wall_s gap rounding position runner_started_at low_s".split())
_SHARES = frozenset("p_value family_p alpha acceptance_rate engaged_share".split())

_WORDS: Mapping[str, tuple[str, ...]] = {
    "metric": tuple(METRICS),
    "interleave_by": ("prompt", "workload"),
    "stamps_of": ("token", "chunk"),
    "gate_state": ("open", "waited", "hot_start", "skipped"),
    "direction": ("faster", "slower"),
    "inference": ("fixed", "anytime"),
}


class _NotText:
    """Stands for a text that is not valid UTF-8."""


def refuse_bad_rows(copy: Path, *, shown: Path) -> None:
    """Hold every value of a current copy against its column.

    Raises:
        TransferError: the first that does not pass: file, table, row, column, why, and the remedy.
    """
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    with closing(connect_strange(copy)) as connection:
        connection.text_factory = _text
        for table in Base.metadata.sorted_tables:
            if table.name not in STAYS:
                _refuse_bad_row(connection, table, now, shown)


def _refuse_bad_row(connection: sqlite3.Connection, table: Table, now: dt.datetime, shown: Path) -> None:
    rules = [(str(column.name), bool(column.nullable), _rule(table.name, column, now)) for column in table.columns]
    listed = ", ".join(f'"{name}"' for name in columns(table))
    for number, row in enumerate(_rows(connection, f'SELECT {listed} FROM "{table.name}"', table, shown), start=1):
        for (name, nullable, rule), value in zip(rules, row, strict=True):
            if value is None:
                wrong = None if nullable else "is missing"
            else:
                wrong = rule(value)
            if wrong is not None:
                key = row[0] if isinstance(row[0], str) and _ID.fullmatch(row[0]) else f"number {number}"
                raise TransferError(f"{shown}: {table.name} {key}, column {name}: {wrong}; export the run again")


def _rows(connection: sqlite3.Connection, sql: str, table: Table, shown: Path) -> Iterator[tuple[Any, ...]]:
    try:
        yield from connection.execute(sql)
    except sqlite3.DataError as error:  # beyond the connection's limits
        raise TransferError(
            f"{shown}: {table.name}: a value is longer than {LONGEST_VALUE_BYTES:,} bytes; export the run again"
        ) from error


def _text(raw: bytes) -> str | _NotText:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return _NotText()


# ---- what a column holds ----


def _rule(table: str, column: Column[Any], now: dt.datetime) -> Rule:
    name, kind = str(column.name), column.type
    if isinstance(kind, UtcDateTime):
        return lambda value: _bad_date(value, now + _AHEAD)
    if isinstance(kind, Boolean):
        return lambda value: None if type(value) is int and value in (0, 1) else "is not true or false (1 or 0)"
    if isinstance(kind, BigInteger):
        return _integer_rule(name)
    if isinstance(kind, Finite):
        return _real_rule(name)
    if isinstance(kind, JSON):
        shape = _SHAPES[table, name]
        return lambda value: _bad_json(value, shape)
    if isinstance(kind, String):
        return _text_rule(table, name)
    raise TypeError(f"{table}.{name}: no rule for {kind!r}")


def _integer_rule(name: str) -> Rule:
    least, most = (-LARGEST_INTEGER, LARGEST_INTEGER) if name in _ANY_INTEGER else (0, _LARGEST_COUNT)
    return lambda value: (
        None if type(value) is int and least <= value <= most else f"is not a whole number from {least} to {most}"
    )


def _real_rule(name: str) -> Rule:
    least = -_LARGEST_REAL if name in _ANY_REAL else 0.0
    most = 1.0 if name in _SHARES else _LARGEST_REAL
    return lambda value: (
        None
        if type(value) in (int, float) and math.isfinite(value) and least <= value <= most
        else f"is not a number from {least:g} to {most:g}"
    )


def _text_rule(table: str, name: str) -> Rule:
    if name == "id" or (name.endswith("_id") and name not in ("prompt_id", "boot_id")):
        return lambda value: _bad_text(value, _SHORT) or (None if _ID.fullmatch(value) else "is not an id")
    if name in _WORDS:
        known = _WORDS[name]
        return lambda value: None if value in known else f"is not one of {', '.join(known)}"
    most = LONGEST_VALUE_BYTES if (table, name) in _UNBOUNDED else _LONG if name in _LONG_TEXTS else _SHORT
    return lambda value: _bad_text(value, most)


def _bad_text(value: Any, most: int) -> str | None:
    if isinstance(value, _NotText):
        return "is not UTF-8"
    if not isinstance(value, str):
        return "is not text"
    return None if len(value) <= most else f"holds {len(value):,} characters, at most {most:,} are read"


def _bad_date(value: Any, latest: dt.datetime) -> str | None:
    if not isinstance(value, str) or _DATE.fullmatch(value) is None:
        return "is not a time such as 2026-03-01 22:00:00.000000"
    try:
        time = dt.datetime.fromisoformat(value.partition(".")[0])
    except ValueError:
        return "is not a time that exists"
    if time < EARLIEST:
        return f"is before {EARLIEST:%Y}"
    return None if time <= latest else "lies in the future; check the clock of either machine"


# ---- JSON columns ----


def _bad_json(value: Any, shape: "Shape") -> str | None:
    if (wrong := _bad_text(value, LONGEST_VALUE_BYTES)) is not None:
        return wrong
    try:
        read = read_json(value)
    except ValueError as error:
        return str(error)
    return None if shape(read) else f"does not hold {shape.__doc__}"


Shape = Callable[[Any], bool]


def _object(value: Any) -> bool:
    """a JSON object"""
    return isinstance(value, dict)


def _versions(value: Any) -> bool:
    """an object of versions"""
    return isinstance(value, dict) and all(isinstance(each, str | None) for each in value.values())


def _texts(value: Any) -> bool:
    """a list of texts"""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _counts(value: Any) -> bool:
    """a list of whole numbers from 0"""
    return isinstance(value, list) and all(type(each) is int and 0 <= each <= _LARGEST_COUNT for each in value)


def _steps(value: Any) -> bool:
    """a list of [drafted, accepted, committed]"""
    return isinstance(value, list) and all(_counts(each) and len(each) == 3 for each in value)


def _objects(value: Any) -> bool:
    """a list of objects"""
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _reasons(value: Any) -> bool:
    """a list of objects with code and text"""
    return _objects(value) and all(isinstance(each.get("code"), str) for each in value)


def _ranked(value: Any) -> bool:
    """a list of [token, text, log-probability]"""
    return isinstance(value, list) and all(
        isinstance(each, list)
        and len(each) == 3
        and type(each[0]) is int
        and isinstance(each[1], str | None)
        and isinstance(each[2], int | float)
        for each in value
    )


_SHAPES: Mapping[tuple[str, str], Shape] = {
    ("host", "detail"): _object,
    ("environment", "packages"): _versions,
    ("checkpoint", "config"): _object,
    ("run", "current"): _object,
    ("arm", "engine_setting"): _object,
    ("arm", "config"): _object,
    ("round", "order"): _texts,
    ("trial", "gate_detail"): _object,
    ("run", "tags"): _texts,
    ("generation", "flags"): _texts,
    ("generation", "token_ids"): _counts,
    ("generation", "stamps_us"): _counts,
    ("generation", "steps"): _steps,
    ("audit", "best"): _objects,
    ("audit", "carry_over"): _object,
    ("audit", "compositions"): _object,
    ("comparison", "reasons"): _reasons,
    ("comparison", "included"): _object,
    ("divergence", "top"): _ranked,
}
