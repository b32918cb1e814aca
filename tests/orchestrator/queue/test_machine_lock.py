"""One measuring process per machine, whoever it is and however it ended."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.errors import HeldError, RefusedError
from orchestrator.queue.machine_lock import LOCK_NAME, MachineLock, machine_holder
from orchestrator.state_folder import state_folder

ODD = ("null", "[]", "{}", "[" * 100_000, '{"pid": 1}')
ODD_VALUES = (
    ("pid", "x"),
    ("pid", -1),
    ("pid", 1 << 70),
    ("since", "now"),
    ("since", 3),
    ("boot_id", []),
    ("command", 1),
)


def test_a_second_one_learns_who_holds_it_and_what_to_do(other: "subprocess.Popen[str]") -> None:
    words = rf"process {other.pid} \(interlace work, at run the-run\) since \d{{4}}-.*interlace queue add"
    with pytest.raises(HeldError, match=words), MachineLock("interlace run") as lock:
        lock.take()
    holder = machine_holder()
    assert holder is not None
    assert (holder.pid, holder.run_id) == (other.pid, "the-run")
    with pytest.raises(HeldError), MachineLock("interlace run") as lock:
        lock.take()  # looking has not taken it away


def test_a_killed_holder_holds_nothing(other: "subprocess.Popen[str]") -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert machine_holder() is None
    with MachineLock("interlace run") as lock:
        lock.take()
        lock.take()
        holder = machine_holder()
        assert holder is not None
        assert holder.command == "interlace run"
    assert machine_holder() is None


def test_what_an_earlier_holder_wrote_does_not_shine_through() -> None:
    with MachineLock("interlace work") as lock:
        lock.take()
        lock.at("x" * 500)
        lock.at("short")
        holder = machine_holder()
    assert holder is not None
    assert holder.run_id == "short"


def test_a_folder_that_cannot_be_written_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INTERLACE_STATE", str(tmp_path / "file"))
    with pytest.raises(RefusedError, match="INTERLACE_STATE"), MachineLock("interlace run") as lock:
        lock.take()


def test_the_state_folder_is_the_platforms_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLACE_STATE")
    assert state_folder().name == "interlace"
    monkeypatch.setenv("INTERLACE_STATE", "/elsewhere")
    assert state_folder() / LOCK_NAME == Path("/elsewhere/machine.lock")


@pytest.mark.parametrize("text", ODD)
def test_a_file_that_names_nobody_names_nobody(text: str) -> None:
    state_folder().mkdir(parents=True, exist_ok=True)
    (state_folder() / LOCK_NAME).write_text(text)
    assert machine_holder() is None


@pytest.mark.parametrize(("key", "value"), ODD_VALUES)
def test_a_holder_of_another_kind_is_nobody(key: str, value: object) -> None:
    with MachineLock("interlace work") as lock:
        lock.take()
        path = state_folder() / LOCK_NAME
        assert machine_holder() is not None
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
        assert machine_holder() is None


def test_a_pipe_in_its_place_is_not_waited_for() -> None:
    state_folder().mkdir(parents=True, exist_ok=True)
    (state_folder() / LOCK_NAME).unlink(missing_ok=True)
    os.mkfifo(state_folder() / LOCK_NAME)
    assert machine_holder() is None
    with pytest.raises(RefusedError, match="a pipe is there"):
        MachineLock("interlace work").take()
