"""New checkpoints from unquantised ones."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli import cli
from tests.workers import tiny
from workers.engines.mlx_loading import load_model
from workers.errors import EngineError, FaultKind
from workers.weights.checkpoints import inspect
from workers.weights.folders import checkpoints_dir
from workers.weights.quantisation import Quantisation, make_checkpoint


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("INTERLACE_CHECKPOINTS", str(tmp_path / "checkpoints"))
    return tiny.build(tmp_path / "tiny")


def test_a_checkpoint_is_quantised_into_the_checkpoints_folder(source: dict[str, Any]) -> None:
    info = make_checkpoint(source, "tiny-6bit", Quantisation(bits=6, group_size=32))
    assert (info.path, info.bits, info.group_size) == (str(checkpoints_dir() / "tiny-6bit"), 6, 32)
    assert info.weights_bytes < inspect(source["path"]).weights_bytes
    loaded = load_model({"name": "tiny-6bit", "source": "imported", "bits": 6})
    assert loaded.info.digest == info.digest


def test_a_cast_changes_the_dtype_alone(source: dict[str, Any]) -> None:
    info = make_checkpoint(source, "tiny-half", Quantisation(bits=None, dtype="bfloat16"))
    assert (info.dtype, info.bits, info.group_size) == ("bfloat16", 16, None)


def test_quantising_twice_is_refused(source: dict[str, Any]) -> None:
    make_checkpoint(source, "tiny-8bit", Quantisation(bits=8))
    with pytest.raises(EngineError, match="quantised to 8 bits already") as caught:
        make_checkpoint({"name": "tiny-8bit", "source": "imported"}, "tiny-4bit", Quantisation(bits=4))
    assert caught.value.kind is FaultKind.unsupported_setting
    assert not (checkpoints_dir() / "tiny-4bit").exists()


def test_what_a_user_put_there_is_not_replaced(source: dict[str, Any]) -> None:
    mine = checkpoints_dir() / "tiny-4bit"
    mine.mkdir(parents=True)
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(EngineError, match="was not made by an import"):
        make_checkpoint(source, "tiny-4bit", Quantisation(bits=4))
    assert [file.name for file in mine.iterdir()] == ["notes.txt"]


def test_bits_that_mlx_does_not_have_leave_nothing_behind(source: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match="bits=7"):
        make_checkpoint(source, "tiny-7bit", Quantisation(bits=7))
    assert [file.name for file in checkpoints_dir().iterdir() if file.is_dir()] == []


def test_the_command_says_how_to_name_what_it_made(source: dict[str, Any], tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["checkpoint", "make", source["path"], "--bits", "4"])
    assert done.exit_code == 0, done.output
    assert "tiny-4bit-g64: 4 bits" in done.output
    folder = tmp_path / "mine" / "checkpoint"
    folder.mkdir(parents=True)
    yaml = done.output.split("add --config-dir DIR:\n")[1]
    (folder / "tiny-4bit-g64.yaml").write_text(yaml)
    listed = CliRunner().invoke(cli, ["checkpoint", "list", "--config-dir", str(tmp_path / "mine")])
    assert "tiny-4bit-g64" in listed.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["nowhere", "--bits", "4"], "no checkpoint or folder of this name"), (["smollm2-f32"], "nothing to make")],
)
def test_bad_input_is_reported(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(cli, ["checkpoint", "make", *arguments])
    assert words in str(done.exception)
