"""Taking another database's runs into this one, in one transaction.

Keys are UUIDs, so a row is the same row wherever it is. Shared things are matched by their natural key, and the other's
references are turned to ours; what we did not know of such a thing is filled in. Of a run that both sides know, the
trials of both are kept, and the later row decides the run's state (`db.transfer.precedence`). Its plan, its arms'
configuration and its origin never change, and a run that waits or runs here is left alone. A second merge changes
nothing, and the order of merging does not change what is there in the end.

Conflicts are settled by a rule and reported, never silently.
"""

import datetime as dt
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, Engine, Table

from db.errors import SchemaError, TransferError, storage_errors
from db.session import database_path, open_database
from db.transfer.arrival import PlanReader, admit, any_plan
from db.transfer.precedence import attempts, later_trial, more_advanced
from db.transfer.rate_check import FLAG, drop_contradictions
from db.transfer.staging import staged, workspace
from db.transfer.tables import (
    NATURAL_KEYS,
    columns,
    of_runs,
    owner,
    run_tables,
    shared_references,
    shared_tables,
    unique_keys,
)

_TAKEN = "SELECT id FROM temp.taken"
# Made after a run, and made again: of two for one place the later stays. Rounds and trials have rules of their own.
_REPLACED = frozenset({"divergence", "pass_time"})
# Of a run that both sides know, what its later row may say: what became of it, never what it is.
_COURSE = (
    "status finished_at heartbeat_at note runner_started_at boot_id bandwidth_bytes_per_s bandwidth_source"
).split()
# Of its arms, what loading showed, where it is not known here.
_SHOWN_BY_LOADING = (
    "fingerprint engine_version block_size drafted_per_step load_s active_memory_bytes planned_weights_bytes"
    " footprint_bytes memory_note"
).split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The result of a merge."""

    runs: tuple[str, ...]  # ids of the other's runs, as they are called here
    runs_new: int
    runs_known: int
    runs_advanced: int  # of those known, whose row the other knew later
    trials_new: int
    trials_known: int
    notes: tuple[str, ...]  # conflicts and how they were settled, one line each


def merge(url: str, other: Path, *, read_plan: PlanReader = any_plan) -> Merged:
    """Take the runs of another database into this one, which is created where nothing is.

    Args:
        read_plan: refuses a text that is not a plan.

    Raises:
        TransferError: the other is this database, or not an interlace database, or holds what it must not.
        SchemaError: the other is damaged or newer; or the two cannot be brought together. Nothing was changed.
        DatabaseError: see `db.session.open_database`, `db.transfer.staging.staged`.
    """
    path = database_path(url)
    other = other.expanduser().absolute()
    if other.exists() and path.exists() and other.samefile(path):
        raise TransferError(f"{other}: is this database itself; name another one")
    engine = open_database(url)
    try:
        with workspace(path, "merge") as folder:
            return merge_staged(engine, staged(other, folder), shown=other, read_plan=read_plan)
    finally:
        engine.dispose()


def merge_staged(engine: Engine, copy: Path, *, shown: Path, read_plan: PlanReader = any_plan) -> Merged:
    """`merge` with a copy that is sound and current already. `shown` is the file that messages are about."""
    dropped = drop_contradictions(copy)
    admission_notes = admit(copy, shown=shown, read_plan=read_plan, now=dt.datetime.now(dt.UTC))
    with storage_errors(str(engine.url.database)), closing(engine.raw_connection()) as pooled:
        connection: sqlite3.Connection = pooled.driver_connection  # type: ignore[assignment]  # of the driver in use
        connection.execute("ATTACH DATABASE ? AS other", (str(copy),))
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("PRAGMA defer_foreign_keys=ON")
            merging = _Merge(connection, shown, admission_notes)
            if dropped:
                merging.notes.append(f"{dropped} generations: rates that their stamps contradict are left out ({FLAG})")
            done = merging.run()
            connection.execute("COMMIT")
        except sqlite3.IntegrityError as error:
            raise SchemaError(f"{shown}: does not fit this database ({error}); nothing was changed") from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute("DETACH DATABASE other")
    return done


@dataclass(slots=True)
class _Merge:
    """One merge: `other` is attached, and a transaction is open."""

    connection: sqlite3.Connection
    shown: Path  # the file that messages are about
    admission_notes: Mapping[str, str]  # for a run that is new here, by its id
    notes: list[str] = field(default_factory=list)

    def run(self) -> Merged:
        self._refuse_other_owners()
        self._remember_known()
        runs = self._choose_runs()
        for table in shared_tables():
            self._share(table)
        known = [row[0] for row in self._rows(f"{_TAKEN} WHERE id IN (SELECT id FROM main.run)")]
        self.notes += [note for run_id, note in self.admission_notes.items() if run_id in runs and run_id not in known]
        advanced = self._advance(known)
        self._number_rounds()
        new = {}
        for table in run_tables():
            if table.name in _REPLACED:
                self._drop_replaced(table)
            new[table.name] = self._insert(table)
        self._exclude()
        (trials,) = self._row(f"SELECT count(*) FROM other.trial WHERE run_id IN ({_TAKEN})")
        self._drop_scratch()
        return Merged(
            runs=tuple(runs),
            runs_new=new["run"],
            runs_known=len(known),
            runs_advanced=advanced,
            trials_new=new["trial"],
            trials_known=trials - new["trial"],
            notes=tuple(self.notes),
        )

    # ---- whose rows ----

    def _refuse_other_owners(self) -> None:
        """An id is the same row wherever it is: one that belongs to something else there would join two runs' rows.

        Raises:
            SchemaError: there is one.
        """
        for table in run_tables()[1:]:
            column, _ = owner(table)
            crossed = self._rows(
                f'SELECT o.id FROM other."{table.name}" o JOIN main."{table.name}" m ON m.id = o.id'
                f' WHERE m."{column}" <> o."{column}" LIMIT 1'
            )
            if crossed:
                raise SchemaError(
                    f"{self.shown}: {table.name} {crossed[0][0]} belongs to another {column.removesuffix('_id')} here;"
                    " nothing was changed"
                )

    def _remember_known(self) -> None:
        """The rows that are here already: nothing is added to a trial, a generation or an audit that we have."""
        for name in sorted({owner(table)[1] for table in run_tables()[1:]} - {"run"}):
            self.connection.execute(
                f"CREATE TEMP TABLE known_{name} AS"
                f' SELECT id FROM main."{name}" WHERE id IN (SELECT id FROM other."{name}")'
            )

    # ---- which runs ----

    def _choose_runs(self) -> list[str]:
        """Fill temp.taken: all of the other's runs but those that cannot stand beside ours."""
        self.connection.execute("CREATE TEMP TABLE taken (id TEXT PRIMARY KEY)")
        self.connection.execute("INSERT INTO temp.taken SELECT id FROM other.run")
        self._leave_out(
            "SELECT o.id, o.id FROM other.run o JOIN main.run m ON m.id = o.id AND m.plan_sha256 <> o.plan_sha256",
            "run {theirs}: has another plan here under the same id; the other's is left out",
        )
        self._leave_out(
            "SELECT o.id, o.id FROM other.run o JOIN main.queue_entry q ON q.run_id = o.id AND q.state = 'waiting'"
            " JOIN temp.taken t ON t.id = o.id",
            "run {theirs}: waits in the queue here; the other's rows are left out;"
            " to take them, `interlace queue cancel {theirs}` first",
        )
        self._leave_out(
            "SELECT o.id, o.id FROM other.run o JOIN main.run m ON m.id = o.id AND m.status = 'running'"
            " AND m.runner_pid IS NOT NULL JOIN temp.taken t ON t.id = o.id",
            "run {theirs}: runs here, or its process died; the other's rows are left out;"
            " to take them, let it end: `interlace resume {theirs}`",
        )
        ours = self._leave_out(
            "SELECT o.id, m.id FROM other.run o JOIN main.run m ON m.source_sha256 = o.source_sha256 AND m.id <> o.id",
            "run {theirs}: its file was imported here already, as run {ours}; left out",
        )
        return ours + [row[0] for row in self._rows(f"{_TAKEN} ORDER BY id")]

    def _leave_out(self, sql: str, note: str) -> list[str]:
        found = self._rows(sql)
        for theirs, ours in found:
            self.notes.append(note.format(theirs=theirs, ours=ours))
            self.connection.execute("DELETE FROM temp.taken WHERE id = ?", (theirs,))
        return [ours for _, ours in found]

    # ---- shared things ----

    def _share(self, table: Table) -> None:
        """Match by natural key, take what is new, and fill temp.map_TABLE with (theirs, ours)."""
        name, key = table.name, NATURAL_KEYS[table.name]
        same = f'm."{key}" = o."{key}"'
        self._tell_differences(table, same)
        nullable = [str(column.name) for column in table.columns if column.nullable]
        if nullable:
            filled = ", ".join(
                f'"{each}" = coalesce("{each}", (SELECT o."{each}" FROM other."{name}" o'
                f' WHERE o."{key}" = main."{name}"."{key}"))'
                for each in nullable
            )
            lacking = " OR ".join(f'"{each}" IS NULL' for each in nullable)
            known = f'"{key}" IN (SELECT "{key}" FROM other."{name}")'
            self.connection.execute(f'UPDATE main."{name}" SET {filled} WHERE ({lacking}) AND {known}')
        listed = _listed(columns(table))
        self.connection.execute(
            f'INSERT INTO main."{name}" ({listed}) SELECT {listed} FROM other."{name}" o'
            f' WHERE NOT EXISTS (SELECT 1 FROM main."{name}" m WHERE {same})'
        )
        self.connection.execute(f"CREATE TEMP TABLE map_{name} (theirs TEXT PRIMARY KEY, ours TEXT)")
        self.connection.execute(
            f'INSERT INTO temp.map_{name} SELECT o.id, m.id FROM other."{name}" o JOIN main."{name}" m ON {same}'
        )

    def _tell_differences(self, table: Table, same: str) -> None:
        compared = [
            str(column.name)
            for column in table.columns
            if column.name not in ("id", "created_at", NATURAL_KEYS[table.name]) and not isinstance(column.type, JSON)
        ]
        for column in compared:
            rows = self._rows(
                f'SELECT m."{column}", o."{column}" FROM main."{table.name}" m JOIN other."{table.name}" o ON {same}'
                f' WHERE m."{column}" <> o."{column}" ORDER BY 1'
            )
            for ours, theirs in rows:
                self.notes.append(f"{table.name}: the same one has {column} {ours} here and {theirs} there; ours kept")

    # ---- runs that both sides know ----

    def _advance(self, known: Sequence[str]) -> int:
        """Take the other's word for what became of a run where it is the later one, and for what loading showed."""
        advanced = 0
        for run_id in known:
            ours, theirs = (self._run_row(schema, run_id) for schema in ("main", "other"))
            if more_advanced(theirs, ours):
                advanced += 1
                self._update_course(run_id)
                self._learn_arms(run_id)
        return advanced

    def _update_course(self, run_id: str) -> None:
        self.connection.execute(
            f"UPDATE main.run AS m SET ({_listed(_COURSE)}) ="
            f" (SELECT {_listed(_COURSE)} FROM other.run o WHERE o.id = m.id) WHERE m.id = ?",
            (run_id,),
        )

    def _learn_arms(self, run_id: str) -> None:
        filled = ", ".join(
            f'"{name}" = coalesce("{name}", (SELECT o."{name}" FROM other.arm o WHERE o.id = m.id))'
            for name in _SHOWN_BY_LOADING
        )
        self.connection.execute(f"UPDATE main.arm AS m SET {filled} WHERE m.run_id = ?", (run_id,))

    def _run_row(self, schema: str, run_id: str) -> dict[str, Any]:
        """The columns that state how far a run got."""
        names = ("created_at", *_COURSE)
        row = self._row(f"SELECT {_listed(names)} FROM {schema}.run WHERE id = ?", run_id)
        return dict(zip(names, row, strict=True))

    def _number_rounds(self) -> None:
        """A round that two copies of a run both went on to measure: both stay, numbered as attempts by their times."""
        clashes = self._rows(
            'SELECT DISTINCT o.run_id, o."index" FROM other.round o JOIN main.round m'
            ' ON m.run_id = o.run_id AND m."index" = o."index" AND m.attempt = o.attempt AND m.id <> o.id'
            f" WHERE o.run_id IN ({_TAKEN}) AND o.id NOT IN (SELECT id FROM main.round) ORDER BY 1, 2"
        )
        by_run: dict[str, list[int]] = defaultdict(list)
        for run_id, index in clashes:
            by_run[run_id].append(index)
            numbers = attempts(self._round_ids(run_id, index))
            for schema in ("other", "main"):  # via negative numbers: each number is unique at every moment
                for shift in (True, False):
                    self.connection.executemany(
                        f"UPDATE {schema}.round SET attempt = ? WHERE id = ?",
                        [(-1 - number if shift else number, key) for key, number in numbers.items()],
                    )
        for run_id, indexes in by_run.items():
            said = ", ".join(str(index) for index in indexes)
            self.notes.append(
                f"run {run_id}: rounds {said} were measured on both sides; both are kept, the later attempt counts"
            )

    def _round_ids(self, run_id: str, index: int) -> set[str]:
        sql = 'SELECT id FROM {}.round WHERE run_id = ? AND "index" = ?'
        return {row[0] for schema in ("main", "other") for row in self._rows(sql.format(schema), run_id, index)}

    def _exclude(self) -> None:
        """Exclude the trials that either side has excluded since."""
        changed = 0
        for key, *states in self._rows(
            "SELECT m.id, m.status, m.excluded_reason, o.status, o.excluded_reason FROM main.trial m"
            " JOIN other.trial o ON o.id = m.id"
            f" WHERE (m.status, m.excluded_reason) IS NOT (o.status, o.excluded_reason) AND m.run_id IN ({_TAKEN})"
        ):
            ours, theirs = tuple(states[:2]), tuple(states[2:])
            later = later_trial(ours, theirs)
            if later != ours:
                changed += 1
                self.connection.execute(
                    "UPDATE main.trial SET status = ?, excluded_reason = ? WHERE id = ?", (*later, key)
                )
        if changed:
            self.notes.append(f"{changed} trials known here are excluded, as the other database knew")

    # ---- rows ----

    def _insert(self, table: Table) -> int:
        """Take the rows of the taken runs whose id is not here."""
        names = columns(table)
        values = ", ".join(_value(table, name) for name in names)
        condition = of_runs(table, "other", _TAKEN)
        if table.name != "run" and (parent := owner(table))[1] != "run":
            condition += f' AND o."{parent[0]}" NOT IN (SELECT id FROM temp.known_{parent[1]})'
        free = [f'NOT EXISTS (SELECT 1 FROM main."{table.name}" m WHERE m.id = o.id)']
        if table.name in _REPLACED:
            free += [f'NOT EXISTS (SELECT 1 FROM main."{table.name}" m WHERE {same})' for same in _same_key(table)]
        cursor = self.connection.execute(
            f'INSERT INTO main."{table.name}" ({_listed(names)}) SELECT {values} FROM other."{table.name}" o'
            f" WHERE {condition} AND {' AND '.join(free)} ORDER BY o.id"
        )
        return cursor.rowcount

    def _drop_replaced(self, table: Table) -> None:
        """Drop our row where the other side has a later one for the same place."""
        for same in _same_key(table):
            clashing = (
                f'SELECT m.id, o.id FROM main."{table.name}" m JOIN other."{table.name}" o ON {same} AND m.id <> o.id'
                f" WHERE o.run_id IN ({_TAKEN})"
            )
            rows = self._rows(clashing)
            if rows:
                self.notes.append(f"{table.name}: {len(rows)} were made on both sides; the later ones are kept")
            older = [(ours,) for ours, theirs in rows if ours < theirs]
            self.connection.executemany(f'DELETE FROM main."{table.name}" WHERE id = ?', older)

    def _drop_scratch(self) -> None:
        known = {f"known_{owner(table)[1]}" for table in run_tables()[1:]} - {"known_run"}
        for name in ("taken", *known, *(f"map_{table.name}" for table in shared_tables())):
            self.connection.execute(f"DROP TABLE temp.{name}")

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        return self.connection.execute(sql, values).fetchall()

    def _row(self, sql: str, *values: Any) -> Any:
        return self.connection.execute(sql, values).fetchone()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _value(table: Table, column: str) -> str:
    """The other's value of a column, a reference to something shared turned to ours."""
    shared = shared_references(table).get(column)
    if shared is None:
        return f'o."{column}"'
    return f'(SELECT ours FROM temp.map_{shared} WHERE theirs = o."{column}")'


def _same_key(table: Table) -> list[str]:
    return [" AND ".join(f'm."{name}" = o."{name}"' for name in key) for key in unique_keys(table)]
