"""The real `dflash serve` in an environment of its own, on tiny models: real drafting, fallbacks and evidence."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.running.trial import judge
from tests.workers import tiny_drafts
from tests.workers.environments import lent_package
from workers.engines import dflash_server
from workers.engines.contract import FIRST, SECOND, EngineCase, EngineContract, converse, engine_case
from workers.engines.dflash_server import DflashServer
from workers.errors import EngineError, FaultKind

GREEDY: dict[str, Any] = {"name": "greedy", "temperature": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dflash")


@pytest.fixture(scope="module")
def target(folder: Path) -> dict[str, Any]:
    return tiny_drafts.build_target(folder / "target")


@pytest.fixture(scope="module")
def draft(folder: Path) -> dict[str, Any]:
    return tiny_drafts.build_draft(folder / "draft")


@pytest.fixture(scope="module")
def python(folder: Path) -> Iterator[str]:
    with lent_package(folder) as python:
        yield python


def server(target: dict[str, Any], draft: dict[str, Any] | None, python: str, **settings: Any) -> DflashServer:
    settings = {"server_python": python, "prefix_cache": False, "ready_s": 60.0} | settings
    return DflashServer(settings=settings, checkpoint=target, draft=draft, sampling=GREEDY)


@pytest.fixture(scope="module")
def case(target: dict[str, Any], draft: dict[str, Any], python: str) -> Iterator[EngineCase]:
    def make(more: Mapping[str, Any]) -> DflashServer:
        return server(target, draft, python, **more)

    with engine_case(make, requested=True) as case:
        yield case


@pytest.mark.nightly
class TestContract(EngineContract):
    pass


@pytest.mark.nightly
def test_a_short_request_drafts_and_the_server_reports_it(case: EngineCase) -> None:
    (only,) = converse(case.engine, FIRST, max_tokens=24)
    assert only.evidence.engaged is True
    assert only.evidence.source.startswith("dflash serve, ")
    assert judge(only.result.evidence).fault is None
    assert case.info.engine_version is not None
    assert (case.info.drafted_per_step, case.info.verify_width) == (tiny_drafts.BLOCK - 1, tiny_drafts.BLOCK)


@pytest.mark.nightly
def test_the_fast_path_is_no_engagement_whatever_the_banner_says(
    target: dict[str, Any], draft: dict[str, Any], python: str
) -> None:
    engine = server(target, draft, python, fastpath_max_tokens=256, block_size=4)
    info = engine.load()
    try:
        assert info.engine_setting == {"verify_len_cap": 4}
        (only,) = converse(engine, FIRST, max_tokens=16)
        assert only.evidence.engaged is False
        assert str(judge(only.result.evidence).fault).startswith("not_engaged: [dflash] fast-path AR | max_tokens=16")
    finally:
        engine.close()


@pytest.mark.nightly
def test_a_draft_of_a_newer_version_ends_the_load_at_once(target: dict[str, Any], folder: Path, python: str) -> None:
    """The server prints the 23 parameters that it does not know, and then neither serves nor ends."""
    newer = tiny_drafts.build_draft(folder / "newer", version=2)
    with pytest.raises(EngineError, match="Received 23 parameters not in model") as failed:
        server(target, newer, python).load()
    assert failed.value.kind is FaultKind.load_failed
    assert "take another draft" in str(failed.value)


# ---- without a server ----


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    found: dict[str, str | None] = {"dflash-mlx": "0.1.8", "mlx-lm": "0.31.3", "mlx": "0.32.2"}
    monkeypatch.setattr(dflash_server, "require_installed", lambda *_, **__: found)
    return found


def command_of(engine: DflashServer, folder: Path) -> list[str]:
    from workers.engines.base import parse_settings
    from workers.sampling import Sampling

    engine._sampling = parse_settings(Sampling, engine.sampling, engine="test")  # noqa: SLF001 - load() does this
    return list(engine._command(1234, folder).command)  # noqa: SLF001 - the command, without starting it


@pytest.mark.usefixtures("versions")
def test_the_command_carries_the_settings(target: dict[str, Any], draft: dict[str, Any], tmp_path: Path) -> None:
    plain = " ".join(command_of(server(target, draft, "python"), tmp_path))
    assert "--verify-mode dflash --fastpath-max-tokens 0 --no-prefix-cache --prompt-cache-size 0" in plain
    assert "--no-prefix-cache-l2" in plain
    assert "--draft-quant none" in plain
    assert f"--model {target['path']} --draft-model {draft['path']}" in plain
    settings = {"draft_bits": 4, "prefix_cache": True, "prefix_cache_bytes": 999, "max_context": 4096, "block_size": 6}
    full = " ".join(command_of(server(target, draft, "python", **settings), tmp_path))
    assert "--prefix-cache --prefix-cache-max-entries 1 --no-prefix-cache-l2" in full
    assert "--prefix-cache-max-bytes 999 --verify-len-cap 6" in full
    assert "--draft-quant w4:gs64 --dflash-max-ctx 4096" in full


LONG = "Count the words of this sentence, which goes on for quite a while before it ends. " * 3


@pytest.mark.nightly
def test_no_prompt_outlives_its_conversation_nor_the_arm(
    target: dict[str, Any], draft: dict[str, Any], python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a conversation the prefix cache works; the same prompt asked anew, or of a fresh server, is all new."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    cached: list[list[int | None]] = []
    for _ in range(2):
        engine = server(target, draft, python, prefix_cache=True)
        engine.load()
        try:
            for _ in range(2):
                answered = converse(engine, LONG, SECOND, max_tokens=24)
                cached.append([each.result.cached_tokens for each in answered])
                assert "cached_before_conversation" not in answered[0].result.flags
        finally:
            engine.close()
    assert [turns[0] for turns in cached] == [0, 0, 0, 0]
    assert all(turns[1] for turns in cached)
    assert not list(home.rglob("*prefix*"))


@pytest.mark.nightly
@pytest.mark.parametrize("copy_drafts", [True, False])
def test_a_draft_that_is_always_wrong_is_not_useful_whatever_is_copied(
    folder: Path, python: str, copy_drafts: bool
) -> None:
    """The target repeats the prompt's last token for ever, which a copy from the context gets right each time."""
    echo = tiny_drafts.build_target(folder / f"echo_{copy_drafts}", echoes=True)
    wrong = tiny_drafts.build_draft(folder / f"wrong_{copy_drafts}", constant=5)
    engine = server(echo, wrong, python, copy_drafts=copy_drafts)
    engine.load()
    try:
        (only,) = converse(engine, FIRST, max_tokens=40)
    finally:
        engine.close()
    assert judge(only.result.evidence).useful is not True
    copied = next(sign for sign in only.result.evidence if sign.mechanism == "copy_drafts")
    assert copied.requested is False
    if copy_drafts:
        assert copied.drafted
        assert copied.engaged is None
    else:
        assert (copied.engaged, copied.drafted, copied.useful) == (False, 0, False)
        assert (only.evidence.engaged, only.evidence.useful) == (True, False)


def test_packages_that_do_not_fit_are_named_with_the_way_out(
    target: dict[str, Any], draft: dict[str, Any], tmp_path: Path, versions: dict[str, str | None]
) -> None:
    versions["mlx-lm"] = "0.32.2"
    with pytest.raises(EngineError, match=r"does not run with mlx-lm 0\.32\.2.*mlx-lm<0\.32") as failed:
        command_of(server(target, draft, "python"), tmp_path)
    assert failed.value.kind is FaultKind.load_failed


@pytest.mark.usefixtures("versions")
def test_without_a_draft_nothing_starts(target: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"set engine\.draft"):
        command_of(server(target, None, "python"), tmp_path)


@pytest.mark.parametrize(
    ("settings", "words"), [({"block_size": 1}, "at least 2"), ({"verify_mode": "fast"}, "one of dflash, adaptive")]
)
def test_wrong_settings_are_refused(
    target: dict[str, Any], draft: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(EngineError, match=words) as refused:
        server(target, draft, "python", **settings).load()
    assert refused.value.kind is FaultKind.unsupported_setting
