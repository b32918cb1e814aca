"""Every table has its way of travelling: one that is added later must be given one."""

import sqlite3
from contextlib import closing

from db.models import Base
from db.transfer.tables import NATURAL_KEYS, STAYS, of_runs, owner, run_tables, shared_tables
from tests.db.conftest import Database
from tests.db.filling import Filled


def test_every_table_is_shared_or_of_a_run_or_stays() -> None:
    names = {table.name for table in (*run_tables(), *shared_tables())} | STAYS
    assert names == set(Base.metadata.tables)
    for table in run_tables():
        if table.name != "run":
            owner(table)


def test_natural_keys_are_unique_columns() -> None:
    for name, key in NATURAL_KEYS.items():
        assert Base.metadata.tables[name].columns[key].unique, name


def test_the_rows_of_a_run_are_those_that_go_with_it(stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    with closing(sqlite3.connect(database.path)) as connection:

        def rows(table: str) -> int:
            condition = of_runs(Base.metadata.tables[table], "main", f"SELECT '{filled.last_run}'")
            found: int = connection.execute(f'SELECT count(*) FROM "{table}" WHERE {condition}').fetchone()[0]
            return found

        assert rows("run") == 1
        assert rows("trial") == filled.trials
        assert rows("generation") == filled.generations
        assert rows("telemetry") == 2 * (filled.trials - 1)
        assert rows("comparison") == 5
