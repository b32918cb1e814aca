"""Passes of several tokens that commit one, on tiny random models: the contract, the same answer, the widths run."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.orchestrator.composing import names, plan_of
from tests.workers import tiny
from workers.engines.contract import EngineCase, EngineContract, converse, engine_case
from workers.engines.mlx_lm import MlxLm
from workers.engines.verify_cost import VerifyCost, evidence_of, fillers
from workers.errors import EngineError, FaultKind

QUESTION, MORE = "Name three fruits.", "And three more?"


def engine(checkpoint: Mapping[str, Any], settings: Mapping[str, Any] | None = None, **sampling: Any) -> VerifyCost:
    return VerifyCost(settings=settings or {}, checkpoint=checkpoint, draft=None, sampling=sampling)


def loaded(checkpoint: Mapping[str, Any], **settings: Any) -> VerifyCost:
    made = engine(checkpoint, settings)
    made.load()
    return made


@pytest.fixture(scope="module", params=[1, 4], ids=["one token", "four tokens"])
def case(request: pytest.FixtureRequest, target: dict[str, Any]) -> Iterator[EngineCase]:
    def make(settings: Mapping[str, Any]) -> VerifyCost:
        return engine(target, {"block_size": request.param, **settings})

    with engine_case(make, requested=request.param > 1) as ready:
        yield ready


class TestContract(EngineContract):
    """Each case keeps the contract."""


@pytest.mark.parametrize("block_size", [1, 2, 5, 16])
@pytest.mark.parametrize("bits", [None, 4])
def test_every_width_writes_what_plain_decoding_writes(tmp_path: Path, block_size: int, bits: int | None) -> None:
    checkpoint = tiny.build(tmp_path / "model", bits=bits)
    plain = MlxLm(settings={}, checkpoint=checkpoint, draft=None, sampling={})
    plain.load()
    wanted = converse(plain, QUESTION, MORE, max_tokens=16)
    wide = loaded(checkpoint, block_size=block_size, prefill_step_size=16)
    found = converse(wide, QUESTION, MORE, max_tokens=16)
    for left, right in zip(wanted, found, strict=True):
        assert right.result.token_ids == left.result.token_ids
        assert right.result.text == left.result.text
        assert right.result.finish_reason == left.result.finish_reason
        assert right.result.cached_tokens == left.result.cached_tokens
        assert right.result.prompt_sha256 == left.result.prompt_sha256
        assert right.evidence.text == f"16 of 16 passes held {block_size} tokens, for 16 tokens of the answer"
        assert right.evidence.engaged is (block_size > 1)


def test_the_end_of_the_text_ends_the_answer_and_has_no_text(target: dict[str, Any], tmp_path: Path) -> None:
    (before,) = converse(loaded(target), QUESTION, max_tokens=12)
    stopping = tiny.copy(target, tmp_path / "stopping")
    end = before.result.token_ids[5]
    place = before.result.token_ids.index(end)
    tiny.set_eos(stopping, end)
    (found,) = converse(loaded(stopping, block_size=8), QUESTION, max_tokens=12)
    assert found.result.token_ids == before.result.token_ids[: place + 1]
    assert found.result.finish_reason == "stop"
    assert before.result.text.startswith(found.result.text)


def test_its_width_is_stored_as_the_block_size_even_where_it_is_one(target: dict[str, Any]) -> None:
    for width in (1, 8):
        info = engine(target, {"block_size": width}).load()
        assert (info.drafted_per_step, info.verify_width, info.engine_setting) == (0, width, {"block_size": width})


@pytest.mark.parametrize(
    ("settings", "sampling", "says"),
    [
        ({"block_size": 0}, {}, "block_size is 0: give at least 1"),
        ({"prefill_step_size": 0}, {}, "prefill_step_size is 0"),
        ({}, {"temperature": 0.7}, "set sampling.temperature=0"),
    ],
)
def test_what_it_cannot_do_is_refused_before_loading(
    target: dict[str, Any], settings: dict[str, Any], sampling: dict[str, Any], says: str
) -> None:
    with pytest.raises(EngineError, match=says) as caught:
        engine(target, settings, **sampling).load()
    assert caught.value.kind is FaultKind.unsupported_setting


def test_a_cache_that_cannot_give_fillers_back_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught:
        engine(tiny.build_recurrent(tmp_path / "recurrent")).load()
    assert caught.value.kind is FaultKind.cache_not_trimmable


@given(st.lists(st.integers(0, 99), min_size=1, max_size=20), st.integers(0, 40))
def test_fillers_are_tokens_of_the_text_whatever_its_length(text: list[int], count: int) -> None:
    found = fillers(text, count)
    assert len(found) == count
    assert set(found) <= set(text)
    assert found[: len(text) - 1] == text[-2::-1][:count]


@pytest.mark.parametrize(
    ("widths", "wanted", "tokens", "engaged"),
    [
        ([4, 4, 4], 4, 3, True),
        ([4, 1, 4], 4, 3, False),  # one pass was plain
        ([4, 4], 4, 3, False),  # a token that no pass of ours made
        ([], 4, 0, True),
        ([1, 1], 1, 2, False),  # nothing was asked for
    ],
)
def test_it_engaged_where_every_token_took_a_pass_of_that_width(
    widths: list[int], wanted: int, tokens: int, engaged: bool
) -> None:
    sign = evidence_of(widths, wanted=wanted, tokens=tokens)
    assert sign.requested is (wanted > 1)
    assert sign.engaged is engaged


def test_the_sweep_holds_every_width_against_one_token_a_pass() -> None:
    made = plan_of("sweep=verify_cost", "checkpoint=dummy-tiny")
    assert [arm.engine["block_size"] for arm in made.arms] == [1, 2, 4, 8, 16]
    assert made.control == made.arms[0].name
    assert made.design.metric == "decode_tps"
    assert len(set(names("sweep=verify_cost", "checkpoint=dummy-tiny"))) == 5
