"""Ownership and references of the tables, read from the models, as moving rows between databases needs them. Pure.

Shared tables (an experiment's name, a machine, a set of versions, a set of weights) have a natural key: two databases
hold the same thing under ids of their own. Every other table belongs to a run, directly or through its parent, and its
ids are the same wherever the row goes. A place in the queue belongs to one machine and never travels.
"""

from collections.abc import Iterator

from sqlalchemy import Table, UniqueConstraint

from db.models import Base

NATURAL_KEYS = {"experiment": "name", "host": "machine_sha256", "environment": "sha256", "checkpoint": "digest"}
STAYS = frozenset({"queue_entry"})


def shared_tables() -> list[Table]:
    """The tables with a natural key."""
    return [table for table in Base.metadata.sorted_tables if table.name in NATURAL_KEYS]


def run_tables() -> list[Table]:
    """`run`, then every table that belongs to a run, parents first."""
    apart = NATURAL_KEYS.keys() | STAYS
    return [table for table in Base.metadata.sorted_tables if table.name not in apart]


def owner(table: Table) -> tuple[str, str]:
    """(column, table) of the parent that a run's row goes with: the run itself where there is a reference to it.

    Raises:
        ValueError: no reference that cascades; such a table needs a rule of its own here.
    """
    parents = {key.column.table.name: str(key.parent.name) for key in table.foreign_keys if key.ondelete == "CASCADE"}
    if "run" in parents:
        return parents["run"], "run"
    if len(parents) != 1:
        raise ValueError(f"table {table.name}: belongs to {sorted(parents)}; one parent is needed")
    ((name, column),) = parents.items()
    return column, name


def of_runs(table: Table, schema: str, runs: str) -> str:
    """SQL that holds for the rows of some runs. `runs` is SQL for their ids, `schema` where the tables are."""
    if table.name == "run":
        return f'"id" IN ({runs})'
    column, parent = owner(table)
    if parent == "run":
        return f'"{column}" IN ({runs})'
    return (
        f'"{column}" IN (SELECT "id" FROM {schema}."{parent}"'
        f" WHERE {of_runs(Base.metadata.tables[parent], schema, runs)})"
    )


def shared_references(table: Table) -> dict[str, str]:
    """Columns that refer to a shared table, and which."""
    found = {str(key.parent.name): key.column.table.name for key in table.foreign_keys}
    return {column: name for column, name in found.items() if name in NATURAL_KEYS}


def unique_keys(table: Table) -> Iterator[tuple[str, ...]]:
    """The columns of each constraint of uniqueness besides the id."""
    for constraint in table.constraints:
        if isinstance(constraint, UniqueConstraint):
            yield tuple(str(column.name) for column in constraint.columns)


def columns(table: Table) -> list[str]:
    return [str(column.name) for column in table.columns]
