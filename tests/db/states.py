"""Small databases made from a description, for tests of merging: two may hold different states of the same run."""

import datetime as dt
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, insert

from db.engine import open_engine
from db.models import Base
from db.transfer.tables import NATURAL_KEYS, columns, run_tables, shared_references, shared_tables

START = dt.datetime(2026, 3, 1, 22, 0, tzinfo=dt.UTC)


@dataclass(frozen=True, kw_only=True)
class TrialState:
    """One trial, in its round."""

    round: int
    owner: str = "both"  # whose execution it is: its round's id differs between the executions
    excluded: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunState:
    """A run's rows in one database."""

    number: int
    status: str = "done"
    heartbeat: int | None = None  # hours
    trials: Sequence[TrialState] = ()
    divergence: int | None = None  # its number: the later is the higher
    plan: str = "plan"
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class Description:
    """A database."""

    side: str  # shared things have ids of this side's own
    runs: Sequence[RunState] = field(default_factory=tuple)
    bits: int | None = None  # what it knows of the weights


def build(template: Path, path: Path, wanted: Description) -> Engine:
    """The database as a copy of an empty one, filled."""
    shutil.copyfile(template, path)
    engine = open_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        for table, rows in _rows(wanted).items():
            if rows:
                connection.execute(insert(Base.metadata.tables[table]), rows)
    return engine


def _rows(wanted: Description) -> Mapping[str, list[dict[str, Any]]]:
    side = wanted.side
    rows: dict[str, list[dict[str, Any]]] = {
        "experiment": [{"id": f"{side}-e", "name": "same", "created_at": START}],
        "host": [{"id": f"{side}-h", "name": "studio", "machine_sha256": "m", "detail": {}}],
        "environment": [
            {"id": f"{side}-v", "sha256": "v", "python": "3", "interlace_version": "1", "os": "x", "packages": {}}
        ],
        "checkpoint": [
            {"id": f"{side}-c", "digest": "d", "name": "w", "source": "hub", "config": {}, "bits": wanted.bits}
        ],
    } | {table.name: [] for table in run_tables()}
    for run in wanted.runs:
        _add(rows, run, side)
    return rows


def _add(rows: dict[str, list[dict[str, Any]]], run: RunState, side: str) -> None:
    key = f"run{run.number}"
    heartbeat = None if run.heartbeat is None else START + dt.timedelta(hours=run.heartbeat)
    rows["run"].append(
        {
            "id": key,
            "experiment_id": f"{side}-e",
            "host_id": f"{side}-h",
            "status": run.status,
            "created_at": START,
            "heartbeat_at": heartbeat,
            "plan": json.dumps({"name": run.plan}),
            "plan_sha256": hashlib.sha256(json.dumps({"name": run.plan}).encode()).hexdigest(),
            "workload_sha256": "w",
            "seed": 0,
            "rounds": 3,
            "metric": "decode_tps",
            "interleave_by": "prompt",
            "order_distribution": "uniform",
            "simulated": False,
            "origin": "interlace",
            "randomised": True,
            "source_sha256": run.source,
        }
    )
    rows["arm"].append(
        {
            "id": f"{key}-arm",
            "run_id": key,
            "name": "plain",
            "is_control": True,
            "config_sha256": "c",
            "engine": "mlx_lm",
            "checkpoint_id": f"{side}-c",
            "engine_setting": {},
            "config": {},
            "state": "active",
        }
    )
    rounds: dict[str, int] = {}
    for trial in run.trials:
        round_id = f"{key}-round{trial.round}-{trial.owner}"
        if round_id not in rounds:
            rounds[round_id] = trial.round
            rows["round"].append(
                {"id": round_id, "run_id": key, "index": trial.round, "attempt": 0, "order": ["plain"]}
            )
        _add_trial(rows, key, round_id, trial, side)
    if run.divergence is not None:
        rows["divergence"].append(
            {
                "id": f"{key}-divergence{run.divergence}",
                "run_id": key,
                "arm_id": f"{key}-arm",
                "prompt_id": "p",
                "turn": 0,
                "token_index": run.divergence,
                "verdict": "real",
                "reason": "",
            }
        )


def _add_trial(rows: dict[str, list[dict[str, Any]]], run: str, round_id: str, trial: TrialState, side: str) -> None:
    key = f"{round_id}-trial"
    rows["trial"].append(
        {
            "id": key,
            "run_id": run,
            "arm_id": f"{run}-arm",
            "round_id": round_id,
            "environment_id": f"{side}-v",
            "kind": "measured",
            "is_aa": False,
            "sequence": trial.round,
            "started_at": START,
            "status": "done" if trial.excluded is None else "excluded",
            "excluded_reason": trial.excluded,
        }
    )
    rows["generation"].append(
        {
            "id": f"{key}-generation",
            "trial_id": key,
            "position": 0,
            "prompt_id": "p",
            "workload": "w",
            "prompt_class": "c",
            "turn": 0,
            "started_at": START,
            "decode_tps": 10.0,
            "flags": [],
        }
    )


# Whose process runs it, and where it came from: the importer's, not the run's own.
IMPORTERS = frozenset({"runner_pid", "arrived_at", "arrived_from"})


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row, references to shared things by their natural keys, so that two databases can be held side by side."""
    found = {}
    with closing(sqlite3.connect(path)) as connection:
        for table in (*shared_tables(), *run_tables()):
            shared = shared_references(table)
            own = [
                name
                for name in columns(table)
                if name not in IMPORTERS and (table.name not in NATURAL_KEYS or name != "id")
            ]
            values = ", ".join(
                f'(SELECT "{NATURAL_KEYS[shared[name]]}" FROM "{shared[name]}" s WHERE s.id = t."{name}")'
                if name in shared
                else f't."{name}"'
                for name in own
            )
            rows = connection.execute(f'SELECT {values} FROM "{table.name}" t').fetchall()
            found[table.name] = sorted(rows, key=repr)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    return found
