"""Shared by the tests of the queue."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

HOLD = """
import sys
from orchestrator.queue.machine_lock import MachineLock
with MachineLock("interlace work") as lock:
    lock.take()
    lock.at("the-run")
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other() -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds this machine."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()
