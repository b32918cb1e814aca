"""The two views: the columns that others rely on, what a row is, and that the common filters find an index."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from db.session import read_only
from tests.db.conftest import Database
from tests.db.filling import Filled, fill
from tests.db.flat_columns import MORE_OF_TRIAL_FLAT, TRIAL_FLAT, VERDICT_FLAT


# Relied on from outside: a column may be added, never renamed or dropped.
def _ask(database: Database, sql: str, **params: Any) -> list[Mapping[str, Any]]:
    with read_only(database.engine) as session:
        return [dict(row) for row in session.execute(sa.text(sql), params).mappings()]


@pytest.mark.parametrize(
    ("view", "columns"), [("trial_flat", TRIAL_FLAT + MORE_OF_TRIAL_FLAT), ("verdict_flat", VERDICT_FLAT)]
)
def test_the_columns_that_others_rely_on_are_there(
    view: str, columns: list[str], stored: tuple[Database, Filled]
) -> None:
    database, _ = stored
    with database.engine.connect() as connection:
        found = list(connection.execute(sa.text(f"SELECT * FROM {view}")).keys())
    assert [name for name in columns if name not in found] == []
    assert len(found) == len(set(found))
    if view == "trial_flat":
        assert found[: len(TRIAL_FLAT)] == TRIAL_FLAT


def test_a_row_is_a_generation_and_a_failed_trial_has_one_too(stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    rows = _ask(database, "SELECT * FROM trial_flat WHERE run_id = :run", run=filled.last_run)
    assert len(rows) == filled.trials
    assert sum(row["generation_id"] is not None for row in rows) == filled.generations
    (failed,) = (row for row in rows if row["generation_id"] is None)
    assert (failed["status"], failed["error_kind"]) == ("invalid", "out_of_memory")
    assert (failed["decode_tps"], failed["evidence"], failed["mlx_version"]) == (None, None, None)


def test_a_measured_row_reads_as_it_was_written(stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    sql = "SELECT * FROM trial_flat WHERE run_id = :run AND arm = 'draft-8bit' AND round = 0"
    (row,) = _ask(database, sql, run=filled.last_run)
    expected = {
        "experiment": "draft-or-quantise",
        "host": "studio",
        "chip": "Apple M4",
        "started_at": "2026-03-02 22:03:00.000000",
        "round": 0,
        "position": 2,
        "is_control": 0,
        "is_warmup": 0,
        "engine": "mlx_lm_draft",
        "checkpoint": "smollm2-8bit",
        "bits": 8,
        "draft": "smollm2-4bit",
        "block_size": 4,
        "workload": "quick",
        "prompt_class": "code",
        "mlx_version": "0.32.4",
        "os_build": "24F74",
        "requested": 1,
        "engaged": 1,
        "useful": 1,
        "evidence": "60 of 120 drafted tokens accepted",
        "cached_tokens": None,
        "decode_tps": 75.0,
        "accept_length": 2.5,
        "acceptance_rate": 0.5,
        "status": "done",
        "kind": "measured",
        "attempt": 0,
        "flags": "[]",
        "simulated": 0,
    }
    assert {name: row[name] for name in expected} == expected


def test_warmups_and_control_runs_have_no_round(stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    sql = "SELECT kind, is_warmup, count(*) AS n FROM trial_flat WHERE run_id = :run AND round IS NULL GROUP BY kind"
    rows = _ask(database, sql, run=filled.last_run)
    assert [(row["kind"], row["is_warmup"], row["n"]) for row in rows] == [
        ("bracket", 0, 2),
        ("preflight", 1, 1),
        ("warmup", 1, 3),
    ]


def test_the_texts_of_several_signs_are_joined_in_order(database: Database) -> None:
    fill(database.engine)
    with database.engine.begin() as connection:
        (key,) = connection.execute(sa.text("SELECT generation_id FROM evidence LIMIT 1")).one()
        connection.execute(
            sa.text(
                "INSERT INTO evidence (id, generation_id, mechanism, requested, source, text)"
                " VALUES ('zz', :key, 'plain', 0, 'log', 'and the log agrees')"
            ),
            {"key": key},
        )
    sql = "SELECT evidence, count(*) AS n FROM trial_flat WHERE generation_id = :key"
    (row,) = _ask(database, sql, key=key)
    assert (row["evidence"], row["n"]) == ("no token came from a draft; and the log agrees", 1)


def test_only_the_newest_audit_of_each_run_counts(stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    rows = _ask(database, "SELECT * FROM verdict_flat ORDER BY created_at, position")
    found = [(row["run_id"], row["treatment"], row["prompt_class"], row["verdict"], row["direction"]) for row in rows]
    assert found == [
        (filled.first_run, "plain-4bit", None, "supported", "faster"),
        (filled.last_run, "plain-4bit", None, "supported", "faster"),
        (filled.last_run, "draft-8bit", None, "could_be_drift", None),
        (filled.last_run, "draft-8bit", "code", "supported", "faster"),
        (filled.last_run, "draft-8bit", "prose", "supported", "slower"),
    ]


@pytest.mark.parametrize(
    ("sql", "first"),
    [
        ("SELECT * FROM trial_flat WHERE run_id = 'x'", "run USING INDEX sqlite_autoindex_run_1 (id=?)"),
        (
            "SELECT * FROM trial_flat WHERE arm = 'a' AND started_at >= '2026'",
            "trial USING INDEX ix_trial_arm_id_started_at (arm_id=? AND started_at>?)",
        ),
        (
            "SELECT * FROM trial_flat WHERE fingerprint = 'f' AND started_at >= '2026'",
            "trial USING INDEX ix_trial_arm_id_started_at (arm_id=? AND started_at>?)",
        ),
        (
            "SELECT * FROM trial_flat WHERE experiment = 'e' AND run_created_at >= '2026'",
            "run USING INDEX ix_run_experiment_id_created_at (experiment_id=? AND created_at>?)",
        ),
        ("SELECT * FROM trial_flat WHERE experiment = 'e' AND started_at >= '2026'", "trial USING INDEX ix_trial_"),
        ("SELECT * FROM trial_flat WHERE host = 'h'", "host USING INDEX ix_host_name (name=?)"),
        ("SELECT * FROM trial_flat WHERE checkpoint = 'c'", "checkpoint USING INDEX ix_checkpoint_name (name=?)"),
        ("SELECT * FROM trial_flat WHERE started_at >= '2026'", "trial USING INDEX ix_trial_started_at (started_at>?)"),
        ("SELECT * FROM verdict_flat WHERE run_id = 'x'", "newest USING INDEX ix_audit_run_id_created_at (run_id=?)"),
        (
            "SELECT * FROM verdict_flat WHERE experiment = 'e' AND run_created_at >= '2026'",
            "run USING INDEX ix_run_experiment_id_created_at (experiment_id=? AND created_at>?)",
        ),
    ],
)
def test_common_filters_use_an_index_and_read_no_table_whole(
    sql: str, first: str, stored: tuple[Database, Filled]
) -> None:
    database, _ = stored
    plan = [row["detail"] for row in _ask(database, f"EXPLAIN QUERY PLAN {sql}")]
    assert any(f"SEARCH {first}" in step for step in plan), plan
    scanned = {match[1] for step in plan if (match := re.match(r"SCAN (\w+)", step))}
    assert scanned <= {"signs"}, plan  # the evidence of one generation
