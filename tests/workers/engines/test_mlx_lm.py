"""Plain decoding with mlx-lm on tiny random models: the contract, the prompt, the cache, the end of text, refusals."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm import load, stream_generate
from mlx_lm.generate import generation_stream

from tests.workers import tiny
from tests.workers.engines.refusing import refusal
from tests.workers.weights.hubs import TINY, hub_here
from workers.engines.base import TurnRequest
from workers.engines.contract import Answer, EngineCase, EngineContract, answer, converse, engine_case
from workers.engines.mlx_cache import ConversationCache
from workers.engines.mlx_lm import MlxLm
from workers.errors import EngineError, FaultKind
from workers.weights import dummies
from workers.weights.hub import survey
from workers.weights.hub_download import fetch

FIRST, SECOND = "Name three fruits.", "And three more?"


def plain(checkpoint: Mapping[str, Any], settings: Mapping[str, Any] | None = None, **sampling: Any) -> MlxLm:
    return MlxLm(settings=settings or {}, checkpoint=checkpoint, draft=None, sampling={"name": "greedy"} | sampling)


def loaded(checkpoint: Mapping[str, Any], settings: Mapping[str, Any] | None = None, **sampling: Any) -> MlxLm:
    engine = plain(checkpoint, settings, **sampling)
    engine.load()
    return engine


# The contract, with and without quantisation and the prefix cache, sampled, and on a dummy.

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "greedy": ({}, {}),
    "sampled": ({}, {"temperature": 0.7, "top_p": 0.95, "top_k": 20}),
    "no prefix cache": ({"prefix_cache": False}, {}),
    "small prefill steps": ({"prefill_step_size": 7}, {}),
    "rotating cache": ({"max_kv_size": 16}, {}),
    "no template": ({}, {"chat_template": False}),
}


@pytest.fixture(scope="module", params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest, target: dict[str, Any]) -> Iterator[EngineCase]:
    own, sampling = request.param

    def make(settings: Mapping[str, Any]) -> MlxLm:
        return plain(target, own | settings, **sampling)

    with pytest.MonkeyPatch.context() as patch:
        if "max_kv_size" in own:  # heeded by models that leave the cache to mlx-lm; Llama makes its own
            patch.delattr("mlx_lm.models.llama.Model.make_cache")
        with engine_case(make, requested=False) as ready:
            yield ready


class TestContract(EngineContract):
    """Each case keeps the contract."""


# What is generated, and how it is counted.


def bare(checkpoint: Mapping[str, Any], prompt: str, max_tokens: int) -> list[Any]:
    """mlx-lm's own loop over the same prompt."""
    model, tokenizer = load(checkpoint["path"])
    messages = [{"role": "user", "content": prompt}]
    token_ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    return list(stream_generate(model, tokenizer, token_ids, max_tokens))


def test_tokens_text_and_counts_are_mlx_lm_s(target: dict[str, Any]) -> None:
    (only,) = converse(loaded(target), FIRST, max_tokens=20)
    expected = bare(target, FIRST, 20)
    assert only.result.token_ids == [response.token for response in expected]
    assert only.result.text == "".join(response.text for response in expected)
    assert only.result.prompt_tokens == expected[-1].prompt_tokens
    assert only.result.cached_tokens == 0
    assert only.result.finish_reason == expected[-1].finish_reason == "length"
    assert only.result.engine_decode_tps is not None
    assert only.result.peak_memory_bytes is not None
    assert only.result.steps is None
    assert only.evidence.mechanism == "plain"


def test_one_token_has_no_decode_rate(target: dict[str, Any]) -> None:
    (only,) = converse(loaded(target), FIRST, max_tokens=1)
    assert only.result.engine_decode_tps is None
    assert only.result.engine_prefill_tps is not None


def test_the_end_token_is_counted_and_has_no_text(models: Path, target: dict[str, Any]) -> None:
    (whole,) = converse(loaded(target), FIRST, max_tokens=20)
    end = 6  # the first place from here on whose token is new
    while whole.result.token_ids[end] in whole.result.token_ids[:end]:
        end += 1
    stopping = tiny.copy(target, models / "stopping")
    tiny.set_eos(stopping, whole.result.token_ids[end])
    (stopped,) = converse(loaded(stopping), FIRST, max_tokens=20)
    assert stopped.result.finish_reason == "stop"
    assert stopped.result.token_ids == whole.result.token_ids[: end + 1]
    assert len(stopped.stamps_us) == end + 1
    assert whole.result.text.startswith(stopped.result.text)
    (shorter,) = converse(loaded(target), FIRST, max_tokens=end)
    assert stopped.result.text == shorter.result.text
    (ignored,) = converse(loaded(stopping, ignore_eos=True), FIRST, max_tokens=20)
    assert ignored.result.finish_reason == "length"
    assert ignored.result.token_ids == whole.result.token_ids


def test_the_template_is_applied_once(models: Path, target: dict[str, Any]) -> None:
    """With a tokenizer that puts a start token before whatever it encodes, a second pass over a rendered template would
    show."""
    checkpoint = tiny.copy(target, models / "with-start")
    file = Path(checkpoint["path"]) / "tokenizer.json"
    content = json.loads(file.read_text())
    start = {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|endoftext|>": start},
    }
    file.write_text(json.dumps(content))
    _, tokenizer = load(checkpoint["path"])
    rendered = f"<|im_start|>user\n{FIRST}<|im_end|>\n<|im_start|>assistant\n"
    once = tokenizer.encode(rendered, add_special_tokens=False)
    assert len(tokenizer.encode(rendered)) == len(once) + 1
    (only,) = converse(loaded(checkpoint), FIRST, max_tokens=1)
    assert only.result.prompt_tokens == len(once)
    (raw,) = converse(loaded(checkpoint, chat_template=False), FIRST, max_tokens=1)
    assert raw.result.prompt_tokens == 1 + len(FIRST)  # the start token that this tokenizer wants, and the bytes


def test_template_options_reach_the_template(models: Path, target: dict[str, Any]) -> None:
    checkpoint = tiny.copy(target, models / "with-option")
    file = Path(checkpoint["path"]) / "tokenizer_config.json"
    template = "{{ messages[-1]['content'] }}{% if loud %}!!!{% endif %}"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))
    (quiet,) = converse(loaded(checkpoint), FIRST, max_tokens=1)
    (loud,) = converse(loaded(checkpoint, template_options={"loud": True}), FIRST, max_tokens=1)
    assert loud.result.prompt_tokens == quiet.result.prompt_tokens + 3


def test_a_sampled_answer_depends_on_the_seed_alone(target: dict[str, Any]) -> None:
    engine = loaded(target, temperature=1.5)
    answers = [converse(engine, FIRST, seed=seed)[0].result.token_ids for seed in (1, 2, 1)]
    assert answers[0] == answers[2] != answers[1]


def test_settle_waits_for_the_step_that_mlx_lm_launched_too_many(
    target: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = loaded(target)
    engine.start_conversation()
    engine.prepare(TurnRequest(messages=[{"role": "user", "content": FIRST}], turn=0, max_tokens=4, seed=1))
    for _ in engine.stream():
        pass
    waited_for = []
    monkeypatch.setattr(mx, "synchronize", lambda stream=None: waited_for.append(stream))
    engine.settle()
    assert any(stream is generation_stream for stream in waited_for)
    assert any(stream is None for stream in waited_for)  # the default one, where prompts are made


def test_peak_memory_is_the_turn_s_own(target: dict[str, Any]) -> None:
    engine = loaded(target)
    (long,) = converse(engine, FIRST * 40, max_tokens=4)
    (short,) = converse(engine, FIRST, max_tokens=4)
    assert long.result.peak_memory_bytes is not None
    assert short.result.peak_memory_bytes is not None
    assert short.result.peak_memory_bytes < long.result.peak_memory_bytes


# The prefix cache.


def turn_of(engine: MlxLm, *contents: str, max_tokens: int = 8) -> Answer:
    """A turn after these contents, user and assistant in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]
    return answer(engine, TurnRequest(messages=messages, turn=len(contents) // 2, max_tokens=max_tokens, seed=1))


def test_a_second_turn_reuses_the_first_and_answers_the_same(target: dict[str, Any]) -> None:
    cached = converse(loaded(target), FIRST, SECOND, "Go on.", max_tokens=16)
    processed = converse(loaded(target, {"prefix_cache": False}), FIRST, SECOND, "Go on.", max_tokens=16)
    for with_cache, without in zip(cached, processed, strict=True):
        assert with_cache.result.token_ids == without.result.token_ids
        assert with_cache.result.prompt_sha256 == without.result.prompt_sha256
        assert with_cache.result.prompt_tokens == without.result.prompt_tokens
        assert without.result.cached_tokens == 0
    first, second, third = (each.result for each in cached)
    assert first.cached_tokens == 0
    # The reply's own tokens are reused as far as its text encodes to them again.
    assert first.prompt_tokens <= (second.cached_tokens or 0) < second.prompt_tokens
    assert second.prompt_tokens <= (third.cached_tokens or 0) < third.prompt_tokens


def test_the_whole_reply_is_reused_where_its_text_encodes_to_its_tokens(
    target: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = loaded(target)
    engine.start_conversation()
    first = turn_of(engine, FIRST)
    prompt_ids = list(range(10, 10 + first.result.prompt_tokens))
    monkeypatch.setattr(engine, "_encode", lambda messages: prompt_ids)
    engine.start_conversation()
    first = turn_of(engine, FIRST)
    both = [*prompt_ids, *first.result.token_ids]
    monkeypatch.setattr(engine, "_encode", lambda messages: [*both, 7, 8])
    assert turn_of(engine, FIRST, "x", SECOND).result.cached_tokens == len(both)


def test_a_prompt_that_is_all_cached_still_processes_its_last_token(target: dict[str, Any]) -> None:
    engine = loaded(target)
    engine.start_conversation()
    first = turn_of(engine, FIRST)
    again = turn_of(engine, FIRST)
    assert again.result.cached_tokens == first.result.prompt_tokens - 1
    assert again.result.token_ids == first.result.token_ids


def test_another_text_keeps_the_common_beginning_only(target: dict[str, Any]) -> None:
    engine = loaded(target)
    engine.start_conversation()
    turn_of(engine, "Name three fruits.")
    other = turn_of(engine, "Name three birds.")
    assert other.result.cached_tokens == len("_user\nName three ")  # a byte a token, the marker one
    fresh = loaded(target)
    fresh.start_conversation()
    assert other.result.token_ids == turn_of(fresh, "Name three birds.").result.token_ids


class Rotated:
    """A cache that cannot be trimmed any more, as a rotating one that is full, or a recurrent layer's."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def is_trimmable(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("prompt", "kept"),
    [
        ([1, 2, 3, 4, 5], 4),  # all that is cached begins the prompt
        ([1, 2, 3, 4], 0),  # its last token must be processed again: one would have to go
        ([1, 2, 9, 9, 9], 0),
    ],
)
def test_an_untrimmable_cache_is_kept_only_whole(prompt: list[int], kept: int) -> None:
    made = []

    def make() -> list[Any]:
        made.append(Rotated(4))
        return [made[-1]]

    cache = ConversationCache([make])
    cache.extend([1, 2, 3, 4])
    assert cache.reuse(prompt) == kept
    assert len(made) == (1 if kept else 2)


def test_a_recurrent_model_keeps_its_state_between_turns(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = loaded(tiny.build_recurrent(models / "recurrent"))
    prompt_ids = [5, 80, 33, 7]
    monkeypatch.setattr(engine, "_encode", lambda messages: prompt_ids)
    engine.start_conversation()
    first = turn_of(engine, FIRST)
    longer = [*prompt_ids, *first.result.token_ids, 9, 10]
    monkeypatch.setattr(engine, "_encode", lambda messages: longer)
    second = turn_of(engine, FIRST, "x", SECOND)
    assert second.result.cached_tokens == len(longer) - 2
    engine.start_conversation()
    fresh = turn_of(engine, FIRST, "x", SECOND)
    assert fresh.result.cached_tokens == 0
    assert fresh.result.token_ids == second.result.token_ids


# Quantised keys and values: requested is not engaged.


@pytest.mark.parametrize(("start", "engaged"), [(0, True), (5000, False)])
def test_quantised_keys_and_values_give_evidence_of_their_own(
    target: dict[str, Any], start: int, *, engaged: bool
) -> None:
    engine = loaded(target, {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": start})
    engine.start_conversation()
    turn_of(engine, FIRST)
    plain_sign, kv_sign = turn_of(engine, FIRST, "x", SECOND).result.evidence
    assert (plain_sign.mechanism, plain_sign.requested) == ("plain", False)
    assert (kv_sign.mechanism, kv_sign.requested, kv_sign.engaged) == ("kv_quantization", True, engaged)


# Dummies, casts and notes.


def test_a_dummy_runs_and_says_what_it_is() -> None:
    engine = plain({"name": "d", "source": "dummy", "shape": "tiny", "bits": 8})
    info = engine.load()
    assert any("random weights" in note for note in info.notes)
    (first,) = converse(engine, FIRST)
    (again,) = converse(loaded({"name": "d", "source": "dummy", "shape": "tiny", "bits": 8}), FIRST)
    assert first.result.token_ids == again.result.token_ids


def test_a_slow_dtype_is_noted_and_can_be_cast(models: Path) -> None:
    dummies.save(tiny.SHAPE, models / "bfloat16", dtype="bfloat16")
    checkpoint = tiny.checkpoint_at(models / "bfloat16")
    on_cpu = mx.default_device().type == mx.DeviceType.cpu
    notes = plain(checkpoint).load().notes
    assert any("bfloat16 on a CPU" in note for note in notes) == on_cpu
    assert list(plain(checkpoint | {"dtype": "float32"}).load().notes) == ["activations cast from bfloat16 to float32"]


# What is refused, before or in load.


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"block_size": 4}, "block_size"),
        ({"prefill_step_size": 0}, "prefill_step_size"),
        ({"max_kv_size": 4}, "max_kv_size"),
        ({"max_kv_size": 64}, "makes its own cache"),
        ({"max_kv_size": 64, "kv_bits": 8}, "exclude"),
        ({"kv_bits": 7}, "kv_bits is 7"),
        ({"kv_bits": 8, "kv_group_size": 64}, "kv_group_size=64"),  # the tiny model's heads have 32
    ],
)
def test_settings_that_cannot_be(target: dict[str, Any], settings: dict[str, Any], words: str) -> None:
    error = refusal(plain(target, settings))
    assert error.kind is FaultKind.unsupported_setting
    assert words in str(error)


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"min_p": 2.0}, "min_p"),
        ({"top_k": 320}, "top_k"),
        ({"temprature": 1.0}, "temprature"),
        ({"template_options": {"tokenize": False}}, "tokenize"),
    ],
)
def test_sampling_that_cannot_be(target: dict[str, Any], sampling: dict[str, Any], words: str) -> None:
    error = refusal(plain(target, **sampling))
    assert error.kind is FaultKind.unsupported_setting
    assert words in str(error)


def test_a_tokenizer_without_a_chat_template(models: Path, target: dict[str, Any]) -> None:
    checkpoint = tiny.copy(target, models / "no-template")
    file = Path(checkpoint["path"]) / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    del settings["chat_template"]
    file.write_text(json.dumps(settings))
    error = refusal(plain(checkpoint))
    assert error.kind is FaultKind.unsupported_setting
    assert "sampling.chat_template=false" in str(error)


def test_a_missing_or_broken_checkpoint_is_found_before_mlx_lm_sees_it(
    models: Path, target: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: Any) -> None:
        raise AssertionError("mlx-lm was asked to load it")

    monkeypatch.setattr("mlx_lm.load", never)
    assert refusal(plain(target | {"path": "/no/where"})).kind is FaultKind.checkpoint_missing
    broken = tiny.copy(target, models / "broken")
    file = Path(broken["path"]) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-64])
    assert refusal(plain(broken)).kind is FaultKind.checkpoint_corrupt
    shutil.rmtree(broken["path"])
    assert refusal(plain(broken)).kind is FaultKind.checkpoint_missing


def test_bits_that_the_folder_has_not(target: dict[str, Any]) -> None:
    error = refusal(plain(target | {"bits": 4}))
    assert error.kind is FaultKind.unsupported_setting
    assert "bits=4" in str(error)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"model_type": "not_a_model"}, "not_a_model"), ({"num_hidden_layers": 3}, "Missing")],
)
def test_an_architecture_or_weights_that_mlx_lm_refuses(
    tmp_path: Path, target: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    checkpoint = tiny.copy(target, tmp_path / "odd")
    file = Path(checkpoint["path"]) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    error = refusal(plain(checkpoint))
    assert error.kind is FaultKind.load_failed
    assert words in str(error)


def test_a_load_downloads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_here(monkeypatch, tmp_path, {"owner/model": TINY}) as hub:
        error = refusal(plain({"name": "h", "source": "hub", "hub_id": "owner/model", "revision": "abc"}))
    assert hub.requests == []
    assert error.kind is FaultKind.checkpoint_missing
    assert "owner/model at revision abc" in str(error)
    assert "interlace checkpoint fetch owner/model@abc" in str(error)


def test_a_hub_checkpoint_is_loaded_from_its_snapshot(
    target: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {file.name: file.read_bytes() for file in Path(target["path"]).iterdir() if file.is_file()}
    with hub_here(monkeypatch, tmp_path, {"owner/model": files}):
        fetch(survey("owner/model"))
    engine = loaded({"name": "h", "source": "hub", "hub_id": "owner/model"})
    assert converse(engine, FIRST)[0].result.token_ids == converse(loaded(target), FIRST)[0].result.token_ids


def test_a_gguf_file_runs_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLACE_CACHE", str(tmp_path / "cache"))
    tiny.save_gguf(tmp_path / "m.gguf")
    engine = loaded({"name": "g", "source": "gguf", "path": str(tmp_path / "m.gguf"), "bits": 8})
    assert converse(engine, FIRST)[0].result.token_ids


def test_an_empty_prompt_is_refused(target: dict[str, Any]) -> None:
    engine = loaded(target, chat_template=False)
    engine.start_conversation()
    with pytest.raises(EngineError, match="no token"):
        turn_of(engine, "")
