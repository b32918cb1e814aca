"""Reading a model file in a process of its own: whatever becomes of it, one clear line."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli import cli
from tests.workers import tiny
from workers.errors import EngineError, FaultKind
from workers.supervision import isolation
from workers.supervision.isolation import Limits, run_apart
from workers.weights import gguf

AMPLE = Limits(time_s=120, memory_bytes=8 << 30)


def convert(folder: Path, *, limits: Limits = AMPLE, source: str = "m.gguf") -> None:
    (folder / "out").mkdir()
    arguments = {"source": str(folder / source), "folder": str(folder / "out"), "recipe": {"bits": None}}
    run_apart("gguf", arguments, source=folder / source, limits=limits)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tiny.save_gguf(tmp_path / "m.gguf")
    return tmp_path


def test_the_work_is_done_and_a_refusal_comes_back_as_it_was(model: Path) -> None:
    convert(model)
    assert (model / "out" / "model.safetensors").is_file()
    tiny.save_gguf(model / "less.gguf", change={"llama.block_count": None})
    (model / "out").rename(model / "before")
    with pytest.raises(EngineError, match=r"less\.gguf: no llama\.block_count") as caught:
        convert(model, source="less.gguf")
    assert (caught.value.kind, caught.value.remedy) == (FaultKind.checkpoint_corrupt, "fetch it again")


@pytest.mark.parametrize(
    ("limits", "kind", "words"),
    [
        (Limits(time_s=0, memory_bytes=8 << 30), FaultKind.checkpoint_corrupt, "did not end within 0 s"),
        (Limits(time_s=120, memory_bytes=1000), FaultKind.out_of_memory, r"took more than 0\.0 GB"),
    ],
)
def test_a_limit_ends_it(model: Path, limits: Limits, kind: FaultKind, words: str) -> None:
    with pytest.raises(EngineError, match=words) as caught:
        convert(model, limits=limits)
    assert caught.value.kind is kind


CRASHES = {
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)": r"crashed with signal 11 \(SIGSEGV\)",
    "import os; os.abort()": r"signal 6 \(SIGABRT\)",
    "import sys; print('libc++abi: terminating due to std::bad_alloc', file=sys.stderr); sys.exit(3)": "std::bad_alloc",
    "print('no answer')": "exit status 0: no answer",
}


@pytest.mark.parametrize("code", CRASHES)
def test_a_crash_is_one_line(code: str, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(task: str, arguments: object, write_fd: int, log: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=log, stderr=log)

    monkeypatch.setattr(isolation, "_spawn", crash)
    with pytest.raises(EngineError, match=CRASHES[code]) as caught:
        convert(model)
    assert str(caught.value).startswith(str(model / "m.gguf"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../elsewhere", "/tmp/x", ".", "..", ".hidden", "a/b"])
def test_a_name_that_leads_elsewhere_is_refused(name: str, model: Path) -> None:
    done = CliRunner().invoke(cli, ["checkpoint", "import", str(model / "m.gguf"), "--name", name])
    assert "is not a valid folder name" in str(done.exception)


def test_a_link_in_the_checkpoints_folder_is_one_line(
    model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("INTERLACE_CHECKPOINTS", str(tmp_path / "checkpoints"))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / ".m.lock").symlink_to(tmp_path / "precious")
    done = CliRunner().invoke(cli, ["checkpoint", "import", str(model / "m.gguf")])
    assert "a symbolic link is there" in str(done.exception)
    assert not (tmp_path / "precious").exists()


def test_the_commands_own_process_loads_no_strange_file(
    model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`mx.load` in the command's own process would end it, so it must not be called there."""
    monkeypatch.setenv("INTERLACE_CHECKPOINTS", str(tmp_path / "checkpoints"))
    monkeypatch.setattr(gguf, "_read", lambda source: pytest.fail("read in this process"))
    done = CliRunner().invoke(cli, ["checkpoint", "import", str(model / "m.gguf"), "--bits", "8"])
    assert done.exit_code == 0, done.exception
    done = CliRunner().invoke(cli, ["checkpoint", "make", str(tmp_path / "checkpoints" / "m"), "--bits", "4"])
    assert "quantised to 8 bits already" in str(done.exception)
