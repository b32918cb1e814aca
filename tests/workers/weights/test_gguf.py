"""GGUF files become mlx-lm folders that compute the same, or are refused with the reason."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm import load
from tokenizers import Tokenizer

from tests.workers import tiny
from workers.errors import EngineError, FaultKind
from workers.supervision import isolation
from workers.weights import folders, gguf
from workers.weights.checkpoints import describe, find_folder, inspect, resolve

FLOAT32 = gguf.Recipe(bits=None)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INTERLACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without a process each: `test_apart` is about those."""

    def run_here(task: str, arguments: Mapping[str, Any], *, source: Path, limits: object) -> None:
        if not (found := isolation.perform(task, arguments))["ok"]:
            raise EngineError(FaultKind(found["kind"]), found["message"])

    monkeypatch.setattr(isolation, "run_apart", run_here)


@pytest.mark.parametrize("tied", [True, False])
def test_the_converted_model_computes_what_the_original_did(tmp_path: Path, tied: bool) -> None:
    original = tiny.save_gguf(tmp_path / "m.gguf", tied=tied)
    gguf.convert(tmp_path / "m.gguf", tmp_path / "out", FLOAT32)
    converted, _ = load(str(tmp_path / "out"))
    tokens = mx.array([[5, 80, 33, 7, 200, 120]])
    assert mx.allclose(converted(tokens), original(tokens), rtol=1e-5, atol=1e-5)


def test_unpermute_undoes_the_interleaved_rows() -> None:
    # two heads of four rows: the first halves are rows 0 1 and 4 5, stored beside their partners 2 3 and 6 7
    stored = mx.array([[0], [2], [1], [3], [4], [6], [5], [7]])
    assert gguf.unpermute(stored, 2).flatten().tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_the_tokenizer_is_rebuilt_from_the_metadata(tmp_path: Path) -> None:
    tiny.save_gguf(tmp_path / "m.gguf")
    gguf.convert(tmp_path / "m.gguf", tmp_path / "out", FLOAT32)
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert tokenizer.encode("<|start|>he 12<|end|>").tokens == ["<|start|>", "he", "Ġ", "1", "2", "<|end|>"]
    _, wrapper = load(str(tmp_path / "out"))
    assert wrapper.eos_token_ids == {1}
    rendered = wrapper.apply_chat_template([{"role": "user", "content": "he"}], tokenize=False)
    assert rendered == "<|start|>he<|end|>"


def test_a_start_token_that_the_metadata_asks_for_is_added_once(tmp_path: Path) -> None:
    tiny.save_gguf(tmp_path / "m.gguf", change={"tokenizer.ggml.add_bos_token": mx.array(True)})
    gguf.convert(tmp_path / "m.gguf", tmp_path / "out", FLOAT32)
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert tokenizer.encode("he").tokens == ["<|start|>", "he"]


def test_the_recipe_is_what_comes_out(tmp_path: Path) -> None:
    tiny.save_gguf(tmp_path / "m.gguf")
    gguf.convert(tmp_path / "m.gguf", tmp_path / "out", gguf.Recipe(bits=4, group_size=32, dtype="bfloat16"))
    info = inspect(tmp_path / "out")
    assert (info.bits, info.group_size, info.dtype) == (4, 32, "bfloat16")


def test_packed_weights_are_unpacked(tmp_path: Path) -> None:
    """mx.load gives Q4_0, Q4_1 and Q8_0 as words with a scale and a bias for each 32 weights."""
    original = tiny.save_gguf(tmp_path / "m.gguf")
    arrays: Any = mx.load(str(tmp_path / "m.gguf"))
    expected = original.model.layers[0].mlp.up_proj.weight
    name = "blk.0.ffn_up"
    for bits, tolerance in ((4, 0.02), (8, 0.002)):
        packed, scales, biases = mx.quantize(expected, group_size=32, bits=bits)
        packed_arrays = arrays | {f"{name}.weight": packed, f"{name}.scales": scales, f"{name}.biases": biases}
        config = tiny.SHAPE.config(dtype="float32")
        weights = gguf.rename_weights(tmp_path / "m.gguf", packed_arrays, config, dtype=mx.float32)
        found = weights["model.layers.0.mlp.up_proj.weight"]
        assert found.shape == expected.shape
        assert mx.abs(found - expected).max().item() < tolerance


def checkpoint(path: Path, **settings: Any) -> dict[str, Any]:
    return resolve({"name": "g", "source": "gguf", "path": str(path)} | settings)


def test_a_conversion_is_kept_for_the_same_file_and_recipe(tmp_path: Path, cache: Path) -> None:
    tiny.save_gguf(tmp_path / "m.gguf")
    wanted = checkpoint(tmp_path / "m.gguf", bits=8)
    assert find_folder(wanted) is None
    assert describe(wanted) is None
    folder = gguf.obtain(wanted)
    assert folder.is_relative_to(cache)
    made_ns = (folder / "config.json").stat().st_mtime_ns
    assert gguf.obtain(wanted) == folder == find_folder(wanted)
    assert (folder / "config.json").stat().st_mtime_ns == made_ns
    assert gguf.obtain(wanted | {"bits": 4}) != folder
    tiny.save_gguf(tmp_path / "m.gguf", change={"general.name": "another"})
    assert gguf.converted_folder(wanted) != folder


def test_an_interrupted_conversion_leaves_nothing_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.save_gguf(tmp_path / "m.gguf")

    def interrupt(file: Path) -> str:
        assert file.with_name("model.safetensors").is_file()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folders, "sha256_of_file", interrupt)
        with pytest.raises(KeyboardInterrupt):
            gguf.convert(tmp_path / "m.gguf", tmp_path / "out", FLOAT32)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.gguf"]
    (tmp_path / ".out.unfinished").mkdir()  # what a killed process leaves
    gguf.convert(tmp_path / "m.gguf", tmp_path / "out", FLOAT32)
    assert inspect(tmp_path / "out").layers == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"general.architecture": "qwen2"}, "general.architecture is 'qwen2'"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.model is 'llama'"),
        ({"tokenizer.ggml.pre": "llama-bpe"}, "tokenizer.ggml.pre is 'llama-bpe'"),
        ({"llama.rope.scaling.type": "yarn"}, "llama.rope.scaling.type is 'yarn'"),
    ],
)
def test_what_is_not_supported_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    tiny.save_gguf(tmp_path / "m.gguf", change=change)
    with pytest.raises(EngineError, match=words) as caught:
        gguf.convert(tmp_path / "m.gguf", tmp_path / "out", FLOAT32)
    assert caught.value.kind is FaultKind.unsupported_setting
    assert "m.gguf" in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("key", ["llama.block_count", "tokenizer.ggml.merges"])
def test_missing_metadata_is_named(tmp_path: Path, key: str) -> None:
    tiny.save_gguf(tmp_path / "m.gguf", change={key: None})
    with pytest.raises(EngineError, match=f"no {key}") as caught:
        gguf.convert(tmp_path / "m.gguf", tmp_path / "out", FLOAT32)
    assert caught.value.kind is FaultKind.checkpoint_corrupt


def test_a_missing_or_unknown_tensor_is_named(tmp_path: Path) -> None:
    tiny.save_gguf(tmp_path / "m.gguf")
    loaded: Any = mx.load(str(tmp_path / "m.gguf"), return_metadata=True)
    arrays, metadata = loaded
    extra = {"rope_freqs.weight": mx.ones((8,))}
    mx.save_gguf(str(tmp_path / "extra.gguf"), arrays | extra, metadata)
    with pytest.raises(EngineError, match=r"rope_freqs\.weight") as caught:
        gguf.convert(tmp_path / "extra.gguf", tmp_path / "out", FLOAT32)
    assert caught.value.kind is FaultKind.unsupported_setting
    del arrays["blk.1.ffn_up.weight"]
    mx.save_gguf(str(tmp_path / "less.gguf"), arrays, metadata)
    with pytest.raises(EngineError, match=r"layers\.1\.mlp\.up_proj") as caught:
        gguf.convert(tmp_path / "less.gguf", tmp_path / "out", FLOAT32)
    assert caught.value.kind is FaultKind.checkpoint_corrupt


@pytest.mark.parametrize("name", ["token_embd.weight", "output_norm.weight"])
def test_a_missing_outer_tensor_is_named(tmp_path: Path, name: str) -> None:
    tiny.save_gguf(tmp_path / "m.gguf")
    loaded: Any = mx.load(str(tmp_path / "m.gguf"), return_metadata=True)
    arrays, metadata = loaded
    del arrays[name]
    mx.save_gguf(str(tmp_path / "less.gguf"), arrays, metadata)
    with pytest.raises(EngineError, match=f"no {name}") as caught:
        gguf.convert(tmp_path / "less.gguf", tmp_path / "out", FLOAT32)
    assert caught.value.kind is FaultKind.checkpoint_corrupt


@pytest.mark.parametrize(("device", "dtype"), [(mx.DeviceType.cpu, "float32"), (mx.DeviceType.gpu, "bfloat16")])
def test_the_dtype_is_the_one_in_which_the_device_is_fast(
    monkeypatch: pytest.MonkeyPatch, device: Any, dtype: str
) -> None:
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(device))
    assert gguf.default_dtype() == dtype


@pytest.mark.parametrize(("settings", "group_size"), [({}, 64), ({"group_size": 32}, 32)])
def test_the_recipe_of_a_checkpoint_is_its_settings_or_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], group_size: int
) -> None:
    recipes: list[gguf.Recipe] = []
    monkeypatch.setattr(gguf, "convert", lambda source, folder, recipe: recipes.append(recipe))
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    gguf.obtain({"path": str(tmp_path / "m.gguf"), "bits": 4, **settings})
    assert recipes == [gguf.Recipe(bits=4, group_size=group_size, dtype=gguf.default_dtype())]


def test_bits_that_mlx_has_not_are_refused(tmp_path: Path) -> None:
    tiny.save_gguf(tmp_path / "m.gguf")
    with pytest.raises(EngineError, match="bits=7") as caught:
        gguf.convert(tmp_path / "m.gguf", tmp_path / "out", gguf.Recipe(bits=7))
    assert caught.value.kind is FaultKind.unsupported_setting


@pytest.mark.parametrize("length", [0, 6, 1000, -50000])
def test_a_file_that_is_no_gguf_or_cut_short(tmp_path: Path, length: int) -> None:
    tiny.save_gguf(tmp_path / "m.gguf")
    content = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(content[:length])
    with pytest.raises(EngineError, match="fetch it again") as caught:
        gguf.convert(tmp_path / "cut.gguf", tmp_path / "out", FLOAT32)
    assert caught.value.kind is FaultKind.checkpoint_corrupt
    assert "\n" not in str(caught.value)


def patched(content: bytes, name: bytes, offset: int, new: bytes) -> bytes:
    """The file with other bytes at an offset behind a name."""
    at = content.index(name) + len(name) + offset
    return content[:at] + new + content[at + len(new) :]


LENGTH = (1 << 40).to_bytes(8, "little")
MUTATIONS = {
    "tensor count": lambda c: c[:8] + LENGTH + c[16:],
    "version": lambda c: c[:4] + b"\x63" + c[5:],
    "key length": lambda c: c[:24] + LENGTH + c[32:],
    "kind of a value": lambda c: patched(c, b"general.architecture", 0, b"\x4d"),
    "text length": lambda c: patched(c, b"general.architecture", 4, LENGTH),
    "list of lists": lambda c: patched(c, b"tokenizer.ggml.tokens", 4, b"\x09"),
    "list length": lambda c: patched(c, b"tokenizer.ggml.token_type", 8, LENGTH),
    "dimensions": lambda c: patched(c, b"output_norm.weight", 0, b"\xb8"),
    "no rows": lambda c: patched(c, b"output_norm.weight", 4, bytes(8)),
    "shape that overflows": lambda c: patched(c, b"output_norm.weight", 4, b"\xff" * 8),
    "offset": lambda c: patched(c, b"output_norm.weight", 16, LENGTH),
    "offset between": lambda c: patched(c, b"output_norm.weight", 16, b"\x01"),
    "name that is no text": lambda c: c.replace(b"output_norm.weight", b"output_norm.\xff\xfe\xfd\xfc\xfb\xfa"),
    "a tensor twice": lambda c: c.replace(b"blk.0.ffn_up.weight", b"blk.1.ffn_up.weight"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_header_that_native_code_would_trust_is_refused(tmp_path: Path, mutation: str) -> None:
    tiny.save_gguf(tmp_path / "m.gguf")
    (tmp_path / "bad.gguf").write_bytes(MUTATIONS[mutation]((tmp_path / "m.gguf").read_bytes()))
    with pytest.raises(EngineError, match=r"bad\.gguf: is not a whole GGUF file") as caught:
        gguf.convert(tmp_path / "bad.gguf", tmp_path / "out", FLOAT32)
    assert caught.value.kind is FaultKind.checkpoint_corrupt


def test_an_unknown_kind_of_tensor_is_named(tmp_path: Path) -> None:
    tiny.save_gguf(tmp_path / "m.gguf")
    content = patched((tmp_path / "m.gguf").read_bytes(), b"output_norm.weight", 12, b"\x63")
    (tmp_path / "odd.gguf").write_bytes(content)
    with pytest.raises(EngineError, match=r"'output_norm\.weight' is of kind 99") as caught:
        gguf.convert(tmp_path / "odd.gguf", tmp_path / "out", FLOAT32)
    assert caught.value.kind is FaultKind.unsupported_setting


@pytest.mark.parametrize(
    "change",
    [
        {"llama.block_count": mx.array(2_000_000_000, mx.uint32)},
        {"llama.attention.head_count": mx.array(0, mx.uint32)},
        {"llama.embedding_length": "many"},
        {"llama.attention.layer_norm_rms_epsilon": mx.array(float("nan"))},
        {"tokenizer.ggml.eos_token_id": mx.array(1 << 31, mx.uint32)},
        {"tokenizer.ggml.token_type": mx.array([1, 2], mx.int32)},
        {"tokenizer.ggml.tokens": ["a", "a"]},
        {"tokenizer.ggml.merges": ["one", "two three four"]},
    ],
)
def test_metadata_without_sense_is_one_line(tmp_path: Path, change: dict[str, Any]) -> None:
    tiny.save_gguf(tmp_path / "m.gguf", change=change)
    with pytest.raises(EngineError, match=r"m\.gguf: ") as caught:
        gguf.convert(tmp_path / "m.gguf", tmp_path / "out", FLOAT32)
    assert caught.value.kind is FaultKind.checkpoint_corrupt
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_end_of_turn_ends_a_generation_too(tmp_path: Path) -> None:
    tiny.save_gguf(tmp_path / "m.gguf", change={"tokenizer.ggml.eot_token_id": mx.array(7, mx.uint32)})
    gguf.convert(tmp_path / "m.gguf", tmp_path / "out", FLOAT32)
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text()) == {"eos_token_id": [1, 7]}


def test_a_conversion_replaces_an_earlier_one_and_nothing_else(tmp_path: Path) -> None:
    tiny.save_gguf(tmp_path / "m.gguf")
    gguf.convert(tmp_path / "m.gguf", tmp_path / "out", FLOAT32)
    gguf.convert(tmp_path / "m.gguf", tmp_path / "out", gguf.Recipe(bits=4))
    assert inspect(tmp_path / "out").bits == 4
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(EngineError, match="was not made by an import"):
        gguf.convert(tmp_path / "m.gguf", tmp_path / "mine", FLOAT32)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


def test_a_users_token_is_one_token_and_stays_in_the_text(tmp_path: Path) -> None:
    """Only control tokens are special: a decoder that skips those must keep what the user defined."""
    kinds = [3, 3, *[1] * (tiny.SHAPE.vocab_size - 3), 4]
    tiny.save_gguf(tmp_path / "m.gguf", change={"tokenizer.ggml.token_type": mx.array(kinds, mx.int32)})
    gguf.convert(tmp_path / "m.gguf", tmp_path / "out", FLOAT32)
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    name = tokenizer.id_to_token(len(kinds) - 1)
    ids = tokenizer.encode(f"<|start|>he{name}<|end|>").ids
    assert ids[-2] == len(kinds) - 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == f"he{name}"
