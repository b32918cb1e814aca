"""macmon as a stream: the GPU's clock while a trial runs, without a program started for each sample."""

import os
import time
from pathlib import Path

import psutil
import pytest

from tests.workers.machines import NEW, Recorded
from workers.machine.macmon import MacmonStream, Streaming
from workers.machine.optional_tools import MACMON, MACOS_FIELDS
from workers.machine.sampler import macmon_where_there
from workers.machine.system import LocalSystem, Unreadable
from workers.machine.telemetry import MachineReader

PATIENCE_S = 20.0
LINE = NEW.strip()
GOES_ON = f"echo '{LINE}'; while :; do sleep 0.05; echo '{LINE}'; done"


def macmon(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A stand-in for the tool; it writes down how it was called."""
    path = folder / "macmon"
    path.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{script}\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def wait_for_line(stream: MacmonStream) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return stream.newest()
        except Unreadable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def test_its_fields_come_from_the_newest_line_and_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    macmon(tmp_path, monkeypatch, GOES_ON)
    mac = Recorded(platform="darwin")
    with macmon_where_there(mac, 2.0) as (system, stream):
        assert stream is not None
        wait_for_line(stream)
        reader = MachineReader(system, only=MACOS_FIELDS)
        for _ in range(3):
            found = {reading.field: reading.value for reading in reader.read()}
            assert (found["gpu_mhz"], found["gpu_active_ratio"], found["gpu_c"]) == (1380.0, 0.97, 68.25)
        assert (tmp_path / "calls").read_text() == "pipe -s 0 -i 2000\n"
        assert stream.cpu_s() >= 0
        assert not mac.ran
        pid = next(child.pid for child in psutil.Process().children() if child.name() in ("macmon", "sh"))
    assert not psutil.pid_exists(pid)


def test_everything_else_is_the_machine_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    macmon(tmp_path, monkeypatch, GOES_ON)
    stream = MacmonStream(interval_s=1.0)
    mac = Recorded(platform="darwin", commands={"pmset -g": "powermode 1"}, files={"/x": "1"}, notifications={"k": 3})
    system = Streaming(mac, stream)
    assert (system.run("pmset", "-g"), system.read("/x"), system.list("/x"), system.notify_state("k")) == (
        "powermode 1",
        "1",
        ["/x"],
        3,
    )
    assert (system.platform, system.root_pid) == (mac.platform, mac.root_pid)
    with pytest.raises(Unreadable):
        system.footprint_bytes(1)
    with pytest.raises(Unreadable):
        system.peak_footprint_bytes(1)
    stream.stop()


def test_a_stream_that_falls_silent_reports_no_old_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    macmon(tmp_path, monkeypatch, f"echo '{LINE}'; exec sleep 60")
    now = [0.0]
    stream = MacmonStream(interval_s=1.0, clock=lambda: now[0])
    wait_for_line(stream)
    now[0] = 3.5
    with pytest.raises(Unreadable, match="no longer prints anything"):
        Streaming(Recorded(platform="darwin"), stream).run(*MACMON)
    stream.stop()


def test_one_that_has_printed_nothing_yet_has_its_own_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    macmon(tmp_path, monkeypatch, "exec sleep 60")
    stream = MacmonStream(interval_s=60.0)
    with pytest.raises(Unreadable, match="has printed nothing yet"):
        stream.newest()
    stream.stop()


def test_without_the_tool_the_machine_is_read_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    mac = Recorded(platform="darwin")
    with macmon_where_there(mac, 1.0) as (system, stream):
        assert (system, stream) == (mac, None)
    with macmon_where_there(LocalSystem(), 1.0) as (_, stream):
        assert stream is None
