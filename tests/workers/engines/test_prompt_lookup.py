"""Prompt lookup with mlx-dspark's own loop on tiny random models: the contract, the same tokens as plain decoding,
counts against the truth. On the real small model, with OpenBLAS: faster on copied code, no gain on prose."""

import ctypes.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.configuration.groups import SHIPPED_DIR
from tests.workers import tiny
from workers.engines.contract import EngineCase, EngineContract, converse, engine_case
from workers.engines.mlx_lm import MlxLm
from workers.engines.prompt_lookup import PromptLookup
from workers.engines.speculative import LoopResult, VerifyStep, committed, tokens_per_stamp
from workers.errors import EngineError, FaultKind

COPIED = "one two three four one two three four one two three"


@pytest.fixture(scope="module")
def repeating(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A model that says one token for ever: whatever is looked up is right."""
    return tiny.build_zero(tmp_path_factory.mktemp("models") / "zero")


def lookup(checkpoint: Mapping[str, Any], settings: Mapping[str, Any] | None = None, **sampling: Any) -> PromptLookup:
    return PromptLookup(
        settings=settings or {}, checkpoint=checkpoint, draft=None, sampling={"name": "greedy"} | sampling
    )


def loaded(*arguments: Any, **sampling: Any) -> PromptLookup:
    engine = lookup(*arguments, **sampling)
    engine.load()
    return engine


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "varied": ("target", {}, {}),
    "eager": ("target", {"ngram_min": 1, "ngram_max": 2, "block_size": 4}, {}),
    "repeating": ("repeating", {}, {}),
    "never long": ("repeating", {"long_block_size": None, "block_size": 3}, {}),
    "sampled": ("target", {"ngram_min": 1}, {"temperature": 0.7}),
    "no prefix cache": ("target", {"prefix_cache": False}, {}),
}


@pytest.fixture(scope="module", params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Iterator[EngineCase]:
    model, own, sampling = request.param
    checkpoint = request.getfixturevalue(model)

    def make(settings: Mapping[str, Any]) -> PromptLookup:
        return lookup(checkpoint, own | settings, **sampling)

    with engine_case(make, requested=True) as ready:
        yield ready


class TestContract(EngineContract):
    """Each case keeps the contract."""


@pytest.mark.parametrize("max_tokens", [1, 2, 17, 40])
def test_tokens_and_text_are_those_of_plain_decoding(target: dict[str, Any], max_tokens: int) -> None:
    plain = MlxLm(settings={}, checkpoint=target, draft=None, sampling={"name": "greedy"})
    plain.load()
    eager = loaded(target, {"ngram_min": 1})
    for one, other in zip(
        converse(eager, COPIED, "again", max_tokens=max_tokens),
        converse(plain, COPIED, "again", max_tokens=max_tokens),
        strict=True,
    ):
        assert one.result.token_ids == other.result.token_ids
        assert one.result.text == other.result.text
        assert one.result.prompt_sha256 == other.result.prompt_sha256
        assert one.result.finish_reason == other.result.finish_reason


def test_a_model_that_repeats_itself_is_read_off_entirely(repeating: dict[str, Any]) -> None:
    (only,) = converse(loaded(repeating), COPIED, max_tokens=64)
    sign = only.evidence
    assert (sign.engaged, sign.useful) == (True, True)
    assert sign.drafted == sign.accepted


def test_never_longer_than_the_block(repeating: dict[str, Any]) -> None:
    engine = loaded(repeating, {"block_size": 4, "long_block_size": None})
    (only,) = converse(engine, COPIED, max_tokens=40)
    assert {drafted for drafted, _, _ in only.result.steps or ()} <= {0, 1, 2, 3}


def test_where_nothing_is_found_it_looked_and_was_of_no_use(target: dict[str, Any]) -> None:
    (only,) = converse(loaded(target, {"ngram_min": 40, "ngram_max": 40}), "short", max_tokens=8)
    sign = only.evidence
    assert (sign.engaged, sign.useful, sign.drafted, sign.accepted) == (True, False, 0, 0)
    assert sign.text == "0 of 7 verify steps found a match, 0 of 0 proposed tokens accepted"
    assert only.result.steps == [(0, 0, 1)] * 7


def test_an_answer_of_one_token_shows_no_step(target: dict[str, Any]) -> None:
    (only,) = converse(loaded(target), "short", max_tokens=1)
    assert only.evidence.engaged is False
    assert "no verify step ran" in only.evidence.text


def test_it_stops_where_plain_decoding_stops(target: dict[str, Any], tmp_path: Path) -> None:
    """Not at tokens that are end markers in some other family."""
    plain = converse(loaded(target, {"ngram_min": 1}), COPIED, max_tokens=30)[0].result.token_ids
    ending = tiny.copy(target, tmp_path / "ending")
    tiny.set_eos(ending, plain[9])
    stopped = converse(loaded(ending, {"ngram_min": 1}), COPIED, max_tokens=30)[0].result
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == plain[: plain.index(plain[9]) + 1]
    goes_on = converse(loaded(ending, {"ngram_min": 1}, ignore_eos=True), COPIED, max_tokens=30)[0].result
    assert goes_on.token_ids == plain


@pytest.mark.parametrize(
    ("settings", "sampling", "words"),
    [
        ({"block_size": 1}, {}, "block_size is 1: give at least 2"),
        ({"block_size": 8, "long_block_size": 7}, {}, "long_block_size is 7: give at least block_size, 8"),
        ({"ngram_min": 5}, {}, "ngram_max is 4: give at least ngram_min, 5"),
        ({}, {"min_p": 0.1}, "has no min_p"),
    ],
)
def test_what_it_cannot_do_is_refused(
    target: dict[str, Any], settings: dict[str, Any], sampling: dict[str, Any], words: str
) -> None:
    with pytest.raises(EngineError, match=words) as refused:
        lookup(target, settings, **sampling).load()
    assert refused.value.kind is FaultKind.unsupported_setting


# What counts of an answer.


@st.composite
def answers(draw: st.DrawFn) -> tuple[LoopResult, int, frozenset[int]]:
    """Reports that a loop might make: a last step may overrun max_tokens, or commit past an end token."""
    max_tokens = draw(st.integers(1, 30))
    steps = []
    count = 1
    while count < max_tokens:
        drafted = draw(st.integers(0, 6))
        accepted = draw(st.integers(0, drafted))
        steps.append(VerifyStep(drafted=drafted, accepted=accepted))
        count += accepted + 1
    end_at = draw(st.none() | st.integers(0, count - 1))
    token_ids = [0 if place == end_at else 1 for place in range(count)]
    return LoopResult(token_ids=token_ids, verify_steps=steps), max_tokens, frozenset({0})


@given(answers())
def test_what_counts_adds_up(reported: tuple[LoopResult, int, frozenset[int]]) -> None:
    answer, max_tokens, end_ids = reported
    done = committed(answer, max_tokens=max_tokens, end_ids=end_ids)
    assert 1 <= len(done.token_ids) <= max_tokens
    assert 1 + sum(step[2] for step in done.steps) == len(done.token_ids)
    assert list(answer.token_ids[: len(done.token_ids)]) == done.token_ids
    assert 0 not in done.token_ids[:-1]
    assert (done.finish_reason == "stop") == (done.token_ids[-1] == 0)
    for drafted, accepted, count in done.steps:
        assert 0 <= accepted <= drafted
        assert accepted <= count <= accepted + 1


def test_rounds_that_explain_too_few_tokens_are_refused() -> None:
    answer = LoopResult(token_ids=[1, 2, 3, 4], verify_steps=[VerifyStep(drafted=1, accepted=1)])
    with pytest.raises(EngineError, match="account for 3 of 4 tokens"):
        committed(answer, max_tokens=9, end_ids=frozenset())


def test_a_missing_stamp_is_noticed() -> None:
    answer = LoopResult(token_ids=[1, 2], verify_steps=[VerifyStep(drafted=1, accepted=0)])
    done = committed(answer, max_tokens=2, end_ids=frozenset())
    assert tokens_per_stamp(answer, done, ticks=2, engine="any") == [1, 1]
    with pytest.raises(EngineError, match="1 stamps, 2 expected"):
        tokens_per_stamp(answer, done, ticks=1, engine="any")


def test_stamps_of_an_overrun_keep_the_tokens_that_count() -> None:
    answer = LoopResult(
        token_ids=[1, 2, 3, 4, 5], verify_steps=[VerifyStep(drafted=3, accepted=3)], tokens_per_tick=[1, 2, 2]
    )
    done = committed(answer, max_tokens=4, end_ids=frozenset())
    assert tokens_per_stamp(answer, done, ticks=3, engine="any") == [1, 2, 1]


# The whole chain on a real model: what truly helps is found to help, what does not is not.


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small real model, unquantised, and two of the shipped sweep's prompts."""
    folder = tmp_path_factory.mktemp("run")
    shipped = (SHIPPED_DIR / "prompts" / "copying.jsonl").read_text().splitlines()
    chosen = [line for line in shipped if json.loads(line)["id"] in ("copy-functions", "tell-letter")]
    (folder / "prompts.jsonl").write_text("\n".join(chosen) + "\n")
    interlace(folder, "checkpoint", "import", "smollm2-f32")
    return folder


def interlace(folder: Path, *arguments: str) -> str:
    own = {"INTERLACE_DB": str(folder / "run.db"), "INTERLACE_CHECKPOINTS": str(folder / "checkpoints")}
    command = [sys.executable, "-m", "orchestrator", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | own, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr + done.stdout[-1500:]
    return done.stdout


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is the Linux linker's")
@pytest.mark.skipif(
    ctypes.util.find_library("openblas") is None and "CI" not in os.environ,
    reason="no OpenBLAS: apt-get install libopenblas0-pthread",
)
def test_copied_code_is_much_faster_and_prose_is_not(run_folder: Path) -> None:
    """Decoding is compared: mlx-dspark also reads a prompt in one pass fewer than mlx-lm."""
    interlace(
        run_folder, "run", "sweep=prompt_lookup", "workload=prompts", "workload.file=prompts.jsonl", "gate=none",
        "workload.max_tokens=24", "design.rounds=12", "design.aa=false", "design.bracket=false",
    )  # fmt: skip

    def ask(sql: str) -> dict[str, dict[str, Any]]:
        rows = json.loads(interlace(run_folder, "query", sql, "--format", "json"))
        return {row["prompt_class"]: row for row in rows}

    verdicts = ask("SELECT * FROM verdict_flat WHERE prompt_class IS NOT NULL")
    code, prose = verdicts["copied code"], verdicts["prose"]
    assert (code["verdict"], code["direction"]) == ("supported", "faster")
    assert code["ratio"] > 1.5
    assert 0.8 < prose["ratio"] < 1.15  # nothing proposed: what is left is the difference of the two packages' loops
    signs = ask(
        "SELECT prompt_class, min(engaged) AS engaged, min(useful) AS useful, avg(accept_length) AS accept_length "
        "FROM trial_flat WHERE kind = 'measured' AND engine = 'prompt_lookup' GROUP BY prompt_class"
    )
    assert signs["copied code"]["engaged"] == signs["prose"]["engaged"] == 1
    assert signs["copied code"]["useful"]
    assert signs["copied code"]["accept_length"] > 2
    assert signs["prose"]["accept_length"] == pytest.approx(1, abs=0.1)
