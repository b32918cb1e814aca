"""The real mlx_lm.server on a tiny model: launched, proved, asked, stopped."""

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.workers import tiny
from workers.engines.base import TurnResult
from workers.engines.contract import FIRST, SECOND, EngineCase, EngineContract, converse, engine_case
from workers.engines.mlx_lm import MlxLm
from workers.engines.mlx_lm_server import MlxLmServer
from workers.engines.mlx_lm_server_draft import MlxLmServerDraft
from workers.errors import EngineError, FaultKind, ProbeUnsupported
from workers.protocol import Regenerate, ScoreTokens
from workers.supervision.server_process import port_is_open

GREEDY = {"name": "greedy", "temperature": 0.0}
MESSAGES = [{"role": "user", "content": FIRST}]
pytestmark = pytest.mark.slow


def server(checkpoint: dict[str, Any], settings: Mapping[str, Any], **sampling: Any) -> MlxLmServer:
    return MlxLmServer(settings=settings, checkpoint=checkpoint, draft=None, sampling=GREEDY | sampling)


@pytest.fixture(scope="module")
def case(checkpoint: dict[str, Any]) -> Iterator[EngineCase]:
    with engine_case(lambda more: server(checkpoint, more), requested=False) as case:
        yield case


class TestContract(EngineContract):
    pass


def test_it_answers_what_the_package_answers_in_process(case: EngineCase, checkpoint: dict[str, Any]) -> None:
    here = MlxLm(settings={}, checkpoint=checkpoint, draft=None, sampling=GREEDY)
    here.load()
    (own,) = converse(here, FIRST, max_tokens=24)
    (served,) = converse(case.engine, FIRST, max_tokens=24)
    assert served.result.prompt_sha256 == own.result.prompt_sha256
    assert served.result.prompt_tokens == own.result.prompt_tokens
    assert served.result.tokens == own.result.tokens == 24
    assert "prompt_tokens_differ" not in served.result.flags


def test_the_version_is_the_servers_own(case: EngineCase) -> None:
    assert case.info.engine_version
    assert case.info.notes[0].startswith(f"server: {case.info.engine_version}-")


def test_three_stamps_in_order(case: EngineCase) -> None:
    (only,) = converse(case.engine, FIRST)
    result = only.result
    assert result.stamps_of == "chunk"
    assert result.first_byte_us is not None
    assert 0 < result.first_byte_us <= only.stamps_us[0] + 1000
    assert result.first_visible_us is not None
    assert only.stamps_us[0] <= result.first_visible_us + 1000


def test_a_conversation_keeps_its_prefix_and_the_next_one_does_not(case: EngineCase) -> None:
    first, second = converse(case.engine, FIRST, SECOND)
    assert second.result.cached_tokens is not None
    assert second.result.cached_tokens > 0.5 * first.result.prompt_tokens
    (fresh,) = converse(case.engine, FIRST)
    assert fresh.result.cached_tokens == 0
    assert fresh.result.flags.count("cached_before_conversation") == 0


def test_the_process_that_answers_is_ours_and_is_gone_after_closing(checkpoint: dict[str, Any]) -> None:
    engine = server(checkpoint, {"prefix_cache": False})
    engine.load()
    process = engine.process
    assert process is not None
    assert process.require_listener() in {process.pid, *(p.pid for p in psutil.Process(process.pid).children())}
    first, second = converse(engine, FIRST, FIRST)
    assert (first.result.cached_tokens, second.result.cached_tokens) == (0, 0)
    engine.close()
    engine.close()
    assert not psutil.pid_exists(process.pid)
    assert not port_is_open(process.spec.port)


def test_a_model_that_it_cannot_load_fails_with_its_own_words(checkpoint: dict[str, Any], tmp_path: Path) -> None:
    broken = tiny.copy(checkpoint, tmp_path / "broken")
    config = tmp_path / "broken" / "config.json"
    config.write_text(config.read_text().replace('"llama"', '"no_such_model"'))
    engine = server(broken, {"ready_s": 30.0, "first_token_s": 20.0})
    with pytest.raises(EngineError, match=r"no_such_model|generation thread died|has ended"):
        engine.load()
    assert engine.process is None


def test_what_the_server_cannot_do_is_refused_before_it_starts(checkpoint: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match="cannot ignore the end") as refused:
        server(checkpoint, {}, ignore_eos=True).load()
    assert refused.value.kind is FaultKind.unsupported_setting
    with pytest.raises(EngineError, match="dtype=float16"):
        server(checkpoint | {"dtype": "float16"}, {}).load()
    with pytest.raises(EngineError, match="no_such_python"):
        server(checkpoint, {"server_python": "/no_such_python"}).load()


def test_with_a_draft_engagement_is_unknown(checkpoint: dict[str, Any]) -> None:
    engine = MlxLmServerDraft(settings={"block_size": 3}, checkpoint=checkpoint, draft=checkpoint, sampling=GREEDY)
    info = engine.load()
    try:
        assert (info.drafted_per_step, info.verify_width) == (2, 3)
        assert info.engine_setting == {"num_draft_tokens": 2}
        (only,) = converse(engine, FIRST, max_tokens=16)
        assert only.evidence.requested
        assert only.evidence.engaged is None
        assert only.result.tokens == 16
    finally:
        engine.close()


def test_a_block_of_one_drafts_nothing(checkpoint: dict[str, Any]) -> None:
    engine = MlxLmServerDraft(settings={"block_size": 1}, checkpoint=checkpoint, draft=checkpoint, sampling=GREEDY)
    with pytest.raises(EngineError, match="at least 2"):
        engine.load()


# ---- probes: what was measured as text, with its tokens ----


def told_in_process(checkpoint: dict[str, Any], tokens: int) -> tuple[MlxLm, TurnResult]:
    here = MlxLm(settings={}, checkpoint=checkpoint, draft=None, sampling=GREEDY)
    here.load()
    (only,) = converse(here, FIRST, max_tokens=tokens)
    return here, only.result


def regenerate(prompt_sha256: str, tokens: int = 24) -> Regenerate:
    return Regenerate(request_id="r", messages=MESSAGES, prompt_sha256=prompt_sha256, max_tokens=tokens, budget_s=60.0)


def score(prompt_sha256: str, token_ids: list[int], *rivals: int) -> ScoreTokens:
    return ScoreTokens(
        request_id="s",
        messages=MESSAGES,
        prompt_sha256=prompt_sha256,
        token_ids=token_ids,
        rivals=list(rivals),
        widths=[],
        most_likely=5,
        budget_s=60.0,
    )


def test_an_answer_is_repeated_with_its_tokens(case: EngineCase, checkpoint: dict[str, Any]) -> None:
    _, own = told_in_process(checkpoint, 24)
    (served,) = converse(case.engine, FIRST, max_tokens=24)
    again = case.engine.regenerate(regenerate(served.result.prompt_sha256))
    assert again.text == served.result.text
    assert again.token_ids == list(own.token_ids)
    assert len(again.logprobs) == 24
    assert all(logprob <= 0 for logprob in again.logprobs)


def test_a_place_is_scored_as_in_process(case: EngineCase, checkpoint: dict[str, Any]) -> None:
    here, own = told_in_process(checkpoint, 12)
    reference = here.score(score(own.prompt_sha256, list(own.token_ids[:8]), own.token_ids[8]))
    rivals = [reference.top[0].token_id, reference.top[3].token_id]
    found = case.engine.score(score(own.prompt_sha256, list(own.token_ids[:8]), *rivals))
    assert [each.token_id for each in found.top] == [each.token_id for each in reference.top]
    assert [each.token_id for each in found.rivals] == rivals
    assert found.top[0].logprob == pytest.approx(reference.top[0].logprob, abs=1e-3)
    assert found.rivals[1].logprob == pytest.approx(reference.top[3].logprob, abs=1e-3)
    assert (found.top[0].text, found.context_text) == (reference.top[0].text, reference.context_text)
    assert found.changes == []


def test_what_cannot_be_repeated_is_refused_with_its_reason(case: EngineCase) -> None:
    (served,) = converse(case.engine, FIRST, max_tokens=8)
    prompt = served.result.prompt_sha256
    with pytest.raises(ProbeUnsupported, match="another prompt"):
        case.engine.regenerate(regenerate("0" * 64))
    with pytest.raises(ProbeUnsupported, match="other tokens"):
        case.engine.score(score(prompt, [1, 2, 3], 4))
    first = case.engine.regenerate(regenerate(prompt, 8)).token_ids
    with pytest.raises(ProbeUnsupported, match="not among the 10"):
        case.engine.score(score(prompt, first[:4], first[4], 10**6))


def test_a_server_that_does_not_answer_costs_the_budget_and_no_more(case: EngineCase) -> None:
    """It is stopped meanwhile: else a slow reader may find the answer there when its time has run out."""
    (served,) = converse(case.engine, FIRST, max_tokens=8)
    request = regenerate(served.result.prompt_sha256)
    process = case.engine.process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(ProbeUnsupported, match=r"did not answer within the 0\.2 s"):
            case.engine.regenerate(replace(request, budget_s=0.2))
    finally:
        os.kill(process.pid, signal.SIGCONT)
    assert case.engine.regenerate(request).token_ids


COUNTING = """
import sys
if "server" in sys.orig_argv:
    import importlib
    loop = importlib.import_module("mlx_lm.generate")  # the package has a function of this name too
    speculate = loop.speculative_generate_step
    def counted(*arguments, **named):
        with open({path!r}, "a") as counts:
            counts.write("speculated\\n")
        return speculate(*arguments, **named)
    loop.speculative_generate_step = counted
"""


def test_a_draft_still_speculates_where_an_answer_is_repeated(
    checkpoint: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says nothing of its draft, so the calls of its loop are counted."""
    counts = tmp_path / "counts"
    (tmp_path / "sitecustomize.py").write_text(COUNTING.format(path=str(counts)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    engine = MlxLmServerDraft(settings={"block_size": 3}, checkpoint=checkpoint, draft=checkpoint, sampling=GREEDY)
    engine.load()
    try:
        (only,) = converse(engine, FIRST, max_tokens=16)
        before = counts.read_text().count("speculated")
        again = engine.regenerate(regenerate(only.result.prompt_sha256, 16))
        assert counts.read_text().count("speculated") == before + 1
        assert again.text == only.result.text
        assert len(again.token_ids) == 16
    finally:
        engine.close()
