"""The importer's decisions on runs from elsewhere, made on our own copy before any row is taken.

A file can say of itself whatever it likes. So where a run came from is what is written here; its plan must be the one
that its hash names; whether it is simulated follows from its plan; and another process's lease is dropped.
"""

import datetime as dt
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from db.errors import TransferError
from db.guard import watch
from db.json_guard import read_json
from db.redaction import REDACTED

PlanReader = Callable[[str], object]  # raises ValueError, in one line, where a text is not a plan
_SIMULATED = ".Simulated"  # the end of the engine's class


def any_plan(text: str) -> None:
    """The least that a plan must be, for callers that do not know what is in one.

    Raises:
        ValueError: not a JSON object.
    """
    if not isinstance(read_json(text), Mapping):
        raise ValueError("not an object")


def admit(copy: Path, *, shown: Path, read_plan: PlanReader, now: dt.datetime) -> dict[str, str]:
    """Check the plans of a copy's runs, and set what is the importer's to say. Returns notes, one line, by run.

    Raises:
        TransferError: a plan is not valid, or not the one that its hash names; nothing may be taken.
    """
    notes: dict[str, str] = {}
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        watch(connection)
        connection.execute("BEGIN")
        _refuse_crossed(connection, shown)
        for run_id, text, sha256, origin in connection.execute(
            "SELECT id, plan, plan_sha256, origin FROM run"
        ).fetchall():
            where = f"{shown}: run {run_id}"
            plan = _read(text, read_plan, where)
            if hashlib.sha256(text.encode("utf-8")).hexdigest() != sha256:
                _refuse_unless_redacted(plan, where)
                notes[run_id] = f"run {run_id}: its plan has hidden secrets: it can be judged, but never executed"
            _refuse_other_arms(connection, run_id, plan, where)
            if origin == "interlace":
                _refuse_other_design(connection, run_id, plan, where)
            connection.execute(
                "UPDATE run SET simulated = ?, randomised = min(randomised, ?), arrived_at = ?, arrived_from = ?,"
                " runner_pid = NULL, current = NULL WHERE id = ?",
                (_is_simulated(plan), origin == "interlace", _stored(now), shown.name, run_id),
            )
        connection.execute("COMMIT")
    return notes


# Columns that name a row of the same run.
_OF_THE_SAME_RUN = (
    ("trial", "arm_id", "arm"),
    ("trial", "round_id", "round"),
    ("divergence", "arm_id", "arm"),
    ("pass_time", "arm_id", "arm"),
)


def _refuse_crossed(connection: sqlite3.Connection, shown: Path) -> None:
    for table, column, parent in _OF_THE_SAME_RUN:
        crossed = connection.execute(
            f"SELECT t.id FROM {table} t JOIN {parent} p ON p.id = t.{column} WHERE p.run_id <> t.run_id LIMIT 1"
        ).fetchone()
        if crossed:
            raise TransferError(
                f"{shown}: {table} {crossed[0]}, column {column}: is of another run; export the run again"
            )


def _read(text: str, read_plan: PlanReader, where: str) -> Mapping[str, Any]:
    try:
        read_plan(text)
        plan: Mapping[str, Any] = read_json(text)
    except ValueError as error:
        raise TransferError(f"{where}, column plan: {error}; export the run again") from error
    return plan


def _refuse_unless_redacted(plan: Mapping[str, Any], where: str) -> None:
    """An export hides secrets that an older version stored; the hash stays that of the plan that ran."""
    if not any(REDACTED in text for key, value in plan.items() if key != "prompts" for text in _texts(value)):
        raise TransferError(
            f"{where}, column plan: is not the plan that plan_sha256 names, it was changed; export the run again"
        )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def _refuse_other_arms(connection: sqlite3.Connection, run_id: str, plan: Mapping[str, Any], where: str) -> None:
    """The arms' rows are those of the plan."""
    planned = [arm for arm in plan.get("arms", ()) if isinstance(arm, Mapping) and "name" in arm]
    if not planned:
        return
    rows = dict(connection.execute("SELECT name, is_control FROM arm WHERE run_id = ?", (run_id,)).fetchall())
    if set(rows) != {arm["name"] for arm in planned}:
        raise TransferError(f"{where}: its arms are not those of its plan; export the run again")
    if [name for name, is_control in rows.items() if is_control] != [plan.get("control")]:
        raise TransferError(f"{where}: its control is not that of its plan; export the run again")


def _refuse_other_design(connection: sqlite3.Connection, run_id: str, plan: Mapping[str, Any], where: str) -> None:
    """Make the columns beside the plan, which queries use, agree with the plan."""
    design = plan.get("design")
    if not isinstance(design, Mapping):
        return
    listed = "seed, rounds, metric, interleave_by"
    row = connection.execute(f"SELECT {listed} FROM run WHERE id = ?", (run_id,)).fetchone()
    for name, value in zip(listed.split(", "), row, strict=True):
        if design.get(name) != value:
            raise TransferError(f"{where}, column {name}: is {value!r}, and {design.get(name)!r} in its plan")


def _is_simulated(plan: Mapping[str, Any]) -> bool:
    """Return whether the plan is simulated: as in planning, one simulated arm is enough."""
    engines = [arm.get("engine") or {} for arm in plan.get("arms", ())]
    return any(str(engine.get("_target_")).endswith(_SIMULATED) for engine in engines)


def _stored(time: dt.datetime) -> str:
    """Format a time as `db.column_types.UtcDateTime` stores it."""
    return time.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
