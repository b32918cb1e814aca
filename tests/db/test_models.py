"""The values that the tables accept and refuse."""

import datetime as dt
import math
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, StatementError
from uuid_utils import UUID

from db import models
from db.session import read_only, transaction
from tests.db.conftest import Database
from tests.db.filling import Filled, fill

TABLES = sorted(models.Base.metadata.tables)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_comes_back_as_it_went_in(table: str, database: Database) -> None:
    kept: dict[str, dict[str, Any]] = {}
    mapper = next(m for m in models.Base.registry.mappers if m.class_.__tablename__ == table)

    @sa.event.listens_for(mapper.class_, "after_insert")
    def keep(_mapper: object, _connection: object, row: Any) -> None:
        kept[row.id] = {column.key: getattr(row, column.key) for column in mapper.columns}

    try:
        fill(database.engine)
    finally:
        sa.event.remove(mapper.class_, "after_insert", keep)
    with read_only(database.engine) as session:
        rows = session.scalars(sa.select(mapper.class_)).all()
        found = {row.id: {column.key: getattr(row, column.key) for column in mapper.columns} for row in rows}
    assert kept
    assert found == kept


def _trial(**changes: Any) -> models.Trial:
    values: dict[str, Any] = {
        "run_id": "r",
        "arm_id": "a",
        "kind": "measured",
        "is_aa": False,
        "sequence": 0,
        "seed": 0,
        "started_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "status": "done",
    }
    return models.Trial(**(values | changes))


def test_a_naive_time_is_refused(database: Database) -> None:
    naive = dt.datetime(2026, 1, 1)  # noqa: DTZ001  # the point of the test
    with pytest.raises(StatementError, match="give it a time zone"), transaction(database.engine) as session:
        session.add(models.Experiment(name="e", created_at=naive))


def test_a_time_of_another_zone_is_stored_as_utc(database: Database) -> None:
    noon_in_tokyo = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=9)))
    with transaction(database.engine) as session:
        session.add(models.Experiment(name="e", created_at=noon_in_tokyo))
    with read_only(database.engine) as session:
        assert session.scalar(sa.text("SELECT created_at FROM experiment")) == "2026-01-01 03:00:00.000000"
        stored = session.scalars(sa.select(models.Experiment)).one().created_at
    assert (stored, stored.tzinfo) == (noon_in_tokyo, dt.UTC)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused_as_a_float(number: float, database: Database) -> None:
    with pytest.raises(StatementError, match="not a measurement"), transaction(database.engine) as session:
        session.add(_trial(wall_s=number))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_no_number_is_refused_inside_json(number: float, database: Database) -> None:
    with pytest.raises(StatementError, match="JSON compliant"), transaction(database.engine) as session:
        session.add(models.Host(name="h", machine_sha256="x", detail={"temperature": number}))


def test_missing_json_is_null_and_not_the_word_null(stored: tuple[Database, Filled]) -> None:
    database, _ = stored
    with read_only(database.engine) as session:
        assert session.scalar(sa.text("SELECT count(*) FROM generation WHERE steps IS NULL")) > 0
        assert session.scalar(sa.text("SELECT count(*) FROM generation WHERE steps = 'null'")) == 0


def test_json_is_compact_and_readable_in_sql(stored: tuple[Database, Filled]) -> None:
    database, _ = stored
    with read_only(database.engine) as session:
        stamps, first = session.execute(
            sa.text("SELECT stamps_us, json_extract(stamps_us, '$[0]') FROM generation")
        ).first() or (None, None)
    assert (stamps[:15], first) == ("[200000,220000,", 200_000)


def test_every_constraint_has_a_name() -> None:
    for table in models.Base.metadata.tables.values():
        for constraint in table.constraints:
            assert constraint.name, f"{table.name}: {constraint!r}"


@pytest.mark.parametrize(
    ("change", "constraint"),
    [({"kind": "guess"}, "ck_trial_kind_known"), ({"status": "ok"}, "ck_trial_status_known")],
)
def test_an_unknown_word_is_refused_by_name(change: dict[str, str], constraint: str, database: Database) -> None:
    with pytest.raises(IntegrityError, match=constraint), transaction(database.engine) as session:
        session.add(_trial(**change))


def test_a_reading_without_value_needs_a_reason(database: Database) -> None:
    with pytest.raises(IntegrityError, match="ck_telemetry_value_or_reason"), transaction(database.engine) as session:
        session.add(models.Telemetry(trial_id="t", phase="before", field="thermal_level"))


def test_more_accepted_than_drafted_is_refused(database: Database) -> None:
    fill(database.engine)
    with (
        pytest.raises(IntegrityError, match="ck_generation_accepted_at_most_drafted"),
        transaction(database.engine) as session,
    ):
        session.execute(sa.update(models.Generation).where(models.Generation.drafted == 120).values(accepted=121))


def test_keys_are_uuid7_and_sort_by_time() -> None:
    keys = [models.new_id() for _ in range(50)]
    assert keys == sorted(keys)
    assert {UUID(key).version for key in keys} == {7}


def test_deleting_a_run_deletes_what_belongs_to_it_and_nothing_else(database: Database) -> None:
    filled = fill(database.engine)
    with transaction(database.engine) as session:
        session.execute(sa.delete(models.Run).where(models.Run.id == filled.last_run))
    with read_only(database.engine) as session:
        assert set(session.scalars(sa.select(models.Trial.run_id))) == {filled.first_run}
        orphans = "SELECT count(*) FROM evidence WHERE generation_id NOT IN (SELECT id FROM generation)"
        assert session.scalar(sa.text(orphans)) == 0
        assert session.scalar(sa.select(sa.func.count()).select_from(models.Host)) == 1
