"""mlx-lm with a draft model on tiny random models: the contract, rounds against the truth, evidence in each of its
cases, refusals. A real pair of models is in test_smollm2."""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plan import Deadlines
from tests.workers import tiny
from tests.workers.engines.refusing import refusal
from workers.engines import mlx_lm_draft
from workers.engines.base import TurnRequest
from workers.engines.contract import Answer, EngineCase, EngineContract, answer, converse, engine_case
from workers.engines.mlx_lm import MlxLm
from workers.engines.mlx_lm_draft import CountedDraft, MlxLmDraft, evidence_of, rounds_from_flags
from workers.errors import FaultKind, WorkerFault
from workers.protocol import Generate, Load
from workers.supervision.worker_process import WorkerProcess, WorkerSpec

FIRST, SECOND = "Name three fruits.", "And three more?"


@pytest.fixture(scope="module")
def wrong(models: Path) -> dict[str, Any]:
    """A draft that never is."""
    return tiny.build_zero(models / "wrong")


def speculative(
    checkpoint: Mapping[str, Any],
    draft: Mapping[str, Any] | None,
    settings: Mapping[str, Any] | None = None,
    **sampling: Any,
) -> MlxLmDraft:
    return MlxLmDraft(
        settings=settings or {}, checkpoint=checkpoint, draft=draft, sampling={"name": "greedy"} | sampling
    )


def loaded(*arguments: Any, **sampling: Any) -> MlxLmDraft:
    engine = speculative(*arguments, **sampling)
    engine.load()
    return engine


def loaded_plain(checkpoint: Mapping[str, Any]) -> MlxLm:
    engine = MlxLm(settings={}, checkpoint=checkpoint, draft=None, sampling={})
    engine.load()
    return engine


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "near": ("near", {}, {}),
    "wide": ("near", {"block_size": 9}, {}),
    "narrow": ("near", {"block_size": 2}, {}),
    "wrong": ("wrong", {}, {}),
    "itself": ("target", {}, {}),
    "sampled": ("near", {}, {"temperature": 0.7}),
    "no prefix cache": ("near", {"prefix_cache": False}, {}),
}


@pytest.fixture(scope="module", params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest, target: dict[str, Any]) -> Iterator[EngineCase]:
    draft, own, sampling = request.param
    drafting = request.getfixturevalue(draft)

    def make(settings: Mapping[str, Any]) -> MlxLmDraft:
        return speculative(target, drafting, own | settings, **sampling)

    with engine_case(make, requested=True) as ready:
        yield ready


class TestContract(EngineContract):
    """Each case keeps the contract."""


@pytest.mark.parametrize("block_size", [2, 4, 9])
def test_the_verify_width_is_one_more_than_mlx_lm_s_own_setting(
    target: dict[str, Any], near: dict[str, Any], block_size: int
) -> None:
    info = speculative(target, near, {"block_size": block_size}).load()
    assert info.verify_width == block_size
    assert info.drafted_per_step == block_size - 1
    assert info.engine_setting == {"num_draft_tokens": block_size - 1}


def test_sampling_is_noted_as_bad_for_acceptance(target: dict[str, Any], near: dict[str, Any]) -> None:
    assert not speculative(target, near).load().notes
    assert any("draw the same token" in note for note in speculative(target, near, temperature=0.5).load().notes)


# Rounds recovered from the flags.


@st.composite
def generations(draw: st.DrawFn) -> tuple[list[bool], int, int, list[tuple[int, int, int]]]:
    """Simulate mlx-lm's loop: flags, max_tokens, drafted per step, and the true rounds.

    A round proposes as many as max_tokens leaves room for, commits the accepted ones, then one of the target's own
    unless max_tokens is reached before; an end-of-sequence token ends it all wherever it falls.
    """
    drafted_per_step = draw(st.integers(1, 9))
    max_tokens = draw(st.integers(1, 40))
    end_at = draw(st.none() | st.integers(1, max_tokens))
    flags: list[bool] = []
    rounds = []
    limit = min(max_tokens, end_at or max_tokens)
    while len(flags) < limit:
        drafted = min(max_tokens - len(flags), drafted_per_step)
        room = limit - len(flags)
        accepted = min(draw(st.integers(0, drafted)), room)
        committed = min(accepted + 1, room)
        flags += [True] * accepted + [False] * (committed - accepted)
        rounds.append((drafted, accepted, committed))
    return flags, max_tokens, drafted_per_step, rounds


@given(generations())
def test_rounds_are_recovered_from_any_flags(
    generation: tuple[list[bool], int, int, list[tuple[int, int, int]]],
) -> None:
    flags, max_tokens, drafted_per_step, rounds = generation
    found = rounds_from_flags(flags, max_tokens=max_tokens, drafted_per_step=drafted_per_step)
    assert found == rounds
    assert sum(committed for _, _, committed in found) == len(flags)


@pytest.mark.parametrize(
    ("flags", "max_tokens", "rounds"),
    [
        ("", 8, []),
        ("F", 8, [(3, 0, 1)]),
        ("TTTF", 8, [(3, 3, 4)]),
        ("TTTFTTTF", 8, [(3, 3, 4), (3, 3, 4)]),
        ("TFFTTF", 20, [(3, 1, 2), (3, 0, 1), (3, 2, 3)]),
        ("TTTFTT", 6, [(3, 3, 4), (2, 2, 2)]),  # the last round was shortened; no room for the target's own
        ("TTTFTF", 6, [(3, 3, 4), (2, 1, 2)]),
        ("TTTFT", 20, [(3, 3, 4), (3, 1, 1)]),  # the end of the text inside a round
    ],
)
def test_rounds_by_hand(flags: str, max_tokens: int, rounds: list[tuple[int, int, int]]) -> None:
    marks = [flag == "T" for flag in flags]
    assert rounds_from_flags(marks, max_tokens=max_tokens, drafted_per_step=3) == rounds


class WatchedDraft(CountedDraft):
    """The draft model, and whoever was made last."""

    __slots__ = ()
    latest: "WatchedDraft"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        WatchedDraft.latest = self


def true_rounds(engine: MlxLmDraft, prompt: str, max_tokens: int) -> tuple[list[list[int]], Answer]:
    """[drafted, committed] of each round as seen from outside: a round begins where the draft model was called again.

    The prompt is shorter than a prefill step, which is therefore one call.
    """
    engine.start_conversation()
    messages = [{"role": "user", "content": prompt}]
    engine.prepare(TurnRequest(messages=messages, turn=0, max_tokens=max_tokens, seed=1))
    seen, rounds = 1, []
    for _ in engine.stream():
        passes = WatchedDraft.latest.passes
        if passes > seen:
            rounds.append([passes - seen, 0])
            seen = passes
        rounds[-1][1] += 1
    result = engine.finish()
    engine.settle()
    return rounds, Answer(result=result, stamps_us=[])


@pytest.mark.parametrize("draft", ["near", "wrong", "target"])
@pytest.mark.parametrize("block_size", [2, 4, 7])
def test_rounds_are_what_the_draft_model_was_called_for(
    request: pytest.FixtureRequest,
    target: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    draft: str,
    block_size: int,
) -> None:
    monkeypatch.setattr(mlx_lm_draft, "CountedDraft", WatchedDraft)
    engine = loaded(target, request.getfixturevalue(draft), {"block_size": block_size})
    for max_tokens in (1, 2, 5, 17):
        rounds, only = true_rounds(engine, FIRST, max_tokens)
        steps = only.result.steps
        assert steps is not None
        assert [[drafted, committed] for drafted, _, committed in steps] == rounds
        assert sum(committed for _, committed in rounds) == len(only.result.token_ids) == max_tokens


def test_the_end_of_the_text_inside_a_round(
    models: Path, target: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlx_lm_draft, "CountedDraft", WatchedDraft)
    (whole,) = converse(loaded(target, target), FIRST, max_tokens=20)
    tokens = whole.result.token_ids
    ends = [i for i in range(4, 16) if tokens[i] not in tokens[:i]][:6]
    assert len({end % 4 for end in ends}) > 1  # at several places of a round
    for end in ends:
        stopping = tiny.copy(target, models / f"stopping-{end}")
        tiny.set_eos(stopping, tokens[end])
        rounds, only = true_rounds(loaded(stopping, target), FIRST, 20)
        assert only.result.finish_reason == "stop"
        assert only.result.token_ids == tokens[: end + 1]
        steps = only.result.steps
        assert steps is not None
        assert [[drafted, committed] for drafted, _, committed in steps] == rounds


# Evidence.


def test_a_model_as_its_own_draft_is_always_right(target: dict[str, Any]) -> None:
    for each in converse(loaded(target, target), FIRST, SECOND, max_tokens=22):
        sign = each.evidence
        assert sign.drafted == sign.accepted
        assert (sign.mechanism, sign.requested, sign.engaged, sign.useful) == ("draft_model", True, True, True)


def test_a_draft_that_is_never_right_engaged_and_was_useless(target: dict[str, Any], wrong: dict[str, Any]) -> None:
    (only,) = converse(loaded(target, wrong), FIRST, max_tokens=20)
    sign = only.evidence
    assert (sign.requested, sign.engaged, sign.useful) == (True, True, False)
    assert sign.accepted == 0
    assert "0 of 57 proposed tokens accepted in 20 verify steps" in sign.text


def test_a_draft_that_never_ran_is_not_engaged(
    target: dict[str, Any], near: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent fallback: mlx-lm without its draft yields the flags of a draft that is never right."""
    from mlx_lm import stream_generate

    def without_draft(*arguments: Any, **options: Any) -> Iterator[Any]:
        return stream_generate(*arguments, **(options | {"draft_model": None}))

    engine = loaded(target, near)
    monkeypatch.setattr("mlx_lm.stream_generate", without_draft)
    monkeypatch.setattr(engine, "_caches", loaded_caches(target))
    (only,) = converse(engine, FIRST, max_tokens=20)
    sign = only.evidence
    assert (sign.requested, sign.engaged, sign.useful) == (True, False, False)
    assert sign.drafted == 0
    assert only.result.steps is None


def loaded_caches(checkpoint: Mapping[str, Any]) -> Any:
    return vars(loaded_plain(checkpoint))["_caches"]


def test_flags_that_the_calls_contradict_are_no_evidence() -> None:
    sign = evidence_of([(3, 3, 4), (3, 0, 1)], drafting_passes=5)
    assert (sign.engaged, sign.useful, sign.accepted) == (None, None, None)
    assert "called 5 times to propose, the flags say 6" in sign.text


# Nothing is lost, and the cache is shared between turns.


@pytest.mark.parametrize("draft", ["near", "wrong"])
@pytest.mark.parametrize("block_size", [2, 5])
def test_the_answer_is_the_target_s_own(
    request: pytest.FixtureRequest, target: dict[str, Any], draft: str, block_size: int
) -> None:
    engine = loaded(target, request.getfixturevalue(draft), {"block_size": block_size})
    for drafted, plain in zip(
        converse(engine, FIRST, SECOND, "Go on.", max_tokens=23),
        converse(loaded_plain(target), FIRST, SECOND, "Go on.", max_tokens=23),
        strict=True,
    ):
        assert drafted.result.token_ids == plain.result.token_ids
        assert drafted.result.text == plain.result.text


@pytest.mark.parametrize("draft", ["near", "wrong", "target"])
def test_a_second_turn_reuses_both_caches_and_answers_the_same(
    request: pytest.FixtureRequest, target: dict[str, Any], draft: str
) -> None:
    drafting = request.getfixturevalue(draft)
    prompts = (FIRST, SECOND, "Go on.", "And on.")
    cached = converse(loaded(target, drafting), *prompts, max_tokens=13)
    processed = converse(loaded(target, drafting, {"prefix_cache": False}), *prompts, max_tokens=13)
    for with_cache, without in zip(cached, processed, strict=True):
        assert with_cache.result.token_ids == without.result.token_ids
        assert with_cache.result.steps == without.result.steps
        assert without.result.cached_tokens == 0
    for earlier, later in pairwise(cached):
        assert earlier.result.prompt_tokens <= (later.result.cached_tokens or 0) < later.result.prompt_tokens


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4, 5, 8])
def test_reuse_is_exact_wherever_the_last_round_ended(
    target: dict[str, Any], near: dict[str, Any], monkeypatch: pytest.MonkeyPatch, max_tokens: int
) -> None:
    """The draft's cache lags behind the target's by a token or not, as the round ended: the next turn must not care."""
    engine = loaded(target, near)
    plain = loaded_plain(target)
    prompt_ids = list(range(40, 70))
    for each in (engine, plain):
        monkeypatch.setattr(each, "_encode", lambda messages: prompt_ids)
        each.start_conversation()
    request = TurnRequest(messages=[], turn=0, max_tokens=max_tokens, seed=1)
    first = answer(engine, request).result.token_ids
    assert answer(plain, request).result.token_ids == first
    longer = [*prompt_ids, *first, 7, 8, 9]
    for each in (engine, plain):
        monkeypatch.setattr(each, "_encode", lambda messages: longer)
    second = answer(engine, TurnRequest(messages=[], turn=1, max_tokens=20, seed=1)).result
    assert len(longer) - 3 - 2 <= (second.cached_tokens or 0) <= len(longer) - 3
    assert second.token_ids == answer(plain, TurnRequest(messages=[], turn=1, max_tokens=20, seed=1)).result.token_ids


# What is refused in load.


def test_no_draft(target: dict[str, Any]) -> None:
    error = refusal(speculative(target, None))
    assert error.kind is FaultKind.unsupported_setting
    assert "engine.draft" in str(error)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"block_size": 1}, "give at least 2"),
        ({"prefill_step_size": 0}, "prefill_step_size"),
        ({"kv_bits": 4}, "kv_bits"),
    ],
)
def test_settings_that_cannot_be(
    target: dict[str, Any], near: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    error = refusal(speculative(target, near, settings))
    assert error.kind is FaultKind.unsupported_setting
    assert words in str(error)


def with_tokenizer(checkpoint: dict[str, Any], folder: Path, change: Any) -> dict[str, Any]:
    """A copy whose tokenizer.json was changed."""
    copy = tiny.copy(checkpoint, folder)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    return copy


def swap_two_tokens(content: dict[str, Any]) -> None:
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]


def drop_a_token(content: dict[str, Any]) -> None:
    vocab = content["model"]["vocab"]
    del vocab[max(vocab, key=vocab.__getitem__)]


def split_digits_otherwise(content: dict[str, Any]) -> None:
    """The same vocabulary, but text is cut otherwise: only encoding something shows it."""
    content["normalizer"] = {"type": "Lowercase"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (swap_two_tokens, "token 'a'"),
        (drop_a_token, "319 tokens against 320"),
        (split_digits_otherwise, "'The quick brown fox"),
    ],
)
def test_a_draft_with_another_tokenizer(
    target: dict[str, Any], near: dict[str, Any], tmp_path: Path, change: Any, words: str
) -> None:
    error = refusal(speculative(target, with_tokenizer(near, tmp_path / "other", change)))
    assert error.kind is FaultKind.tokenizer_mismatch
    assert words in str(error)


def test_a_cache_that_cannot_be_trimmed(models: Path, target: dict[str, Any]) -> None:
    recurrent = tiny.build_recurrent(models / "recurrent")
    for engine, role in ((speculative(recurrent, target), "target"), (speculative(target, recurrent), "draft")):
        error = refusal(engine)
        assert error.kind is FaultKind.cache_not_trimmable
        assert f"the {role}'s cache" in str(error)


def test_a_missing_or_broken_draft(models: Path, target: dict[str, Any], near: dict[str, Any]) -> None:
    assert refusal(speculative(target, near | {"path": "/no/where"})).kind is FaultKind.checkpoint_missing
    broken = tiny.copy(near, models / "broken")
    file = Path(broken["path"]) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-64])
    assert refusal(speculative(target, broken)).kind is FaultKind.checkpoint_corrupt


# Behind the protocol, in a process of its own.


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    spec = WorkerSpec(run_id="r", arm="a", log_path=tmp_path / "worker.log", journal_path=tmp_path / "journal.jsonl")
    with WorkerProcess(spec) as process:
        yield process


def load_request(checkpoint: dict[str, Any], draft: dict[str, Any] | None) -> Load:
    target = "workers.engines.mlx_lm_draft.MlxLmDraft"
    return Load(target=target, settings={"block_size": 3}, checkpoint=checkpoint, draft=draft, sampling={})


def test_a_worker_process_answers_two_turns(
    worker: WorkerProcess, target: dict[str, Any], near: dict[str, Any]
) -> None:
    loaded = worker.load(load_request(target, near), Deadlines())
    assert (loaded.verify_width, loaded.engine_setting) == (3, {"num_draft_tokens": 2})
    turns = [[{"role": "user", "content": prompt}] for prompt in (FIRST, SECOND)]
    first, second = worker.generate(Generate(request_id="1", turns=turns, max_tokens=9, seed=1), Deadlines())
    assert len(first.stamps_us) == len(first.token_ids) == 9
    assert first.steps is not None
    assert sum(step[2] for step in first.steps) == 9
    assert (second.cached_tokens or 0) >= first.prompt_tokens


def test_a_worker_process_passes_the_kind_of_refusal_on(worker: WorkerProcess, target: dict[str, Any]) -> None:
    with pytest.raises(WorkerFault, match="no folder /no/where") as caught:
        worker.load(load_request(target, target | {"path": "/no/where"}), Deadlines())
    assert caught.value.kind is FaultKind.checkpoint_missing
