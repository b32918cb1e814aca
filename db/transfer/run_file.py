"""One run as one file, to take to another machine: a zip archive with

    manifest.json   the format's version, the run's id, the schema, the SHA-256 and size of run.db, what was left out
    run.db          a SQLite database with that run's rows, and what they refer to

Logs are not in it, nor where they lay, nor what looks like a secret in a configuration: see `db.redaction`.
Importing checks the sum, migrates an older file, and merges it as `db.transfer.merge` does.
"""

import datetime as dt
import hashlib
import json
import os
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from db.engine import BUSY_TIMEOUT_S, compact_json
from db.errors import TransferError, in_one_line, storage_errors
from db.json_guard import read_json
from db.migrate import Version, current, refuse_all_but_current, upgrade
from db.models import Base
from db.redaction import allowed_by, redacted
from db.session import database_path, open_database
from db.transfer.arrival import PlanReader, any_plan
from db.transfer.backup import deliver, refuse_in_the_way
from db.transfer.merge import Merged, merge_staged
from db.transfer.schema_check import connect_strange
from db.transfer.staging import make_current, workspace
from db.transfer.tables import columns, of_runs, run_tables, shared_references, shared_tables

FORMAT, FORMAT_VERSION = "interlace-run", 1
MANIFEST, CONTENT = "manifest.json", "run.db"
NOT_INCLUDED = ("logs",)
_MOST_MANIFEST_BYTES = 1_000_000
_MOST_CONTENT_BYTES = 4_000_000_000
_MOST_ENTRIES = 16
# A database packs to a tenth; a file made to fill the disk, to a thousandth.
_MOST_EXPANSION, _ALWAYS_BYTES = 100, 10_000_000
_PACKED_BY = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_CHUNK_BYTES = 1 << 20
_BROKEN_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    LookupError,
    ValueError,
    OverflowError,
)
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # the archive's own times say nothing
# Where a configuration is kept, by table: redacted on the way out.
_CONFIGURATIONS = {"run": "plan", "arm": "config", "checkpoint": "config"}
# Of this machine's disk, and of how a run came to it: they say nothing elsewhere, and hold a user's name.
_NOT_TO_TELL = (("run", "log_dir"), ("run", "arrived_at"), ("run", "arrived_from"), ("trial", "log_path"))


_KINDS: Mapping[str, type] = {"<class 'str'>": str, "<class 'int'>": int, "list[str]": list}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A file's manifest."""

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
    with workspace(version.path, "export") as folder:
        content = folder / CONTENT
        with storage_errors(str(version.path)):
            experiment, trials, names = _write_content(version.path, run_id, content)
        manifest = _manifest(version, run_id, experiment, trials, content, names)
        archive = folder / "archive.zip"
        _pack(archive, content, manifest)
        deliver(archive, place)
    return Exported(path=place, manifest=manifest)


def import_run(url: str, file: Path, *, read_plan: PlanReader = any_plan) -> Merged:
    """Take the run of a file into the database, which is created where nothing is.

    Args:
        read_plan: refuses a text that is not a plan.

    Raises:
        TransferError: not such a file, or damaged.
        SchemaError: written by a newer version, or it does not fit. Nothing was changed.
    """
    file = file.expanduser().absolute()
    path = database_path(url)
    engine = open_database(url)
    try:
        with workspace(path, "import") as folder:
            content = folder / CONTENT
            manifest = unpack(file, content)
            make_current(content, shown=file)
            _refuse_other_runs(content, manifest, file)
            return merge_staged(engine, content, shown=file, read_plan=read_plan)
    finally:
        engine.dispose()


def is_portable(file: Path) -> bool:
    """True if a file looks like an exported run: an archive, by its first bytes. A pipe is not waited for.

    Raises:
        TransferError: not a regular file.
    """
    _refuse_irregular(file)
    try:
        with file.open("rb") as opened:
            return opened.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def _refuse_irregular(file: Path) -> None:
    if file.exists() and not file.is_file():
        raise TransferError(f"{file}: is not a regular file; name an export of interlace, or another tool's results")


def unpack(file: Path, content: Path) -> Manifest:
    """Write a file's content to a path of ours, its sum checked.

    Raises:
        TransferError: not such a file, of a newer format, or not as it was written.
    """
    _refuse_irregular(file)
    with _clear_errors(file), zipfile.ZipFile(file) as archive:
        manifest = _read_manifest(archive, file)
        info = _content_of(archive, manifest, file)
        digest, size = hashlib.sha256(), 0
        with archive.open(info) as source, content.open("wb") as target:
            while chunk := source.read(_CHUNK_BYTES):
                size += len(chunk)
                if size > manifest.size_bytes:
                    break
                digest.update(chunk)
                target.write(chunk)
    if size != manifest.size_bytes or digest.hexdigest() != manifest.sha256:
        raise TransferError(f"{file}: its content is not what was exported (SHA-256 differs); transfer it again")
    return manifest


def _content_of(archive: zipfile.ZipFile, manifest: Manifest, file: Path) -> zipfile.ZipInfo:
    """The archive's entry with the database, of a size that a database of that many packed bytes can have."""
    info = archive.getinfo(CONTENT)
    allowed = min(_MOST_CONTENT_BYTES, _ALWAYS_BYTES + _MOST_EXPANSION * info.compress_size)
    if info.file_size != manifest.size_bytes or not 0 < info.file_size <= allowed:
        raise TransferError(
            f"{file}: its {CONTENT} would unpack to {info.file_size:,} bytes from {info.compress_size:,}, as no export"
            " does; transfer it again, or export it anew"
        )
    if info.compress_type not in _PACKED_BY:
        raise TransferError(f"{file}: its {CONTENT} is packed by another method than exports are; export it anew")
    return info


@contextmanager
def _clear_errors(file: Path) -> Iterator[None]:
    """A damaged archive fails in many ways, which mean one thing to a person."""
    try:
        yield
    except FileNotFoundError as error:
        raise TransferError(f"{file}: no such file") from error
    except _BROKEN_ARCHIVE as error:
        why = in_one_line(error).strip("'\"")
        raise TransferError(f"{file}: not a whole export ({why}); transfer it again, or export it anew") from error
    except OSError as error:
        raise TransferError(f"{file}: cannot be read ({error.strerror or error})") from error


def _read_manifest(archive: zipfile.ZipFile, file: Path) -> Manifest:
    if len(archive.infolist()) > _MOST_ENTRIES:
        raise TransferError(f"{file}: not an export of interlace (it holds {len(archive.infolist())} files)")
    info = archive.getinfo(MANIFEST)
    if info.file_size > _MOST_MANIFEST_BYTES or info.compress_type not in _PACKED_BY:
        raise TransferError(f"{file}: not an export of interlace (its {MANIFEST} is too large)")
    try:
        found = read_json(archive.read(info).decode("utf-8"))
        written = found["format"], found["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise TransferError(f"{file}: not an export of interlace (its {MANIFEST} does not say so)") from error
    if written[0] != FORMAT:
        raise TransferError(f"{file}: not an export of interlace (format {written[0]!r:.60})")
    if written[1] != FORMAT_VERSION:
        raise TransferError(
            f"{file}: format version {written[1]!r:.60}, this interlace reads {FORMAT_VERSION}; upgrade interlace here"
        )
    return _typed_manifest(found, file)


def _typed_manifest(found: Mapping[str, Any], file: Path) -> Manifest:
    """Raises TransferError: a key is missing, unknown, or of another type."""
    kinds = {each.name: _KINDS[str(each.type)] for each in fields(Manifest)}
    wrong = sorted(kinds.keys() ^ found.keys()) or [
        name for name, kind in kinds.items() if type(found[name]) is not kind
    ]
    if wrong or found["content"] != CONTENT:
        raise TransferError(f"{file}: its {MANIFEST} is not as it was written ({(wrong or ['content'])[0]!r:.60})")
    return Manifest(**found)


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
    with closing(connect_strange(content)) as connection:
        found: list[Any] = connection.execute("SELECT id FROM run").fetchall()
    if found != [(manifest.run_id,)]:
        raise TransferError(f"{file}: does not hold the run that its {MANIFEST} names; export it anew")
