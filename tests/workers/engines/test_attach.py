"""Engines attached to a foreign server: never launched nor ended, and nothing is claimed beyond its reports."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.plan import Deadlines
from orchestrator.running.trial import judge
from workers.engines.contract import FIRST, SECOND, converse
from workers.engines.mlx_lm_server import MlxLmServer
from workers.engines.mlx_lm_server_draft import MlxLmServerDraft
from workers.engines.omlx import Omlx
from workers.engines.omlx_dflash import OmlxDflash
from workers.engines.openai_http import OpenaiHttp
from workers.engines.server_launch import LaunchedEngine
from workers.errors import EngineError, FaultKind
from workers.protocol import Generate, Load
from workers.supervision.journal import read_journal
from workers.supervision.server_process import HOST, free_port, port_is_open
from workers.supervision.worker_process import WorkerProcess, WorkerSpec

SCRIPT = Path(__file__).with_name("scripted_server.py")
GREEDY = {"name": "greedy", "temperature": 0.0}
DEADLINES = Deadlines(load_s=60, first_token_s=60, inter_token_s=60, total_s=60, teardown_s=20)
KEY = "INTERLACE_TEST_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server that is none of ours."""

    url: str
    log: Path
    process: "subprocess.Popen[bytes]"


def run(folder: Path, command: list[str], port: int) -> Iterator[Running]:
    log = folder / "server.log"
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            deadline = time.monotonic() + 60
            while not port_is_open(port) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            yield Running(url=f"http://{HOST}:{port}", log=log, process=process)
        finally:
            process.kill()


@pytest.fixture
def omlx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """One whose counters cannot be read: only its log shows what it did."""
    yield from run_omlx(tmp_path, monkeypatch, "silent_counters")


def run_omlx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Iterator[Running]:
    monkeypatch.setenv(KEY, "secret")
    models = tmp_path / "models"
    (models / "tiny").mkdir(parents=True)
    (models / "tiny" / "config.json").write_text("{}")
    (tmp_path / "settings.json").write_text(json.dumps({"auth": {"api_key": "secret"}}))
    own = {"models": {"tiny": {"dflash_enabled": True, "mtp_enabled": False}}}
    (tmp_path / "model_settings.json").write_text(json.dumps(own))
    port = free_port()
    command = [sys.executable, str(SCRIPT), script, "serve", "--base-path", str(tmp_path)]
    yield from run(tmp_path, [*command, "--model-dir", str(models), "--port", str(port)], port)


def attached(kind: type[Omlx], running: Running, checkpoint: dict[str, Any], **settings: Any) -> Omlx:
    settings = {"attach": running.url, "model": "tiny", "api_key_env": KEY, "first_token_s": 5.0} | settings
    return kind(settings=settings, checkpoint=checkpoint, draft=checkpoint, sampling=GREEDY)


def require_untouched(engine: LaunchedEngine, running: Running) -> None:
    """Nothing was started for it, and its end leaves the server as it was."""
    assert engine.process is None
    assert engine.folder is None
    engine.close()
    assert running.process.poll() is None
    assert port_is_open(int(running.url.rpartition(":")[2]))


def test_what_an_attached_server_does_not_report_is_unknown(omlx: Running, checkpoint: dict[str, Any]) -> None:
    engine = attached(OmlxDflash, omlx, checkpoint, block_size=4)
    info = engine.load()
    assert (info.engine_version, info.drafted_per_step, info.verify_width) == (None, None, None)
    assert info.engine_setting == {}
    assert info.notes[0].startswith(f"attached to {omlx.url}")
    (only,) = converse(engine, FIRST)
    assert only.result.tokens == 12
    assert (only.evidence.requested, only.evidence.engaged, only.evidence.useful) == (True, None, None)
    assert str(judge(only.result.evidence).fault).startswith("engagement_unknown: ")
    assert only.result.cached_tokens is None
    require_untouched(engine, omlx)


def test_with_its_log_the_requests_own_line_decides(omlx: Running, checkpoint: dict[str, Any]) -> None:
    engine = attached(OmlxDflash, omlx, checkpoint, log_file=str(omlx.log))
    engine.load()
    (only,) = converse(engine, FIRST)
    assert only.evidence.engaged is True
    assert judge(only.result.evidence).fault is None
    require_untouched(engine, omlx)


def test_of_an_attached_server_silence_does_not_show_plain_decoding(omlx: Running, checkpoint: dict[str, Any]) -> None:
    engine = attached(Omlx, omlx, checkpoint)
    engine.load()
    (only,) = converse(engine, FIRST)
    assert (only.evidence.requested, only.evidence.engaged) == (False, None)
    require_untouched(engine, omlx)


def test_the_wrong_key_or_no_server_is_reported_and_nothing_is_started(
    omlx: Running, checkpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "wrong")
    with pytest.raises(EngineError, match="401"):
        attached(Omlx, omlx, checkpoint).load()
    nobody = attached(Omlx, omlx, checkpoint, attach=f"http://{HOST}:{free_port()}")
    with pytest.raises(EngineError):
        nobody.load()
    require_untouched(nobody, omlx)


@pytest.mark.parametrize(("script", "engaged"), [("good", True), ("silent_counters", None)])
def test_the_preset_of_a_running_omlx_logs_in_for_its_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: dict[str, Any], script: str, engaged: bool | None
) -> None:
    with contextmanager(run_omlx)(tmp_path, monkeypatch, script) as running:
        settings = {"url": running.url, "preset": "omlx", "model": "tiny", "api_key_env": KEY, "mechanism": "dflash"}
        engine = OpenaiHttp(settings=settings, checkpoint=checkpoint, draft=None, sampling=GREEDY)
        engine.load()
        (only,) = converse(engine, FIRST)
        engine.close()
    assert only.evidence.engaged is engaged


def test_a_worker_that_attaches_has_no_server_to_journal_or_to_end(
    omlx: Running, checkpoint: dict[str, Any], tmp_path: Path
) -> None:
    load = Load(
        target="workers.engines.omlx_dflash.OmlxDflash",
        settings={"attach": omlx.url, "model": "tiny", "api_key_env": KEY, "log_file": str(omlx.log)},
        checkpoint=checkpoint,
        draft=checkpoint,
        sampling=GREEDY,
    )
    spec = WorkerSpec(run_id="r", arm="a", log_path=tmp_path / "a.log", journal_path=tmp_path / "workers.jsonl")
    ask = Generate(request_id="1", turns=[[{"role": "user", "content": "hello"}]], max_tokens=8, seed=0)
    with WorkerProcess(spec) as worker:
        loaded = worker.load(load, DEADLINES)
        assert (loaded.engine_version, loaded.drafted_per_step, loaded.verify_width) == (None, None, None)
        (answer,) = worker.generate(ask, DEADLINES)
        assert answer.evidence[0].engaged is True
        assert worker.pid is not None
        assert psutil.Process(worker.pid).children() == []
        assert [entry.pid for entry in read_journal(spec.journal_path)] == [worker.pid]
        report = worker.stop(10.0)
    assert (report.returncode, report.signals) == (0, ())
    assert omlx.process.poll() is None


# The real mlx_lm.server, started by hand.


@pytest.fixture(scope="module")
def mlx_server(checkpoint: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    port = free_port()
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", checkpoint["path"], "--host", HOST]
    yield from run(tmp_path_factory.mktemp("server"), [*command, "--port", str(port)], port)


@pytest.mark.slow
def test_mlx_lm_server_attached(mlx_server: Running, checkpoint: dict[str, Any]) -> None:
    settings = {"attach": mlx_server.url, "server_python": "/no/such/python"}
    engine = MlxLmServer(settings=settings, checkpoint=checkpoint, draft=None, sampling=GREEDY)
    info = engine.load()
    assert info.notes[0].startswith(f"attached to {mlx_server.url}")
    assert info.engine_version  # its own answers state it
    first, second = converse(engine, FIRST, SECOND)
    assert first.result.tokens == second.result.tokens == 12
    assert (first.evidence.requested, first.evidence.engaged) == (False, None)
    # Nobody may make it forget: a repeated first prompt comes from its cache, and is flagged.
    (again,) = converse(engine, FIRST)
    assert again.result.cached_tokens
    assert "cached_before_conversation" in again.result.flags
    require_untouched(engine, mlx_server)


@pytest.mark.slow
def test_a_draft_of_an_attached_mlx_lm_server_is_unknown(mlx_server: Running, checkpoint: dict[str, Any]) -> None:
    settings = {"attach": mlx_server.url, "block_size": 4}
    engine = MlxLmServerDraft(settings=settings, checkpoint=checkpoint, draft=checkpoint, sampling=GREEDY)
    info = engine.load()
    assert (info.drafted_per_step, info.verify_width, info.engine_setting) == (None, None, {})
    (only,) = converse(engine, FIRST)
    assert (only.evidence.requested, only.evidence.engaged) == (True, None)
    require_untouched(engine, mlx_server)


@pytest.mark.slow
def test_what_an_attached_server_cannot_do_is_refused_as_for_a_launched_one(
    mlx_server: Running, checkpoint: dict[str, Any]
) -> None:
    sampling = GREEDY | {"ignore_eos": True}
    engine = MlxLmServer(settings={"attach": mlx_server.url}, checkpoint=checkpoint, draft=None, sampling=sampling)
    with pytest.raises(EngineError, match="cannot ignore the end") as refused:
        engine.load()
    assert refused.value.kind is FaultKind.unsupported_setting
    require_untouched(engine, mlx_server)
