"""Checkpoints: found, described and refused without loading a weight."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workers import tiny
from workers.errors import EngineError, FaultKind
from workers.weights import dummies, folders
from workers.weights.checkpoints import CheckpointInfo, describe, find_folder, inspect, resolve


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tiny.build(tmp_path_factory.mktemp("models") / "plain")


@pytest.fixture
def broken(plain: dict[str, Any], tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(tiny.copy(plain, tmp_path / "broken")["path"])


def refusal(path: Path) -> EngineError:
    with pytest.raises(EngineError) as caught:
        inspect(path)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    return caught.value


# Facts from a folder.


def test_inspect_reads_the_shape_from_configuration_and_headers(plain: dict[str, Any]) -> None:
    info = inspect(plain["path"])
    shape = tiny.SHAPE
    parameters = shape.matrix_parameters + shape.norm_parameters
    assert info == CheckpointInfo(
        path=plain["path"],
        architecture="llama",
        layers=2,
        hidden_size=64,
        kv_heads=2,
        head_dim=32,
        vocab_size=320,
        dtype="float32",
        bits=32,
        group_size=None,
        weights_bytes=4 * parameters,
        bytes_read_per_token=4 * parameters,  # tied: the embedding is read whole, as the output head
        kv_bytes_per_token=2 * 2 * 2 * 32 * 4,
        digest=info.digest,
    )


def test_inspect_reads_quantisation(tmp_path: Path) -> None:
    info = inspect(tiny.build(tmp_path / "m", bits=4, group_size=32)["path"])
    assert (info.bits, info.group_size, info.dtype) == (4, 32, "float32")
    # 4 bits a weight, and a float32 scale and bias for each 32 of them
    assert info.weights_bytes == tiny.SHAPE.matrix_parameters * (4 + 2) // 8 + tiny.SHAPE.norm_parameters * 4


def write_headers(folder: Path, tensors: dict[str, int], config: dict[str, Any]) -> None:
    """A folder whose one weight file has these tensors of so many bytes, in BF16, for arithmetic on headers."""
    folder.mkdir()
    header, position = {}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(position))
    (folder / "config.json").write_text(json.dumps({"model_type": "x"} | config))
    (folder / "tokenizer.json").write_text("{}")


TENSORS = {"model.embed_tokens.weight": 1000, "model.layers.0.mlp.switch_mlp.up_proj.weight": 800, "lm_head.weight": 10}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"tie_word_embeddings": False}, 810),  # one row of the input embedding is looked up
        ({"tie_word_embeddings": True}, 1800),  # a stray output head is not loaded
        ({"tie_word_embeddings": False, "num_experts": 8, "num_experts_per_tok": 2}, 210),
        ({"tie_word_embeddings": False, "num_experts": 8}, None),  # how many are active is not told
    ],
)
def test_bytes_read_per_token(tmp_path: Path, config: dict[str, Any], expected: int | None) -> None:
    write_headers(tmp_path / "m", TENSORS, config)
    assert inspect(tmp_path / "m").bytes_read_per_token == expected


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({}, 8),
        ({"layer_types": ["linear_attention", "full_attention"] * 4}, 4),
        ({"full_attention_interval": 4}, 2),
        ({"kv_lora_rank": 512}, None),  # latent attention keeps something else
        ({"num_key_value_heads": [2, 4]}, None),  # one number a layer
    ],
)
def test_kv_bytes_count_the_attention_layers_only(tmp_path: Path, config: dict[str, Any], layers: int | None) -> None:
    shape = {"num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64}
    write_headers(tmp_path / "m", {"model.norm.weight": 4}, {"text_config": shape | config})
    expected = None if layers is None else 2 * layers * 2 * 16 * 2
    assert inspect(tmp_path / "m").kv_bytes_per_token == expected


def test_the_digest_depends_on_content_not_on_place(plain: dict[str, Any], broken: Path, tmp_path: Path) -> None:
    original = inspect(plain["path"]).digest
    assert inspect(broken).digest == original
    fine_tune = tiny.build(tmp_path / "other-seed", seed=1)  # equal sizes and headers, other weights
    assert inspect(fine_tune["path"]).digest != original
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"rope_theta": 20000.0}))
    assert inspect(broken).digest != original


def test_inspecting_loads_no_mlx(plain: dict[str, Any]) -> None:
    code = (
        "import sys; from workers.weights.checkpoints import inspect; inspect(sys.argv[1]);"
        "sys.exit(any(name.split('.')[0] in ('mlx', 'mlx_lm', 'transformers', 'torch') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code, plain["path"]], check=False).returncode == 0


# What is refused.


def test_a_missing_folder(tmp_path: Path) -> None:
    error = refusal(tmp_path / "nowhere")
    assert error.kind is FaultKind.checkpoint_missing
    assert "nowhere" in str(error)


@pytest.mark.parametrize(
    ("victim", "kind"),
    [
        ("config.json", FaultKind.checkpoint_missing),
        ("model.safetensors", FaultKind.checkpoint_missing),
        ("tokenizer.json", FaultKind.checkpoint_missing),
    ],
)
def test_a_missing_file(broken: Path, victim: str, kind: FaultKind) -> None:
    (broken / victim).unlink()
    error = refusal(broken)
    assert error.kind is kind
    assert victim.removesuffix(".json") in str(error)


def test_a_missing_shard_is_named(broken: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (broken / "model.safetensors.index.json").write_text(json.dumps(index))
    error = refusal(broken)
    assert error.kind is FaultKind.checkpoint_missing
    assert "model-00002-of-00002.safetensors" in str(error)


@pytest.mark.parametrize("text", ["{", "[1]", "\x80"])
def test_a_configuration_that_is_no_json_object(broken: Path, text: str) -> None:
    (broken / "config.json").write_text(text, encoding="latin-1")
    error = refusal(broken)
    assert error.kind is FaultKind.checkpoint_corrupt
    assert "config.json" in str(error)


ABSURD = (
    {"num_hidden_layers": 10**400},
    {"num_hidden_layers": -1},
    {"num_hidden_layers": "many"},
    {"hidden_size": 1 << 63},
    {"vocab_size": -(10**30)},
    {"num_hidden_layers": 1 << 30, "num_key_value_heads": 1 << 30, "head_dim": 1 << 30},
    {"model_type": ["llama"]},
    {"model_type": "\ud800"},
    {"num_experts": {"a": 1}, "num_experts_per_tok": 1},
    {"num_experts": 4, "num_experts_per_tok": "all"},
    {"layer_types": 5},
    {"quantization": {"bits": 1 << 70}},
    {"full_attention_interval": "x"},
)


@pytest.mark.parametrize("change", ABSURD, ids=str)
def test_a_configuration_without_sense_is_one_line(broken: Path, change: dict[str, Any]) -> None:
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(EngineError, match=r"are not valid \(") as caught:
        inspect(broken)
    assert caught.value.kind is FaultKind.checkpoint_corrupt
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a": ' * 100_000, "9" * 5000, '{"weight_map": [1]}', '{"weight_map": 1}']
)
def test_hostile_json_is_one_line(broken: Path, text: str) -> None:
    (broken / "model.safetensors.index.json").write_text(text)
    with pytest.raises(EngineError, match=r"index\.json: (not JSON|not an object|weight_map)") as caught:
        inspect(broken)
    assert caught.value.kind is FaultKind.checkpoint_corrupt


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_pipe_in_a_folder_is_not_waited_for(broken: Path, name: str) -> None:
    (broken / name).unlink()
    os.mkfifo(broken / name)
    with pytest.raises(EngineError, match=rf"{name}: not a regular file"):
        inspect(broken)


def test_a_file_of_any_size_is_not_read(broken: Path) -> None:
    with (broken / "config.json").open("r+b") as config:
        config.truncate(1 << 40)
    with pytest.raises(EngineError, match="more than such a file ever has"):
        inspect(broken)


def test_a_model_s_own_code_is_refused(broken: Path) -> None:
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"model_file": "evil.py"}))
    with pytest.raises(EngineError, match="never run") as caught:
        inspect(broken)
    assert caught.value.kind is FaultKind.unsupported_setting


def test_a_truncated_weight_file(broken: Path) -> None:
    file = broken / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    error = refusal(broken)
    assert error.kind is FaultKind.checkpoint_corrupt
    assert "model.safetensors" in str(error)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x01",
        struct.pack("<Q", 10**12) + b"{}",  # a header longer than the file
        struct.pack("<Q", 5) + b'{"a":',  # no JSON
        struct.pack("<Q", 2) + b"{}" + bytes(100),  # bytes that no tensor owns
    ],
)
def test_a_corrupt_header(broken: Path, content: bytes) -> None:
    (broken / "model.safetensors").write_bytes(content)
    assert refusal(broken).kind is FaultKind.checkpoint_corrupt


def test_offsets_beyond_the_file(broken: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (broken / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    assert refusal(broken).kind is FaultKind.checkpoint_corrupt


# Where a checkpoint is.


def test_a_local_path_becomes_absolute(plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(plain["path"]).parent)
    resolved = resolve({"name": "p", "source": "local", "path": "plain"})
    assert resolved["path"] == plain["path"]
    assert find_folder(resolved) == Path(plain["path"])


def test_an_imported_checkpoint_is_found_by_its_name(
    plain: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLACE_CHECKPOINTS", str(tmp_path))
    wanted = {"name": "smollm2-8bit", "source": "imported"}
    with pytest.raises(EngineError, match="run: interlace checkpoint import smollm2") as caught:
        resolve(wanted)
    assert caught.value.kind is FaultKind.checkpoint_missing
    tiny.copy(plain, tmp_path / "smollm2-8bit")
    assert resolve(wanted)["path"] == str(tmp_path / "smollm2-8bit")


@pytest.mark.parametrize(
    ("checkpoint", "kind", "words"),
    [
        ({"source": "local"}, FaultKind.unsupported_setting, "checkpoint.path"),
        ({"source": "local", "path": "/no/where"}, FaultKind.checkpoint_missing, "/no/where"),
        ({"source": "gguf", "path": "/no/where.gguf"}, FaultKind.checkpoint_missing, "no file /no/where.gguf"),
        ({"source": "hub"}, FaultKind.unsupported_setting, "checkpoint.hub_id"),
        ({"source": "hub", "hub_id": "model"}, FaultKind.checkpoint_missing, "owner/model"),
        ({"source": "dummy", "shape": "huge"}, FaultKind.unsupported_setting, "smollm2-135m"),
        ({"source": "cloud"}, FaultKind.unsupported_setting, "hub, local, gguf, imported, dummy"),
    ],
)
def test_what_cannot_be_resolved(checkpoint: dict[str, Any], kind: FaultKind, words: str) -> None:
    with pytest.raises(EngineError, match=words) as caught:
        resolve({"name": "mine"} | checkpoint)
    assert caught.value.kind is kind
    assert "mine" in str(caught.value)


def test_a_hub_checkpoint_needs_no_network_to_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    checkpoint = {"name": "h", "source": "hub", "hub_id": "owner/model", "revision": "abc"}
    assert resolve(checkpoint) == checkpoint
    assert find_folder(checkpoint) is None
    assert describe(checkpoint) is None


def test_an_interrupted_download_is_still_to_be_made(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (broken / "model.safetensors").unlink()
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: str(broken / "config.json"))
    assert describe({"name": "h", "source": "hub", "hub_id": "owner/model"}) is None
    (broken / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(EngineError):
        describe({"name": "h", "source": "hub", "hub_id": "owner/model"})


def test_a_cast_changes_what_is_held(tmp_path: Path) -> None:
    dummies.save(dummies.SHAPES["tiny"], tmp_path / "m", dtype="bfloat16")
    checkpoint = tiny.checkpoint_at(tmp_path / "m")
    plain, cast = describe(checkpoint), describe(checkpoint | {"dtype": "float32"})
    assert plain is not None
    assert cast is not None
    assert (plain.bits, cast.bits, cast.dtype) == (16, 32, "float32")
    assert cast.weights_bytes == 2 * plain.weights_bytes
    assert cast.kv_bytes_per_token == 2 * (plain.kv_bytes_per_token or 0)


def test_the_folders_default_to_the_user_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLACE_CHECKPOINTS", raising=False)
    monkeypatch.delenv("INTERLACE_CACHE", raising=False)
    assert folders.checkpoints_dir().name == "checkpoints"
    assert "interlace" in str(folders.checkpoints_dir())
    assert "interlace" in str(folders.cache_dir())


# Dummies.


@pytest.mark.parametrize("bits", [None, 8])
def test_a_dummy_is_described_as_its_folder_would_be(tmp_path: Path, bits: int | None) -> None:
    folder = dummies.save(dummies.SHAPES["tiny"], tmp_path / "dummy", bits=bits)
    described = describe({"name": "d", "source": "dummy", "shape": "tiny", "bits": bits})
    found = inspect(folder)
    assert described is not None
    same = {"path": None, "digest": ""}
    assert {**_fields(described), **same} == {**_fields(found), **same}


def test_dummies_of_other_bits_are_other_checkpoints() -> None:
    kinds = [{"shape": shape, "bits": bits} for shape in dummies.SHAPES for bits in (None, 4, 8)]
    described = [describe({"name": "d", "source": "dummy"} | kind) for kind in kinds]
    digests = {info.digest for info in described if info is not None}
    assert len(digests) == 3 * len(dummies.SHAPES)


def test_llama_8b_has_the_size_of_its_namesake() -> None:
    shape = dummies.SHAPES["llama-8b"]
    assert shape.matrix_parameters + shape.norm_parameters == 8_030_261_248


def test_the_dummy_tokenizer_gives_back_any_text() -> None:
    tokenizer = dummies.load_tokenizer(dummies.SHAPES["tiny"])
    text = "def f(x):\n    return x  # Größe 東京 🙂 <|im_end|>"
    token_ids = tokenizer.encode(text)
    assert tokenizer.decode(token_ids) == text
    assert max(token_ids) < len(tokenizer) == 320


def test_a_group_that_does_not_divide_the_shape_is_refused() -> None:
    with pytest.raises(EngineError, match="group_size 128 does not divide 64"):
        dummies.build_model(dummies.SHAPES["tiny"], bits=4, group_size=128, dtype="float32", seed=0)


def _fields(info: CheckpointInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in CheckpointInfo.__slots__}
