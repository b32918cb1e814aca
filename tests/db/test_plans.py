"""Indexes stay in use: how SQLite goes about the stored queries, and what the program itself asks."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from db.frames import readings, runs, trials, verdicts
from db.history import generations_over_time
from db.query import run_query
from db.rates import measured_rates
from db.stored_queries import SHIPPED, parameter_names, read_query
from orchestrator.running.stored import stored_trials
from tests.db.conftest import Database
from tests.db.filling import Filled

QUERIES = {path.stem: read_query(path) for path in sorted(SHIPPED.glob("*.sql"))}
LARGE = ("trial", "generation", "evidence", "telemetry", "round")
# Over all time by their nature: they read every measured generation once.
READS_EVERYTHING = {"slower-now": {"generation"}}


def scanned(plan: list[str]) -> set[str]:
    """The tables that a plan reads from end to end, without the help of a partial or covering index."""
    steps = (re.match(r"SCAN (\w+)(?: USING (COVERING )?INDEX (\w+))?", step) for step in plan)
    partial = ("ix_trial_hot", "ix_trial_not_done", "ix_generation_not_engaged")
    return {match[1] for match in steps if match and not (match[2] or match[3] in partial)}


def large(names: set[str], sql: str) -> set[str]:
    """The large tables among them, by their names or by what the SQL calls them."""
    aliases = dict(re.findall(r"\b(?:FROM|JOIN) (\w+) AS (\w+)", sql))
    original = {alias: table for table, alias in aliases.items()}
    return {original.get(name, name) for name in names} & set(LARGE)


def plan_of(url: str, sql: str, params: dict[str, Any]) -> list[str]:
    return [str(row[3]) for row in run_query(url, f"EXPLAIN QUERY PLAN {sql}", params).rows]


@pytest.mark.parametrize("name", QUERIES)
def test_a_stored_query_reads_no_large_table_whole(name: str, stored: tuple[Database, Filled]) -> None:
    query = QUERIES[name]
    params = {each: 1 for each in parameter_names(query.sql) if each != "run"}
    plan = plan_of(stored[0].url, query.sql, params)
    assert large(scanned(plan), query.sql) <= READS_EVERYTHING.get(name, set()), plan
    assert not any("AUTOMATIC" in step for step in plan), plan  # an index made for one question


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("over-time", "ix_trial_arm_id_started_at (arm_id=? AND started_at>?)"),
        ("hot-trials", "ix_trial_hot"),
        ("faults", "ix_trial_not_done"),
        ("never-engaged", "ix_generation_not_engaged"),
        ("last-night", "ix_trial_started_at (started_at>?)"),
        ("second-turn", "ix_trial_started_at (started_at>?)"),
        ("drift", "ix_trial_run_id_sequence (run_id=?)"),
        ("divergences", "run_id=?"),
        ("pass-time", "run_id=?"),
    ],
)
def test_a_stored_query_uses_the_index_made_for_it(name: str, index: str, stored: tuple[Database, Filled]) -> None:
    query = QUERIES[name]
    params = {each: 1 for each in parameter_names(query.sql) if each != "run"}
    assert any(index in step for step in plan_of(stored[0].url, query.sql, params))


# ---- the program ----


@contextmanager
def plans(engine: Engine) -> Iterator[list[tuple[str, list[str]]]]:
    """The plans of all that the engine is asked meanwhile."""
    found: list[tuple[str, list[str]]] = []

    def explain(connection: Connection, cursor: Any, statement: str, parameters: Any, *_: object) -> None:
        if statement.lstrip().upper().startswith("SELECT"):
            rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            found.append((statement, [row[3] for row in rows]))

    event.listen(engine, "before_cursor_execute", explain)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", explain)


def test_what_the_program_asks_reads_no_large_table_whole(stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    engine, run_id = database.engine, filled.last_run
    with plans(engine) as found:
        trials(engine, run_id)
        verdicts(engine, run_id)
        readings(engine, run_id, "power_mode")
        runs(engine, limit=20)
        stored_trials(engine, run_id)
        measured_rates(engine, ["config of plain-8bit"], host_ids=["one", "another"])
        generations_over_time(engine, metric="decode_tps", filters={"experiment": "draft-or-quantise"})
    assert len(found) >= 7
    for statement, plan in found:
        assert large(scanned(plan), statement) == set(), (statement, plan)


def test_the_next_ordinal_is_one_look_and_not_a_count(stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    plan = plan_of(database.url, "SELECT max(ordinal) FROM trial WHERE run_id = :run", {"run": filled.last_run})
    assert plan == ["SEARCH trial USING COVERING INDEX ix_trial_run_id_ordinal (run_id=?)"]
