"""Mutated exports, and what a person does with a database into which one was imported.

A mutation changes one value (every column, each wrong type), the text of a JSON column, or the bytes of the file. What
comes of it is either one clear line, or a run that every command shows.
"""

import asyncio
import hashlib
import io
import json
import os
import random
import shutil
import sqlite3
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from click.testing import CliRunner, Result

from db.check import check
from db.models import Base
from db.stored_queries import stored_queries
from db.transfer.tables import STAYS
from orchestrator.cli import cli
from orchestrator.explore.guard import Guard
from orchestrator.explore.server import build

Change = Callable[[sqlite3.Connection], object]

DEEP = "[" * 100_000 + "]" * 100_000
# One of each kind that a column does not hold, as SQL.
VALUES = {
    "null": "NULL",
    "text": "'x; drop'",
    "empty": "''",
    "integer": "7",
    "negative": "-5",
    "huge": "9223372036854775807",
    "real": "0.5",
    "infinite": "9e999",
    "blob": "X'ff00fe'",
    "not_utf8": "CAST(X'61c328ff' AS TEXT)",
    "nul": "'a' || char(0) || 'b'",
    "escape": "char(27) || ']0;x' || char(7) || char(8238) || '<script>alert(1)</script>'",
    "long": "replace(hex(zeroblob(2000000)), '0', 'A')",
    "date": "'9999-99-99 99:99:99.000000'",
    "far_date": "'9999-12-31 23:59:59.999999'",
    "object": "'{}'",
    "list": "'[]'",
    "numbers": "'[1, 2.5, -3, null]'",
    "deep": f"'{DEEP}'",
    "nan": "'[NaN, 1e999]'",
    "surrogate": '\'{"a": "\\ud800"}\'',
    "digits": "'[' || replace(hex(zeroblob(3000)), '0', '9') || ']'",
    "not_json": "'{nope'",
}


RUN = (
    "run engine=simulated checkpoint=simulated engine.effect=1,1.1 workload=quick design.rounds=6"
    " design.interleave_by=prompt --quiet"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Genuine:
    """An export, in its parts, and the database that it is of."""

    manifest: dict[str, Any]
    content: bytes
    database: Path

    @classmethod
    def of(cls, file: Path, database: Path) -> "Genuine":
        with zipfile.ZipFile(file) as archive:
            manifest = json.loads(archive.read("manifest.json"))
            return cls(manifest=manifest, content=archive.read("run.db"), database=database)

    def packed(self, content: bytes, **changes: Any) -> bytes:
        """An archive with this content, honestly summed."""
        manifest = self.manifest | {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)} | changes
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("manifest.json", json.dumps(manifest))
            archive.writestr("run.db", content)
        return made.getvalue()

    def changed(self, change: Change, scratch: Path) -> bytes:
        """An archive whose rows were changed."""
        scratch.write_bytes(self.content)
        with closing(sqlite3.connect(scratch, isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys=OFF")
            connection.execute("PRAGMA ignore_check_constraints=ON")
            change(connection)
        return self.packed(scratch.read_bytes())


def make_genuine(folder: Path) -> Genuine:
    """A small finished run, exported; and a whole database that holds another one like it."""
    for name in ("theirs", "ours"):
        with patch.dict(os.environ, {"INTERLACE_DB": str(folder / f"{name}.db")}):
            for arguments in (RUN, "db export last -o run.interlace --force", "db backup copy.db --force"):
                words = [
                    str(folder / word) if word.startswith(("run.", "copy.")) else word for word in arguments.split()
                ]
                done = CliRunner().invoke(cli, words, standalone_mode=False)
                assert done.exception is None, done.output
        if name == "theirs":
            (folder / "run.interlace").rename(folder / "their.interlace")
    return Genuine.of(folder / "their.interlace", folder / "copy.db")


def every_column() -> Iterator[tuple[str, str, str]]:
    """(table, column, value by its name) of each wrong type in each column."""
    for table in Base.metadata.sorted_tables:
        if table.name not in STAYS:
            for column in table.columns:
                for name in VALUES:
                    yield table.name, str(column.name), name


def set_value(table: str, column: str, name: str) -> Change:
    """Puts a value into the first row, or into all where a first one would not be seen."""

    def change(connection: sqlite3.Connection) -> None:
        try:
            connection.execute(
                f'UPDATE "{table}" SET "{column}" = {VALUES[name]} WHERE rowid = (SELECT min(rowid) FROM "{table}")'
            )
        except sqlite3.IntegrityError:
            return  # NOT NULL or UNIQUE: nobody can put it there

    return change


def mutate_json(text: str, chance: random.Random) -> str:
    """The same JSON with one value somewhere replaced, taken away, doubled or wrapped."""
    value = json.loads(text)
    places = list(_places(value))
    if not places:
        return chance.choice(["[]", "{}", "null", "0", '"x"'])
    holder, key = chance.choice(places)
    odd = [None, True, -1, 0, 2**62, 1.5, "", "x", [], {}, [[]], {"a": 1}, "\x00", "9" * 30, [1, "a"], 1e308]
    if isinstance(holder, dict) and chance.random() < 0.2:
        del holder[key]
    elif isinstance(holder, list) and chance.random() < 0.2:
        holder.insert(key, holder[key])
    else:
        holder[key] = chance.choice(odd)
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in list(pairs):
        yield value, key
        yield from _places(each)


def change_json(table: str, column: str, chance: random.Random, *, hashed: bool = True) -> Change:
    """Changes the JSON of a random row; a plan's hash is made anew."""

    def change(connection: sqlite3.Connection) -> None:
        rows = connection.execute(f'SELECT id, "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL').fetchall()
        if not rows:
            return
        key, text = chance.choice(rows)
        made = mutate_json(text, chance)
        connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE id = ?', (made, key))
        if column == "plan" and hashed:
            connection.execute("UPDATE run SET plan_sha256 = ?", (hashlib.sha256(made.encode()).hexdigest(),))

    return change


def change_numbers(table: str, column: str, chance: random.Random) -> Change:
    """Changes a value of its own type: zero, negative, large, or another row's."""
    value = chance.choice(["0", "1", "-1", "1e15", "4611686018427387904", "random()", f'"{column}" * 1000', "0.5"])
    where = chance.choice(["1", "rowid % 2", "rowid = 1"])

    def change(connection: sqlite3.Connection) -> None:
        try:
            connection.execute(f'UPDATE "{table}" SET "{column}" = {value} WHERE {where}')
        except sqlite3.IntegrityError:
            return

    return change


def drop_rows(table: str, chance: random.Random) -> Change:
    share = chance.choice([1, 2, 3])
    return lambda connection: connection.execute(f'DELETE FROM "{table}" WHERE rowid % {share} = 0')


def flip(content: bytes, chance: random.Random) -> bytes:
    """Bits turned, bytes overwritten, or the end cut off."""
    changed = bytearray(content)
    kind = chance.choice(["bits", "bits", "bytes", "block", "cut"])
    if kind == "cut":
        return bytes(changed[: chance.randrange(len(changed))])
    for _ in range(chance.choice([1, 3, 30, 300])):
        place = chance.randrange(len(changed))
        if kind == "bits":
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == "bytes":
            changed[place] = chance.choice([0, 0xFF, 0x7F, 0x80, changed[place] ^ 0x55])
        else:
            changed[place : place + 16] = bytes(chance.randrange(256) for _ in range(min(16, len(changed) - place)))
            break
    return bytes(changed)


# ---- what a person does with it ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one file."""

    taken: bool
    problems: tuple[str, ...]  # tracebacks, and lines that are none
    slowest_s: float  # of CPU, of the longest command


class Desk:
    """A database with a run of its own, into which each file is imported anew."""

    def __init__(self, genuine: Genuine, folder: Path) -> None:
        self.genuine, self.folder, self.db = genuine, folder, folder / "ours.db"
        self.times: list[float] = []

    def attempt(self, packed: bytes, *, thorough: bool = True, name: str = "their.interlace") -> Outcome:
        """Import a file of this name, then ask what was taken by every command."""
        self.times = []
        for path in self.folder.glob("ours.db*"):
            path.unlink()
        shutil.copyfile(self.genuine.database, self.db)
        file = self.folder / name
        file.write_bytes(packed)
        imported = self.run("db", "import", str(file))
        problems = list(_problems("db import", imported))
        taken = imported.exception is None and not problems
        if taken and thorough:
            problems += self._shown(self._ids())
        if not check(str(self.db)).ok:
            problems.append("the database is not sound")
        return Outcome(taken=taken, problems=tuple(problems), slowest_s=max(self.times))

    def _ids(self) -> list[str]:
        with closing(sqlite3.connect(self.db)) as connection:
            return [str(row[0]) for row in connection.execute("SELECT id FROM run ORDER BY arrived_at IS NULL")]

    def _shown(self, ids: list[str]) -> Iterator[str]:
        theirs, tables = ids[0], ("trial_flat", "run", "arm", "round", "host", "telemetry", "generation")
        for arguments in (  # these answer, whatever was taken in
            ["status"],
            ["queue", "list"],
            ["history"],
            ["history", "--metric", "decode_tps", "--simulated"],
            ["db", "export", theirs, "-o", "again.interlace", "--force"],
            ["query", "SELECT * FROM verdict_flat"],
            ["query", "SELECT sum(decode_tps), sum(completion_tokens), sum(prompt_tokens) FROM trial_flat"],
            *(["query", f'SELECT * FROM "{table}" LIMIT 100', "--format", "json"] for table in tables),
            ["db", "check"],
        ):
            yield from _problems(" ".join(arguments[:2]), self.run(*arguments), refused=False)
        for arguments in (  # these answer, or say in one line why they do not
            ["audit", theirs],
            ["audit", theirs, "--format", "json"],
            ["audit", theirs, "--format", "markdown"],
            ["compare", theirs, ids[-1]],
            ["report", theirs, "-o", "page.html", "--markdown", "page.md"],
        ):
            yield from _problems(arguments[0], self.run(*arguments))
        for arguments in (["resume", theirs], ["run", "--from", theirs]):  # these execute nothing
            yield from _problems(arguments[0], self.run(*arguments), answered=False)
        yield from self._explored(theirs)

    def _explored(self, run_id: str) -> list[str]:
        """Pages of the explorer that are no page; each stored query is one of them."""
        began = time.process_time()
        queries = stored_queries(str(self.db))
        pages = [f"/interlace/{query.name}?run={run_id}" for query in queries]
        pages += [f"/interlace/{name}{kind}" for name in ("trial_flat", "run", "generation") for kind in ("", ".json")]
        application = build(queries, self.db)
        try:
            return asyncio.run(_refused_pages(application, ["/interlace", *pages]))
        finally:
            self.times.append((time.process_time() - began) / len(pages))

    def run(self, *arguments: str) -> Result:
        began = time.process_time()
        try:
            return CliRunner().invoke(cli, [*arguments], standalone_mode=False)
        finally:
            self.times.append(time.process_time() - began)


async def _refused_pages(application: Guard, pages: list[str]) -> list[str]:
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", follow_redirects=True) as client:
        answers = [(page, await client.get(page)) for page in pages]
    return [f"explore: {page}: {answer.status_code}" for page, answer in answers if answer.status_code != 200]


def _problems(command: str, result: Result, *, refused: bool = True, answered: bool = True) -> Iterator[str]:
    """Return what is wrong with a command's answer.

    Args:
        refused: it may refuse, in one line.
        answered: it may do what it was asked for.
    """
    error = result.exception
    if error is None:
        if not answered:
            yield f"{command}: was not refused"
    elif not hasattr(error, "exit_code"):
        yield f"{command}: {type(error).__name__}: {str(error)[:300]}"
    elif not refused or len(str(error).splitlines()) != 1 or len(str(error)) > 1_000:
        yield f"{command}: refused, or not in one line: {str(error)[:300]!r}"
