"""The versions of a server's arm are the server's: of its interpreter, its own words, or unknown with a reason."""

import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import select

from db import models
from db.session import open_database, read_only
from orchestrator.judging import judge_run
from orchestrator.plan import Arm, Deadlines
from orchestrator.planning.weights import find_weights
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.recorder import create_run
from orchestrator.stored_run import StoredRun
from tests.workers import tiny
from workers.machine.host import read_host

from .plans import OPEN_GATE, SAMPLING, plan, prompt

DEADLINES = Deadlines(load_s=120, first_token_s=60, inter_token_s=30, total_s=120, teardown_s=15)
SCRIPT = Path(__file__).parents[1] / "workers" / "engines" / "scripted_server.py"
# Speaks the protocol, and has no MLX.
SERVE = r"""
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply(json.dumps({"data": [{"id": "m"}]}), "application/json")
    def do_POST(self):
        tokens = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["max_tokens"]
        chunks = [{"choices": [{"delta": {"content": " a"}}]} for _ in range(tokens)]
        chunks += [{"choices": [{"delta": {}, "finish_reason": "length"}]}]
        chunks += [{"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": tokens}}]
        text = "".join(f"data: {json.dumps(each)}\n\n" for each in chunks)
        self.reply(text + "data: [DONE]\n\n", "text/event-stream")
    def reply(self, text, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *_):
        pass
server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def other_python(tmp_path: Path) -> str:
    """An interpreter whose environment holds another MLX."""
    venv.create(tmp_path / "other", symlinks=True)
    (site,) = (tmp_path / "other" / "lib").glob("python*/site-packages")
    for name, version in (("mlx", "0.32.3"), ("mlx_lm", "0.31.3")):
        folder = site / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    (site / "more.pth").write_text(str(Path(psutil.__file__).parents[1]))
    return str(tmp_path / "other" / "bin" / "python")


@pytest.fixture
def plain_url() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.kill()


def arm(name: str, target: str, checkpoint: dict[str, Any], **settings: Any) -> Arm:
    engine = {"_target_": f"workers.engines.{target}", "name": name} | settings
    return Arm(name=name, checkpoint=checkpoint, engine=engine, sampling=SAMPLING, draft=None)


def test_a_servers_versions_are_its_own_and_other_ones_confound(
    tmp_path: Path, other_python: str, plain_url: str
) -> None:
    target = tiny.build(tmp_path / "tiny") | {"bits": None}
    arms = (
        arm("in_process", "mlx_lm.MlxLm", target),
        arm("launched", "omlx.Omlx", target, command=f"{other_python} {SCRIPT} good"),
        arm("attached", "openai_http.OpenaiHttp", target, url=plain_url),
    )
    planned = plan(*arms, prompts=(prompt(),), rounds=2, aa=False, bracket=False, warmups=0, deadlines=DEADLINES)
    planned = replace(planned, gate=OPEN_GATE)
    database = open_database(f"sqlite:///{tmp_path / 'test.db'}")
    recorder = create_run(
        database, planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path / "logs"
    )
    run_recorded(recorder, observer=Observer())
    with read_only(database) as session:
        rows = session.execute(
            select(models.Arm.name, models.Environment)
            .join(models.Trial, models.Trial.arm_id == models.Arm.id)
            .join(models.Environment, models.Environment.id == models.Trial.environment_id)
            .where(models.Trial.kind == "measured")
        ).all()
    found = {name: environment for name, environment in rows}
    assert found["in_process"].server is None
    assert found["in_process"].mlx_version not in (None, "0.32.3")
    launched, attached = found["launched"], found["attached"]
    assert (launched.mlx_version, launched.mlx_lm_version) == ("0.32.3", "0.31.3")
    assert launched.server == f"interpreter {other_python}"
    assert (attached.mlx_version, attached.mlx_lm_version) == (None, None)
    assert "has loaded no MLX" in attached.missing_reason
    compared = {one.treatment: one for one in judge_run(StoredRun.load(database, recorder.run_id)).result.comparisons}
    assert compared["launched"].verdict == "confounded"
    assert {"mlx_version_differs", "mlx_lm_version_differs"} <= {each.code for each in compared["launched"].reasons}
    notes = {each.code: each.text for each in compared["attached"].reasons}
    assert "has loaded no MLX" in notes["mlx_in_one_only"]
