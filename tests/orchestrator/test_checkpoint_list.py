"""`checkpoint list`: what can be named, what the hub's cache holds, and which servers answer."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from orchestrator.commands.checkpoint_list import Attached, engines_of
from tests.orchestrator.shells import Shell
from tests.workers.weights.hubs import TINY, hub_here
from workers.http.answering import answering
from workers.weights.dummies import SHAPES, save
from workers.weights.hub import survey
from workers.weights.hub_download import fetch


@contextmanager
def server(body: bytes, *, status: int = 200) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            self.send_response(status if self.path == "/v1/models" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.server_address[1]}"
    finally:
        listening.shutdown()
        listening.server_close()


MODELS = json.dumps({"data": [{"id": "qwen3:8b"}, {"id": "llama3"}]}).encode()


def test_servers_that_answer_are_found_and_others_are_not() -> None:
    silent = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # listens, and never answers
    nobody = f"http://127.0.0.1:{silent.server_address[1]}"
    with server(MODELS) as good, server(b"<html>", status=200) as page, server(b"", status=500) as broken:
        found = answering([good, good, page, broken, nobody, "http://127.0.0.1:9", "not an address"], timeout_s=0.3)
    silent.server_close()
    assert {url: each.models for url, each in found.items()} == {good: ("qwen3:8b", "llama3")}


@pytest.mark.parametrize(("owner", "engines"), [("omlx", ["a"]), ("vllm", ["b"]), ("somebody", ["a", "b"])])
def test_servers_of_one_port_are_told_apart_by_the_owner_of_their_models(owner: str, engines: list[str]) -> None:
    with server(json.dumps({"data": [{"id": "m", "owned_by": owner}]}).encode()) as url:
        found = answering([url])[url]
    of_port = [Attached(name=name, url=url, owned_by=own) for name, own in (("a", "omlx"), ("b", "vllm"))]
    assert engines_of(found, [*of_port, Attached(name="c", url="http://127.0.0.1:9", owned_by=owner)]) == engines


def test_the_list_shows_the_cache_and_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(SHAPES["tiny"], tmp_path / "tiny")
    files = {file.name: file.read_bytes() for file in (tmp_path / "tiny").iterdir() if file.is_file()}
    others = {"me/tiny": files, "me/cut": dict(TINY)}
    with hub_here(monkeypatch, tmp_path / "cache", others):
        for name in others:
            folder = fetch(survey(name))
        (folder / "tokenizer.json").unlink()  # of the last one
    shell = Shell(tmp_path)
    (tmp_path / "lab" / "engine").mkdir(parents=True)
    with server(MODELS) as url:
        yaml = f"defaults: [openai_http, _self_]\nurl: {url}\n"
        (tmp_path / "lab" / "engine" / "mine.yaml").write_text(yaml)
        said = shell("checkpoint", "list", "--config-dir", "lab").stdout
    rows = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    assert "complete" in rows["me/tiny"]
    assert "aaaaaaaaaaaa" in rows["me/tiny"]
    assert "incomplete" in rows["me/cut"]
    assert "mine" in rows[url]
    assert "qwen3:8b, llama3" in rows[url]


def test_inspect_takes_a_place(tmp_path: Path) -> None:
    save(SHAPES["tiny"], tmp_path / "my tiny")
    said = Shell(tmp_path)("checkpoint", "inspect", "./my tiny").stdout
    assert "llama" in said
    assert "no such file or folder" in Shell(tmp_path)("checkpoint", "inspect", "./absent", code=2).stderr
