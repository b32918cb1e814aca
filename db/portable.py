"""One run as one file, to take to another machine: a zip archive with

    manifest.json   the format's version, the run's id, the schema, the SHA-256 and size of run.db, what was left out
    run.db          a SQLite database with that run's rows, and what they refer to

Logs are not in it, nor where they lay, nor what looks like a secret in a configuration: see `db.redaction`.
Importing checks the sum, migrates an older file, and merges it as `db.merge` does.
"""

import datetime as dt
import hashlib
import json
import os
import sqlite3
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from db.arrival import PlanReader, any_plan
from db.backup import deliver, refuse_in_the_way
from db.engine import BUSY_TIMEOUT_S, compact_json
from db.errors import TransferError, storage_errors
from db.merge import Merged, merge_staged
from db.migrate import Version, current, refuse_all_but_current, upgrade
from db.models import Base
from db.redaction import allowed_by, redacted
from db.session import database_path, open_database
from db.staging import make_current
from db.tables import columns, of_runs, run_tables, shared_references, shared_tables

FORMAT, FORMAT_VERSION = "interlace-run", 1
MANIFEST, CONTENT = "manifest.json", "run.db"
NOT_INCLUDED = ("logs",)
_MOST_MANIFEST_BYTES = 1_000_000
_CHUNK_BYTES = 1 << 20
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # the archive's own times say nothing
# Where a configuration is kept, by table: redacted on the way out.
_CONFIGURATIONS = {"run": "plan", "arm": "config", "checkpoint": "config"}
# Of this machine's disk, and of how a run came to it: they say nothing elsewhere, and hold a user's name.
_NOT_TO_TELL = (("run", "log_dir"), ("run", "arrived_at"), ("run", "arrived_from"), ("trial", "log_path"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a file says of itself."""

    format: str
    version: int
    schema: str
    run_id: str
    experiment: str
    trials: int
    interlace_version: str
    exported_at: str
    content: str  # name in the archive
    sha256: str  # of the content
    size_bytes: int
    not_included: list[str]
    redacted: list[str]  # names of environment variables whose values were


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A written file."""

    path: Path
    manifest: Manifest


def export_run(url: str, run_id: str, target: Path, *, force: bool = False) -> Exported:
    """Write one run to a file.

    Raises:
        TransferError: a file is there already, or the folder is not.
        DatabaseError: no database, or not one of this version.
    """
    version = current(url)
    refuse_all_but_current(version)
    place = target.expanduser().absolute()
    refuse_in_the_way(place, force=force, not_over=version.path)
    with tempfile.TemporaryDirectory(prefix=".interlace-export-", dir=version.path.parent) as folder:
        content = Path(folder) / CONTENT
        with storage_errors(str(version.path)):
            experiment, trials, names = _write_content(version.path, run_id, content)
        manifest = _manifest(version, run_id, experiment, trials, content, names)
        archive = Path(folder) / "archive.zip"
        _pack(archive, content, manifest)
        deliver(archive, place)
    return Exported(path=place, manifest=manifest)


def import_run(url: str, file: Path, *, read_plan: PlanReader = any_plan) -> Merged:
    """Take the run of a file into the database, which is created where nothing is.

    Args:
        read_plan: refuses a text that is no plan.

    Raises:
        TransferError: not such a file, or damaged.
        SchemaError: written by a newer version, or it does not fit. Nothing was changed.
    """
    file = file.expanduser().absolute()
    path = database_path(url)
    engine = open_database(url)
    try:
        with tempfile.TemporaryDirectory(prefix=".interlace-import-", dir=path.parent) as folder:
            content = Path(folder) / CONTENT
            manifest = unpack(file, content)
            make_current(content, shown=file)
            _refuse_other_runs(content, manifest, file)
            return merge_staged(engine, content, shown=file, read_plan=read_plan)
    finally:
        engine.dispose()


def is_portable(file: Path) -> bool:
    """Whether a file looks like one: an archive, by its first bytes."""
    try:
        with file.open("rb") as opened:
            return opened.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def unpack(file: Path, content: Path) -> Manifest:
    """Write a file's content to a path of ours, its sum checked.

    Raises:
        TransferError: not such a file, of a newer format, or not as it was written.
    """
    with _clear_errors(file), zipfile.ZipFile(file) as archive:
        manifest = _read_manifest(archive, file)
        digest, size = hashlib.sha256(), 0
        with archive.open(manifest.content) as source, content.open("wb") as target:
            while chunk := source.read(_CHUNK_BYTES):
                size += len(chunk)
                if size > manifest.size_bytes:
                    break
                digest.update(chunk)
                target.write(chunk)
    if size != manifest.size_bytes or digest.hexdigest() != manifest.sha256:
        raise TransferError(f"{file}: its content is not what was exported (SHA-256 differs); transfer it again")
    return manifest


@contextmanager
def _clear_errors(file: Path) -> Iterator[None]:
    """A damaged archive fails in many ways, which mean one thing to a person."""
    try:
        yield
    except FileNotFoundError as error:
        raise TransferError(f"{file}: no such file") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError) as error:
        why = str(error).strip("'\"")
        raise TransferError(f"{file}: not a whole export ({why}); transfer it again, or export it anew") from error
    except OSError as error:
        raise TransferError(f"{file}: cannot be read ({error.strerror or error})") from error


def _read_manifest(archive: zipfile.ZipFile, file: Path) -> Manifest:
    info = archive.getinfo(MANIFEST)
    if info.file_size > _MOST_MANIFEST_BYTES:
        raise TransferError(f"{file}: not an export of interlace (its {MANIFEST} is too large)")
    try:
        found = json.loads(archive.read(info))
        written = found["format"], found["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise TransferError(f"{file}: not an export of interlace (its {MANIFEST} says nothing of it)") from error
    if written[0] != FORMAT:
        raise TransferError(f"{file}: not an export of interlace (format {written[0]!r})")
    if written[1] != FORMAT_VERSION:
        raise TransferError(
            f"{file}: format version {written[1]!r}, this interlace reads {FORMAT_VERSION}; upgrade interlace here"
        )
    try:
        return Manifest(**found)
    except TypeError as error:
        raise TransferError(f"{file}: its {MANIFEST} is not as it was written ({error})") from error


def _pack(archive: Path, content: Path, manifest: Manifest) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(zipfile.ZipInfo(MANIFEST, _EARLIEST), json.dumps(asdict(manifest), indent=1) + "\n")
        info = zipfile.ZipInfo(CONTENT, _EARLIEST)
        info.compress_type = zipfile.ZIP_DEFLATED
        with content.open("rb") as source, packed.open(info, "w", force_zip64=True) as target:
            while chunk := source.read(_CHUNK_BYTES):
                target.write(chunk)


def _manifest(version: Version, run_id: str, experiment: str, trials: int, content: Path, names: list[str]) -> Manifest:
    with content.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return Manifest(
        format=FORMAT,
        version=FORMAT_VERSION,
        schema=version.head,
        run_id=run_id,
        experiment=experiment,
        trials=trials,
        interlace_version=version_of("interlace"),
        exported_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        content=CONTENT,
        sha256=digest,
        size_bytes=content.stat().st_size,
        not_included=list(NOT_INCLUDED),
        redacted=names,
    )


# ---- the content ----


def _write_content(database: Path, run_id: str, content: Path) -> tuple[str, int, list[str]]:
    """Copy a run's rows. Returns the experiment's name, the number of trials, and the names of what was redacted."""
    upgrade(str(content))
    opened = sqlite3.connect(content.as_uri(), uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    with closing(opened) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("ATTACH DATABASE ? AS source", (f"{database.as_uri()}?mode=ro",))
        connection.execute("BEGIN")
        _copy_rows(connection, run_id)
        names = _redact(connection)
        for table, column in _NOT_TO_TELL:
            connection.execute(f"UPDATE main.{table} SET {column} = NULL")
        connection.execute("COMMIT")
        experiment, trials = connection.execute(
            "SELECT (SELECT name FROM main.experiment), (SELECT count(*) FROM main.trial)"
        ).fetchone()
        connection.execute("DETACH DATABASE source")
        connection.execute("VACUUM")
    return experiment, trials, names


def _copy_rows(connection: sqlite3.Connection, run_id: str) -> None:
    wanted = "SELECT :run"
    for table in run_tables():
        _copy(connection, table.name, of_runs(table, "source", wanted), run_id)
    for table in shared_tables():
        referring = [
            f'SELECT "{column}" FROM main."{each.name}"'
            for each in run_tables()
            for column, name in shared_references(each).items()
            if name == table.name
        ]
        _copy(connection, table.name, f'"id" IN ({" UNION ".join(referring)})', run_id)


def _copy(connection: sqlite3.Connection, table: str, condition: str, run_id: str) -> None:
    listed = ", ".join(f'"{name}"' for name in columns(Base.metadata.tables[table]))
    connection.execute(
        f'INSERT INTO main."{table}" ({listed}) SELECT {listed} FROM source."{table}" WHERE {condition} ORDER BY "id"',
        {"run": run_id} if ":run" in condition else {},
    )


def _redact(connection: sqlite3.Connection) -> list[str]:
    """Hide secrets that an older version stored. The plan's hash stays: it names the plan that ran."""
    names: dict[str, None] = {}
    for table, column in _CONFIGURATIONS.items():
        for key, text in connection.execute(f"SELECT id, {column} FROM main.{table}").fetchall():
            value, hidden = redacted(json.loads(text), allowed=allowed_by(os.environ))
            if hidden:
                names |= dict.fromkeys(hidden)
                connection.execute(f"UPDATE main.{table} SET {column} = ? WHERE id = ?", (compact_json(value), key))
    return list(names)


def _refuse_other_runs(content: Path, manifest: Manifest, file: Path) -> None:
    with closing(sqlite3.connect(content)) as connection:
        found: list[Any] = connection.execute("SELECT id FROM run").fetchall()
    if found != [(manifest.run_id,)]:
        raise TransferError(f"{file}: does not hold the run that its {MANIFEST} names; export it anew")
