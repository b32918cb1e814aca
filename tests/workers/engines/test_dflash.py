"""DFlash by the packages' own loops, on tiny random targets and drafts: the contract, known acceptance, drafts that a
package does not know. z-lab's package has an environment of its own: see test_second_environment."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers import tiny_drafts
from workers.engines.contract import EngineCase, EngineContract, converse, engine_case
from workers.engines.dflash import Dflash
from workers.engines.dflash_backends import Wanted
from workers.engines.dflash_backends.zlab import Proposals, Zlab
from workers.engines.mlx_lm import MlxLm
from workers.engines.speculative import VerifyStep
from workers.errors import EngineError, FaultKind
from workers.sampling import Sampling

HERE = ("mlx-dspark", "dflash-mlx")  # those that fit this environment
PROMPT = "Write down what a linked list is."
V2_LAYER_TENSORS, V2_SELECTOR_TENSORS = 4, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def target(folder: Path) -> dict[str, Any]:
    return tiny_drafts.build_target(folder / "target")


@pytest.fixture(scope="module")
def hybrid(folder: Path) -> dict[str, Any]:
    return tiny_drafts.build_hybrid(folder / "hybrid")


@pytest.fixture(scope="module")
def echo(folder: Path) -> dict[str, Any]:
    """A target that repeats the prompt's last token, a newline, for ever."""
    return tiny_drafts.build_target(folder / "echo", echoes=True)


@pytest.fixture(scope="module")
def newline(echo: dict[str, Any]) -> int:
    from mlx_lm.utils import load_tokenizer

    load: Any = load_tokenizer
    token: int = load(Path(echo["path"])).encode("\n", add_special_tokens=False)[-1]
    return token


@pytest.fixture(scope="module")
def drafts(folder: Path, newline: int) -> dict[str, dict[str, Any]]:
    """Random ones, and with an echoing target: one that is always right, one that never is."""
    made: dict[str, dict[str, Any]] = {}
    for version in (1, 2):
        made[f"random{version}"] = tiny_drafts.build_draft(folder / f"random{version}", version=version)
        made[f"right{version}"] = tiny_drafts.build_draft(folder / f"right{version}", version=version, constant=newline)
        made[f"wrong{version}"] = tiny_drafts.build_draft(
            folder / f"wrong{version}", version=version, constant=newline + 1
        )
    return made


def dflash(
    checkpoint: Mapping[str, Any],
    draft: Mapping[str, Any] | None,
    settings: Mapping[str, Any] | None = None,
    **sampling: Any,
) -> Dflash:
    return Dflash(settings=settings or {}, checkpoint=checkpoint, draft=draft, sampling={"name": "greedy"} | sampling)


def loaded(*arguments: Any, **sampling: Any) -> Dflash:
    engine = dflash(*arguments, **sampling)
    engine.load()
    return engine


CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "dspark v1": ("target", "random1", {}, {}),
    "dspark v2": ("target", "random2", {"block_size": 4}, {}),
    "dspark hybrid": ("hybrid", "random1", {}, {}),
    "dspark right": ("echo", "right2", {}, {}),
    "dspark 4 bits": ("echo", "right1", {"draft_bits": 4, "draft_group_size": 32}, {}),
    "dspark sampled": ("target", "random1", {}, {"temperature": 0.7}),
    "dflash-mlx": ("target", "random1", {"backend": "dflash-mlx"}, {}),
    "dflash-mlx right": ("echo", "right1", {"backend": "dflash-mlx"}, {}),
    "dflash-mlx adaptive": ("echo", "wrong1", {"backend": "dflash-mlx", "verify_mode": "adaptive"}, {}),
}


@pytest.fixture(scope="module", params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest, drafts: dict[str, dict[str, Any]]) -> Iterator[EngineCase]:
    model, draft, own, sampling = request.param
    checkpoint = request.getfixturevalue(model)

    def make(settings: Mapping[str, Any]) -> Dflash:
        return dflash(checkpoint, drafts[draft], own | settings, **sampling)

    with engine_case(make, requested=True) as ready:
        yield ready


class TestContract(EngineContract):
    """Each case keeps the contract."""


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("max_tokens", [1, 2, 9, 24])
def test_tokens_are_those_of_plain_decoding(
    target: dict[str, Any], drafts: dict[str, dict[str, Any]], backend: str, max_tokens: int
) -> None:
    plain = MlxLm(settings={}, checkpoint=target, draft=None, sampling={"name": "greedy"})
    plain.load()
    (wanted,) = converse(plain, PROMPT, max_tokens=max_tokens)
    (found,) = converse(loaded(target, drafts["random1"], {"backend": backend}), PROMPT, max_tokens=max_tokens)
    assert found.result.token_ids == wanted.result.token_ids
    assert found.result.text == wanted.result.text
    assert found.result.finish_reason == wanted.result.finish_reason


# Known acceptance.

WRONG = [("mlx-dspark", "wrong1"), ("mlx-dspark", "wrong2"), ("dflash-mlx", "wrong1")]
RIGHT = [("mlx-dspark", "right1"), ("mlx-dspark", "right2"), ("dflash-mlx", "right1")]


@pytest.mark.parametrize(("backend", "draft"), RIGHT)
@pytest.mark.parametrize("block_size", [2, 4, 8])
def test_a_draft_that_is_always_right_fills_every_block(
    echo: dict[str, Any], drafts: dict[str, dict[str, Any]], backend: str, draft: str, block_size: int
) -> None:
    engine = loaded(echo, drafts[draft], {"backend": backend, "block_size": block_size})
    (only,) = converse(engine, PROMPT, max_tokens=1 + 3 * block_size)
    assert only.result.steps == [(block_size - 1, block_size - 1, block_size)] * 3
    sign = only.evidence
    assert (sign.engaged, sign.useful, sign.drafted, sign.accepted) == (True, True, *(3 * (block_size - 1),) * 2)
    assert sign.text == f"{sign.accepted} of {sign.drafted} proposed tokens accepted in 3 verify steps"
    assert only.stamps_us[0] < only.stamps_us[-1]


@pytest.mark.parametrize(
    ("backend", "draft"), [("mlx-dspark", "wrong1"), ("mlx-dspark", "wrong2"), ("dflash-mlx", "wrong1")]
)
def test_a_draft_that_never_is_engages_and_is_of_no_use(
    echo: dict[str, Any], drafts: dict[str, dict[str, Any]], backend: str, draft: str
) -> None:
    (only,) = converse(loaded(echo, drafts[draft], {"backend": backend, "block_size": 4}), PROMPT, max_tokens=9)
    assert only.result.steps is not None
    assert [step[1:] for step in only.result.steps] == [(0, 1)] * 8
    assert (only.evidence.engaged, only.evidence.useful, only.evidence.accepted) == (True, False, 0)


def test_a_step_s_own_token_comes_with_the_next_step_in_dflash_mlx(
    echo: dict[str, Any], drafts: dict[str, dict[str, Any]]
) -> None:
    """That is when a reader of its stream gets it: the stamps say so, the steps say who made it."""
    engine = loaded(echo, drafts["right1"], {"backend": "dflash-mlx", "block_size": 4})
    (only,) = converse(engine, PROMPT, max_tokens=13)
    assert only.result.steps == [(3, 3, 4)] * 3
    assert only.result.tokens_per_stamp == [1, 3, 4, 4, 1]


@pytest.mark.parametrize("bits", [None, 4, 8])
@pytest.mark.parametrize("backend", HERE)
def test_the_draft_is_quantised_as_it_loads(
    echo: dict[str, Any], drafts: dict[str, dict[str, Any]], backend: str, bits: int | None
) -> None:
    settings = {"backend": backend, "draft_group_size": 32, "draft_bits": bits}
    engine = dflash(echo, drafts["right1"], settings)
    notes = engine.load().notes
    assert f"draft: {'none of its layers quantised' if bits is None else f'36 of its layers in {bits} bits'}" in notes
    (only,) = converse(engine, PROMPT, max_tokens=9)
    assert only.evidence.useful


# The prefix cache of dflash-mlx. That it works, an environment with an mlx-lm that it fits shows: test_dflash_prefix.


def test_a_prefix_cache_that_cannot_read_this_mlx_lm_s_cache_is_refused_at_load(
    target: dict[str, Any], drafts: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlx_lm.models.cache import KVCache

    def of_three(self: Any) -> Any:
        return self.keys, self.values, self.offset

    monkeypatch.setattr(KVCache, "state", property(of_three))
    with pytest.raises(
        EngineError, match=r"does not run with mlx-lm .*; set prefix_cache_bytes to null, or"
    ) as refused:
        dflash(target, drafts["random1"], {"backend": "dflash-mlx", "prefix_cache_bytes": 2**30}).load()
    assert refused.value.kind is FaultKind.unsupported_setting


def test_without_a_prefix_cache_each_turn_starts_afresh(
    target: dict[str, Any], drafts: dict[str, dict[str, Any]]
) -> None:
    for backend in HERE:
        engine = dflash(target, drafts["random1"], {"backend": backend, "prefix_cache_bytes": 0})
        assert "no prefix cache: each turn processes its whole prompt" in engine.load().notes
        assert [each.result.cached_tokens for each in converse(engine, PROMPT, PROMPT)] == [0, 0]


# Copying from the context is no acceptance of the draft.


def test_copies_are_off_unless_asked_for(echo: dict[str, Any], drafts: dict[str, dict[str, Any]]) -> None:
    for backend in HERE:
        (only,) = converse(loaded(echo, drafts["wrong1"], {"backend": backend}), PROMPT, max_tokens=40)
        assert [sign.mechanism for sign in only.result.evidence] == ["dflash"]
        assert only.evidence.accepted == 0


def test_copies_that_are_allowed_are_counted_apart(echo: dict[str, Any], drafts: dict[str, dict[str, Any]]) -> None:
    (only,) = converse(loaded(echo, drafts["wrong1"], {"copy_drafts": True}), PROMPT, max_tokens=40)
    drafted, copied = only.result.evidence
    assert (drafted.mechanism, drafted.accepted) == ("dflash", 0)
    assert copied.mechanism == "copy_drafts"
    assert copied.accepted
    assert not copied.requested


# What stops an arm before its first answer.


def test_the_23_tensors_that_dflash_mlx_does_not_know(
    target: dict[str, Any], drafts: dict[str, dict[str, Any]]
) -> None:
    """Version 2 adds four tensors a layer and three of a selector; five layers."""
    assert 5 * V2_LAYER_TENSORS + V2_SELECTOR_TENSORS == 23
    with pytest.raises(EngineError) as refused:
        dflash(target, drafts["random2"], {"backend": "dflash-mlx"}).load()
    assert refused.value.kind is FaultKind.draft_mismatch
    message = str(refused.value)
    assert "\n" not in message
    assert "dflash-mlx 0." in message
    assert "does not know 23 of the 81 parameters of the draft random2 (a DFlash 2 draft)" in message
    assert "set engine.backend to one that reads it: mlx-dspark, dflash" in message


@pytest.mark.parametrize("backend", HERE)
def test_a_draft_that_lacks_parameters_is_refused(
    target: dict[str, Any], drafts: dict[str, dict[str, Any]], tmp_path: Path, backend: str
) -> None:
    import mlx.core as mx

    broken = tmp_path / "broken"
    shutil.copytree(drafts["random1"]["path"], broken)
    weights: Any = mx.load(str(broken / "model.safetensors"))
    del weights["norm.weight"], weights["layers.0.mlp.up_proj.weight"]
    mx.save_safetensors(str(broken / "model.safetensors"), weights, metadata={"format": "mlx"})
    draft = drafts["random1"] | {"path": str(broken), "name": "broken"}
    with pytest.raises(EngineError, match="the draft broken lacks 2 parameters") as refused:
        dflash(target, draft, {"backend": backend}).load()
    assert refused.value.kind is FaultKind.draft_mismatch


def test_a_loaded_draft_says_that_all_its_parameters_are_known(
    target: dict[str, Any], drafts: dict[str, dict[str, Any]]
) -> None:
    notes = dflash(target, drafts["random2"]).load().notes
    assert any(note.startswith("draft: DFlash 2, 81 tensors, all known to mlx-dspark 0.") for note in notes)


def test_no_draft(target: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match=r"checkpoint target names no draft; set engine\.draft"):
        dflash(target, None).load()


@pytest.mark.parametrize(
    ("settings", "sampling", "words"),
    [
        ({"backend": "vllm"}, {}, "backend is vllm: choose one of mlx-dspark, dflash, dflash-mlx"),
        ({"block_size": 1}, {}, "block_size is 1: give at least 2"),
        ({"block_size": 9}, {}, "block_size 9 is more than the 8 that the draft was trained with"),
        ({"verify_mode": "adaptive"}, {}, "mlx-dspark has fixed"),
        ({"draft_bits": 5}, {}, "draft_bits is 5"),
        ({"prefix_cache_bytes": 2**30}, {}, "mlx-dspark has no prefix cache with a budget in process"),
        ({"backend": "dflash", "prefix_cache_bytes": 1}, {}, "dflash has no prefix cache with a budget in process"),
        ({"backend": "dflash-mlx", "prefix_cache_bytes": -1}, {}, "prefix_cache_bytes is -1: give at least 0"),
        ({"backend": "dflash", "copy_drafts": True}, {}, "dflash has no copy_drafts"),
        ({"backend": "dflash-mlx"}, {"temperature": 0.5}, "dflash-mlx decodes greedily only"),
        ({}, {"min_p": 0.1}, "has no min_p"),
    ],
)
def test_what_it_cannot_do_is_refused(
    target: dict[str, Any],
    drafts: dict[str, dict[str, Any]],
    settings: dict[str, Any],
    sampling: dict[str, Any],
    words: str,
) -> None:
    with pytest.raises(EngineError, match=words) as refused:
        dflash(target, drafts["random1"], settings, **sampling).load()
    assert refused.value.kind is FaultKind.unsupported_setting


# z-lab's package does not say whose a last token is that max_tokens cut or that ends the text.


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.data())
def test_the_proposal_shows_whose_the_last_token_is(proposed: list[int], data: st.DataObject) -> None:
    import mlx.core as mx

    accepted = data.draw(st.integers(0, len(proposed)))
    own = data.draw(st.booleans()) or accepted == 0
    tail = proposed[:accepted] + ([9] if own else [])
    zlab = Zlab(
        Wanted(
            block_size=None,
            verify_mode="fixed",
            draft_bits=None,
            draft_group_size=64,
            prefix_cache_bytes=0,
            copy_drafts=False,
            sampling=Sampling(),
        )
    )
    zlab._proposals = Proposals()  # noqa: SLF001 - what a load would set
    zlab._proposals.add(mx.array([proposed]), width=len(proposed))  # noqa: SLF001
    as_reported = VerifyStep(drafted=len(proposed), accepted=len(tail) - 1)
    last = zlab._last_step(as_reported, [7, *tail])  # noqa: SLF001
    assert last.accepted == accepted
