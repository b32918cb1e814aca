"""The real mlx_lm.server on a tiny model: launched, proved, asked, stopped."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.workers import tiny
from tests.workers.engine_contract import FIRST, SECOND, EngineCase, EngineContract, converse, engine_case
from workers.engines.mlx_lm import MlxLm
from workers.engines.mlx_lm_server import MlxLmServer
from workers.engines.mlx_lm_server_draft import MlxLmServerDraft
from workers.errors import EngineError, FaultKind
from workers.server_process import port_is_open

GREEDY = {"name": "greedy", "temperature": 0.0}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tiny.build(tmp_path_factory.mktemp("target") / "tiny")


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
    process = engine._process  # noqa: SLF001 - the test looks behind the engine
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
    assert engine._process is None  # noqa: SLF001


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
