"""The command as a person uses it, with a database of its own: in this process, or in one of its own."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from orchestrator.cli import main

ENGINE = ["engine=simulated", "checkpoint=simulated", "design.interleave_by=prompt"]
SIMULATED = [*ENGINE, "workload=quick"]

INTERLACE = [sys.executable, "-m", "orchestrator"]


class Shell:
    """Runs commands in a folder. Importing what a command needs takes seconds of CPU: a call runs in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = folder / "test.db"
        self.env = os.environ | {"INTERLACE_DB": str(self.db), "INTERLACE_CHECKPOINTS": str(folder), "COLUMNS": "80"}

    def __call__(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self._checked(run_here(*arguments, env=self.env, folder=self.folder), code)

    def process(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """The command in a process of its own."""
        command = [*INTERLACE, *arguments]
        return self._checked(
            subprocess.run(command, capture_output=True, text=True, env=self.env, cwd=self.folder, check=False), code
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """The command in a process that goes on."""
        return subprocess.Popen(
            [*INTERLACE, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.env,
            cwd=self.folder,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
        )

    def ask(self, sql: str) -> list[dict[str, object]]:
        """The rows of a query."""
        found: list[dict[str, object]] = json.loads(self("query", sql, "--format", "json").stdout)
        return found

    def count(self, sql: str) -> int:
        """The number of rows of a query."""
        (row,) = self.ask(f"SELECT count(*) AS n FROM ({sql})")
        return int(str(row["n"]))

    def _checked(self, done: subprocess.CompletedProcess[str], code: int) -> subprocess.CompletedProcess[str]:
        assert done.returncode == code, done.stdout + done.stderr
        return done


def run_here(*arguments: str, env: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A command in this process, with its exit code and what it wrote. A traceback is the test's."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: object = None
    with (
        mock.patch.dict(os.environ, env, clear=True),
        mock.patch.object(sys, "argv", ["interlace", *arguments]),
        _signals_kept(),
        chdir(folder),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    written = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]  # BytesIO's
    return subprocess.CompletedProcess(["interlace", *arguments], int(str(code or 0)), *written)


@contextmanager
def _signals_kept() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("interlace: ")
    return line
