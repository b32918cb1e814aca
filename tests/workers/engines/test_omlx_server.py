"""oMLX over a scripted server: a real process that renames itself, with oMLX's files, log, counters and faults."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.running.trial import judge
from tests.workers import tiny_drafts
from tests.workers.other_pids import in_other_pids
from workers.engines.contract import FIRST, EngineCase, EngineContract, converse, engine_case
from workers.engines.omlx import Omlx
from workers.engines.omlx_dflash import OmlxDflash
from workers.engines.omlx_mtp import OmlxMtp
from workers.errors import EngineError, FaultKind
from workers.supervision.server_process import port_is_open

SCRIPT = Path(__file__).with_name("scripted_server.py")
GREEDY = {"name": "greedy", "temperature": 0.0}


@pytest.fixture(scope="module")
def make(checkpoint: dict[str, Any]) -> Any:
    def made(kind: type[Omlx], script: str, **settings: Any) -> Omlx:
        command = f"{sys.executable} {SCRIPT} {script}"
        draft = checkpoint if kind is OmlxDflash else None
        settings = {"command": command, "ready_s": 20.0, "first_token_s": 5.0, "idle_s": 5.0} | settings
        return kind(settings=settings, checkpoint=checkpoint, draft=draft, sampling=GREEDY)

    return made


@pytest.fixture(scope="module")
def case(make: Any) -> Iterator[EngineCase]:
    def engine(more: Mapping[str, Any]) -> Omlx:
        found: Omlx = make(OmlxDflash, "good", **more)
        return found

    with engine_case(engine, requested=True) as case:
        yield case


class TestContract(EngineContract):
    pass


def ask(engine: Omlx, count: int = 1, max_tokens: int = 12) -> list[Any]:
    return [converse(engine, FIRST, max_tokens=max_tokens)[0] for _ in range(count)]


def test_dflash_engages_with_the_requests_own_line(case: EngineCase) -> None:
    (only,) = ask(case.engine)  # type: ignore[arg-type]  # the case's engine is one of oMLX's
    assert only.evidence.engaged is True
    assert judge(only.result.evidence).fault is None
    assert (case.info.drafted_per_step, case.info.verify_width) == (7, 8)
    assert case.info.engine_setting == {"dflash_block_size": 8}


def test_its_process_is_known_although_it_renamed_itself(case: EngineCase) -> None:
    process = case.engine.process  # type: ignore[attr-defined]
    assert process.require_listener() == process.pid
    assert psutil.Process(process.pid).cmdline()[0].startswith("omlx-server")


@pytest.mark.parametrize(
    ("kind", "script", "first", "words"),
    [
        (OmlxDflash, "start_failed", "DFlash start failed for tiny: ", "Received 23 parameters not in model. Falling"),
        (OmlxMtp, "incompatible", "mtp_enabled=True for tiny but model is incompatible", "MTP path will be inactive"),
    ],
)
def test_a_silent_fallback_is_reported_in_the_servers_own_words(
    make: Any, kind: type[Omlx], script: str, first: str, words: str
) -> None:
    engine = make(kind, script)
    engine.load()
    try:
        (only,) = ask(engine)
        assert only.evidence.engaged is False
        fault = judge(only.result.evidence).fault
        assert fault is not None
        assert fault.startswith("not_engaged: ")
        assert words in fault
        assert only.result.tokens == 12  # the answer itself is a fine one
    finally:
        engine.close()


def test_an_eviction_spoils_its_own_and_all_later_requests(make: Any) -> None:
    engine = make(OmlxDflash, "evicted")
    engine.load()  # its first answer
    try:
        seen = [answer.evidence.engaged for answer in ask(engine, 4)]
        assert seen == [True, False, False, False]
    finally:
        engine.close()


def test_mtp_engaged_and_useful_are_two_answers(make: Any) -> None:
    for script, useful in (("good", True), ("useless", False)):
        engine = make(OmlxMtp, script, depth=1)
        info = engine.load()
        try:
            (only,) = ask(engine)
            assert (only.evidence.engaged, only.evidence.useful) == (True, useful)
            assert only.evidence.drafted == 12
            assert info.drafted_per_step == 1
        finally:
            engine.close()


def test_a_plain_arm_has_no_mechanism(make: Any) -> None:
    engine = make(Omlx, "good")
    info = engine.load()
    try:
        (only,) = ask(engine)
        assert (only.evidence.requested, only.evidence.engaged) == (False, False)
        assert info.drafted_per_step is None
        assert only.result.cached_tokens is None  # null is not 0
    finally:
        engine.close()


def test_without_counters_the_log_is_enough_and_the_load_reports_it(make: Any) -> None:
    engine = make(OmlxDflash, "silent_counters")
    engine.load()
    try:
        assert ask(engine)[0].evidence.engaged is True
    finally:
        engine.close()


def test_zero_tokens_are_a_failure(make: Any) -> None:
    engine = make(OmlxDflash, "zero_tokens")
    engine.load()
    try:
        with pytest.raises(EngineError, match="0 tokens") as failed:
            ask(engine)
        assert failed.value.kind is FaultKind.zero_tokens
    finally:
        engine.close()


def test_a_server_that_never_gets_ready_is_given_up_and_stopped(make: Any) -> None:
    engine = make(Omlx, "never_ready", ready_s=0.8)
    with pytest.raises(EngineError, match=r"not ready after 0\.8 s.*HTTP 503") as failed:
        engine.load()
    assert failed.value.kind is FaultKind.hung_load
    assert engine.process is None


def test_an_error_of_the_server_comes_with_the_cause_in_its_log(make: Any) -> None:
    words = r"HTTP 500: Internal server error.*; the last fault in its log: KeyError: 18"
    with pytest.raises(EngineError, match=words):
        make(OmlxMtp, "broken").load()
    engine = make(Omlx, "breaks_later")
    engine.load()
    try:
        with pytest.raises(EngineError, match=words):
            ask(engine)
    finally:
        engine.close()


def test_a_server_that_ends_says_its_last_words(make: Any) -> None:
    with pytest.raises(EngineError, match=r"oMLX has ended \(exit status 1\): no such model here"):
        make(Omlx, "dies").load()
    engine = make(Omlx, "dies_later")
    engine.load()
    try:
        ask(engine)
        with pytest.raises(EngineError, match="after 2 pieces of text"):
            ask(engine)
        with pytest.raises(EngineError, match=r"has ended \(exit status 3\)"):
            ask(engine)
    finally:
        engine.close()


def test_a_stubborn_server_and_its_child_are_gone_in_the_end(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.supervision.server_process.TERM_GRACE_S", 0.5)
    engine = make(Omlx, "stubborn")
    engine.load()
    process = engine.process
    children = psutil.Process(process.pid).children()
    assert children
    engine.close()
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    assert not port_is_open(process.spec.port)


def test_an_old_server_on_the_port_is_not_taken_for_ours(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launched one fails on the busy port, the old one answers readiness."""
    old = make(Omlx, "good")
    old.load()
    try:
        busy = old.process.spec.port
        monkeypatch.setattr("workers.engines.server_launch.free_port", lambda: busy)
        with pytest.raises(EngineError, match=r"has ended|is answered by process"):
            make(Omlx, "good").load()
        monkeypatch.undo()
        assert ask(old)[0].result.tokens == 12
    finally:
        old.close()


def test_settings_are_those_of_the_arm(make: Any, tmp_path: Path, checkpoint: dict[str, Any]) -> None:
    engine = make(
        OmlxDflash,
        "good",
        block_size=6,
        draft_bits=4,
        dflash_max_context=8192,
        prefix_cache_bytes=2**30,
        max_context=9000,
    )
    engine.load()
    try:
        base = engine.folder
        server = json.loads((base / "settings.json").read_text())
        model = json.loads((base / "model_settings.json").read_text())["models"]["tiny"]
        assert server["server"]["burst_decode_mode"] == "off"
        assert server["scheduler"]["chunked_prefill"] is False
        assert server["cache"]["hot_cache_max_size"] == "1024MB"
        assert (model["dflash_block_size"], model["dflash_draft_quant_weight_bits"]) == (6, 4)
        assert (model["dflash_max_ctx"], model["max_context_window"]) == (8192, 9000)
        assert model["dflash_in_memory_cache_max_bytes"] == 2**30
        assert Path(model["dflash_draft_model"]).is_absolute()
        assert model["mtp_enabled"] is False
    finally:
        engine.close()
    assert not base.exists()


def test_folders_belong_to_whoever_locks_them_whatever_pids_say(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker in a container shares the folder of temporary files, and its pid names nobody here."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
    with subprocess.Popen([*in_other_pids(), sys.executable, "-c", FOLDER_HOLDER, str(tmp_path)], **pipes) as holder:
        theirs = Path(holder.stdout.readline().strip())
        for folder in (theirs, *(tmp_path / name for name in (".interlace-server-left", "interlace-server-1-others"))):
            (folder / "models").mkdir(parents=True)
            os.utime(folder, (time.time() - 3600,) * 2)
        engine = make(Omlx, "good")
        engine.load()
        try:
            assert {*tmp_path.glob("*server*")} == {theirs, engine.folder, tmp_path / "interlace-server-1-others"}
        finally:
            engine.close()
        holder.stdin.close()
    assert {*tmp_path.glob("*server*")} == {tmp_path / "interlace-server-1-others"}


FOLDER_HOLDER = """
import sys
from pathlib import Path
from workers.files.leftovers import working_folder
with working_folder(Path(sys.argv[1]), "server") as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_wrong_settings_are_refused_in_one_line(make: Any) -> None:
    for kind, settings in ((Omlx, {"burst_decode": "fast"}), (OmlxDflash, {"block_size": 1}), (OmlxMtp, {"depth": 0})):
        with pytest.raises(EngineError) as refused:
            make(kind, "good", **settings).load()
        assert refused.value.kind is FaultKind.unsupported_setting
    with pytest.raises(EngineError, match=r"model is missing: attach needs"):
        make(Omlx, "good", attach="http://127.0.0.1:1").load()


@pytest.mark.parametrize("kind", [Omlx, OmlxDflash, OmlxMtp])
def test_the_end_of_the_text_cannot_be_ignored_and_is_not_ignored_silently(
    checkpoint: dict[str, Any], kind: type[Omlx]
) -> None:
    engine = kind(settings={}, checkpoint=checkpoint, draft=checkpoint, sampling=GREEDY | {"ignore_eos": True})
    with pytest.raises(
        EngineError, match=r"oMLX cannot ignore the end of the text; set sampling\.ignore_eos=false"
    ) as no:
        engine.load()
    assert no.value.kind is FaultKind.unsupported_setting


REAL = "INTERLACE_TEST_OMLX"  # the program `omlx` of an environment with flyto-mlx and mlx[cpu]: about 3 GB to install


@pytest.mark.slow
@pytest.mark.skipif(REAL not in os.environ, reason=f"heavy, by choice: {REAL}=/path/to/omlx of flyto-mlx")
def test_a_real_relative_of_omlx_decodes_plainly_and_its_dflash_falls_back(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """flyto-mlx cannot load the dflash-mlx that is published, and answers all the same."""
    monkeypatch.setenv("HOME", str(tmp_path))
    target = tiny_drafts.build_target(tmp_path / "target")
    draft = tiny_drafts.build_draft(tmp_path / "draft")
    settings = {"command": os.environ[REAL], "ready_s": 120.0}
    plain = Omlx(settings=settings, checkpoint=target, draft=None, sampling=GREEDY)
    info = plain.load()
    try:
        assert info.engine_version is not None
        (only,) = ask(plain)
        assert only.result.tokens == 12
        assert judge(only.result.evidence).fault is None
    finally:
        plain.close()
    fast = OmlxDflash(settings=settings, checkpoint=target, draft=draft, sampling=GREEDY)
    fast.load()
    try:
        (only,) = ask(fast)
        assert only.result.tokens == 12
        assert str(judge(only.result.evidence).fault).startswith("not_engaged: DFlash start failed for target: ")
    finally:
        fast.close()
