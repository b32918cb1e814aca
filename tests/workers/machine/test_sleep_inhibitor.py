"""The machine is kept awake by the system's own tools, and a run goes on where that is not possible."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from workers.machine.sleep_inhibitor import command, keep_awake

INHIBIT = "systemd-inhibit"


def test_caffeinate_ends_with_the_run_and_never_holds_the_display_on() -> None:
    chosen = command(4711, "darwin")
    assert chosen == ("caffeinate", "-i", "-m", "-s", "-w", "4711")
    assert "-d" not in chosen


def fake_tool(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool of this name goes before the system's."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(("platform", "tool"), [("darwin", "caffeinate"), ("linux", INHIBIT)])
def test_the_tool_runs_while_the_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, tool: str
) -> None:
    fake_tool(tmp_path, tool, f"echo $$ > {tmp_path}/pid; exec sleep 600", monkeypatch)
    with keep_awake(os.getpid(), platform=platform) as awake:
        assert (awake.tool, awake.reason) == (tool, None)
        pid = int((tmp_path / "pid").read_text())
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


def test_a_tool_that_somebody_ends_is_reported_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_tool(tmp_path, "caffeinate", f"echo $$ > {tmp_path}/pid; exec sleep 600", monkeypatch)
    with keep_awake(os.getpid(), platform="darwin") as awake:
        assert awake.reading().value_text == "caffeinate"
        holder = psutil.Process(int((tmp_path / "pid").read_text()))
        holder.terminate()
        while holder.is_running() and holder.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        assert awake.reading().value_text is None
        assert awake.reading().reason == "caffeinate has ended before the run: status -15"


def test_a_tool_that_gives_up_is_no_fault_but_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_tool(tmp_path, INHIBIT, "echo 'Failed to connect to bus' >&2; exit 1", monkeypatch)
    with keep_awake(os.getpid(), platform="linux") as awake:
        assert (awake.tool, awake.reason) == (None, "systemd-inhibit gave up: Failed to connect to bus")
    assert awake.reading().reason == awake.reason


def test_a_tool_that_is_not_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with keep_awake(os.getpid(), platform="darwin") as awake:
        assert awake.reason == "caffeinate cannot be started: No such file or directory"
    with keep_awake(os.getpid(), platform="plan9") as awake:
        assert awake.reason == "no tool is known on plan9"


@pytest.mark.skipif(sys.platform != "linux", reason="GNU tail")
def test_on_linux_the_assertion_ends_with_the_process_that_it_is_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as run:
        chosen = command(run.pid, "linux")
        assert chosen is not None
        holder = subprocess.Popen(chosen[chosen.index("tail") :])
        time.sleep(0.2)
        assert holder.poll() is None
        run.kill()
    assert holder.wait(timeout=10) == 0
