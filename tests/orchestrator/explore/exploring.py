"""The explorer, served for a test."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

PATIENCE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Explorer:
    """One that runs."""

    process: subprocess.Popen[str]
    address: str
    said: str
    client: httpx.Client


@contextmanager
def exploring(path: Path, *arguments: str) -> Iterator[Explorer]:
    command = [sys.executable, "-m", "orchestrator", "explore", "--no-browser", *arguments]
    environment = os.environ | {"INTERLACE_DB": str(path), "INTERLACE_QUERIES": str(path.parent)}
    process = subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=1
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        said = ""
        while "http://" not in said:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            said += line
        found = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert found is not None
        with httpx.Client(base_url=found[0], follow_redirects=True, timeout=PATIENCE_S) as client:
            yield Explorer(process=process, address=found[0], said=said, client=client)
    finally:
        process.kill()
        process.communicate()
