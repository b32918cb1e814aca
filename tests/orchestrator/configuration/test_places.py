"""Checkpoints named by their places on the override line: hub ids, folders, GGUF files."""

import os
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from orchestrator.configuration.compose import make_plan
from orchestrator.errors import InputError
from orchestrator.plan import Arm

QUICK = "workload=quick"
HUB_ID = "mlx-community/Qwen3-8B-4bit"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with two checkpoints' folders and a GGUF file; it is the home directory too."""
    for name in ("one", "my models/two (old), really", "qwen3/8b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with chdir(tmp_path):
        yield tmp_path


def arms(*overrides: str) -> tuple[Arm, ...]:
    return make_plan([*overrides, QUICK]).plan.arms


def refusal(*overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        make_plan([*overrides, QUICK])
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("./one", "one"),
        ("one/", "one"),
        ("one", "one"),
        ("~/one", "one"),
        ("my models/two (old), really", "my models/two (old), really"),
        ("'my models/two (old), really'", "my models/two (old), really"),
        ("qwen3/8b", "qwen3/8b"),  # a hub id would look the same
        ("../{here}/one", "one"),
        ("{path}/one", "one"),
    ],
)
def test_a_folder_is_a_checkpoint(here: Path, value: str, folder: str) -> None:
    (arm,) = arms(f"checkpoint={value.format(here=here.name, path=here)}")
    assert (arm.checkpoint["source"], arm.checkpoint["path"]) == ("local", str(here / folder))
    assert arm.checkpoint["name"] == Path(folder).name


@pytest.mark.parametrize(
    ("value", "revision"),
    [
        (HUB_ID, None),
        (f"{HUB_ID}@v1", "v1"),
        (f"https://huggingface.co/{HUB_ID}", None),
        (f"https://huggingface.co/{HUB_ID}/tree/main", "main"),
        (f"hf.co/{HUB_ID}", None),
    ],
)
def test_a_hub_id_is_a_checkpoint(value: str, revision: str | None) -> None:
    (arm,) = arms(f"checkpoint={value}")
    wanted = {"name": "Qwen3-8B-4bit", "source": "hub", "hub_id": HUB_ID, "revision": revision}
    assert arm.checkpoint.items() >= wanted.items()


def test_places_are_swept_beside_shipped_names() -> None:
    found = arms(f"checkpoint=smollm2-8bit,{HUB_ID},~/one,'my models/two (old), really'")
    assert [arm.name for arm in found] == ["smollm2-8bit", "Qwen3-8B-4bit", "one", "two _old_ really"]
    drafting = arms(f"checkpoint={HUB_ID}", "engine=mlx_lm_draft", "engine.draft=~/one,smollm2-4bit")
    assert [arm.draft["name"] for arm in drafting if arm.draft] == ["one", "smollm2-4bit"]


def test_two_folders_of_one_name_are_two_arms(here: Path) -> None:
    (here / "other" / "one").mkdir(parents=True)
    (here / "other" / "one" / "config.json").write_text("{}")
    found = arms("checkpoint=./one,./other/one")
    assert len({arm.name for arm in found}) == 2
    assert all("one" in arm.name for arm in found)


def test_a_gguf_file_is_a_checkpoint_and_a_server_is_named_by_its_option(here: Path) -> None:
    (arm,) = arms("checkpoint=small.gguf", "engine=llama_cpp")
    assert (arm.checkpoint["source"], arm.checkpoint["path"]) == ("gguf", str(here / "small.gguf"))
    assert arm.checkpoint["name"] == "small"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("qwen3-8b-4bti", ["did you mean qwen3-8b-4bit?"]),
        ("~/absent", ["no such file or folder", "/absent", "owner/model"]),
        ("./absent,./one", ["no such file or folder"]),
        (".", ["no config.json", "small.gguf"]),
        ("qwen3/", ["no config.json", "8b: name one of them"]),
        ("one/config.json", ["only .gguf", "name its folder"]),
        ("a/b/c", ["no such file or folder"]),
        ("absent.gguf", ["no such file or folder"]),
        ("~nobody-of-this-name/x", ["is not a path"]),
        ("one\0x/", ["no such file or folder"]),
        ("./" + "x" * 300, ["no such file or folder"]),
    ],
)
def test_what_is_no_checkpoint_is_reported(value: str, words: list[str]) -> None:
    said = refusal(f"checkpoint={value}")
    assert [word for word in words if word not in said] == []


def test_the_hubs_own_cache_leads_to_the_hub_id(here: Path) -> None:
    folder = here / "models--me--tiny"
    folder.mkdir()
    assert "checkpoint=me/tiny" in refusal(f"checkpoint={folder}")


def test_an_option_goes_before_a_folder_of_its_name(here: Path) -> None:
    (here / "smollm2-8bit").mkdir()
    (here / "smollm2-8bit" / "config.json").write_text("{}")
    assert arms("checkpoint=smollm2-8bit")[0].checkpoint["source"] == "imported"
    assert arms("checkpoint=./smollm2-8bit")[0].checkpoint["source"] == "local"


def test_the_grammar_still_expands_what_is_no_place() -> None:
    assert [arm.name for arm in arms("checkpoint=glob(smollm2-*bit)")] == ["smollm2-4bit", "smollm2-8bit"]


@pytest.mark.parametrize(
    ("engine", "url"),
    [
        ("ollama", "http://127.0.0.1:11434"),
        ("lm_studio", "http://127.0.0.1:1234"),
        ("llama_cpp", "http://127.0.0.1:8080"),
        ("vllm", "http://127.0.0.1:8000"),
        ("omlx_attached", "http://127.0.0.1:8000"),
    ],
)
def test_a_server_is_an_engine_with_its_address_and_preset(engine: str, url: str) -> None:
    (arm,) = arms(f"engine={engine}", "engine.model=m")
    assert arm.engine["_target_"] == "workers.engines.openai_http.OpenaiHttp"
    assert (arm.engine["name"], arm.engine["url"], arm.engine["preset"]) == (
        engine,
        url,
        engine.removesuffix("_attached"),
    )
    assert (arm.checkpoint["name"], arm.checkpoint["source"]) == ("served", "unknown")


def test_servers_are_compared_with_each_other_and_with_an_engine() -> None:
    assert [arm.name for arm in arms("engine=ollama,lm_studio", "engine.model=m")] == ["ollama", "lm_studio"]
    found = arms("engine=mlx_lm,ollama", "checkpoint=./one")
    assert {arm.checkpoint["name"] for arm in found} == {"one"}
    assert arms("engine=ollama", "engine.url=http://10.0.0.7:1")[0].engine["url"] == "http://10.0.0.7:1"


def test_a_servers_weights_are_not_for_other_engines() -> None:
    assert "for engines that attach" in refusal("engine=mlx_lm", "checkpoint=served")


def test_a_folder_without_rights_is_reported(here: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (here / "one").chmod(0)
    assert "one" in refusal("checkpoint=./one")
    (here / "one").chmod(0o700)


@pytest.mark.parametrize("place", [HUB_ID, "./one", "/models/x", "~/models/x"])
def test_a_place_alone_is_probably_a_checkpoint(place: str) -> None:
    assert f"did you mean checkpoint={place}?" in refusal(place)


def test_hydras_deletion_is_not_taken_for_a_place() -> None:
    assert "did you mean checkpoint" not in refusal("~design.rounds")
