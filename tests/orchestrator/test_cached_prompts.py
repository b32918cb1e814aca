"""A server that keeps prompts from one request to the next: whole runs with real worker processes."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from db import models
from db.session import open_database, read_only
from orchestrator.errors import InputError
from orchestrator.plan import Arm, Plan
from orchestrator.planning.weights import find_weights
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.recorder import create_run
from orchestrator.running.trial import from_cache
from workers.machine.host import read_host

from .plans import OPEN_GATE, SAMPLING, plan, prompt
from .records import generation

WORDS = ("One", " two", " three", " four")
PROMPT_TOKENS = 50


@dataclass
class Caching:
    """A server with a prefix cache; what it takes against it differs from server to server."""

    kept: dict[tuple[str, str], int] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    cached_of_any: int = 0  # a template's beginning, say

    def cached(self, body: dict[str, Any]) -> int:
        text = json.dumps(body["messages"])
        salt = str(body.get("cache_salt"))
        longest = max((len(known) for of, known in self.kept if of == salt and text.startswith(known)), default=0)
        self.kept[salt, text[:-1]] = 1
        if body.get("cache_prompt") is False or not longest:
            return self.cached_of_any
        return PROMPT_TOKENS - 1


@pytest.fixture
def server() -> Iterator[Caching]:
    state = Caching()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.bodies.append(body)
            details = {"prompt_tokens_details": {"cached_tokens": state.cached(body)}}
            usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": len(WORDS)} | details
            chunks: list[dict[str, Any]] = [{"choices": [{"delta": {"content": word}}]} for word in WORDS]
            chunks += [{"choices": [{"delta": {}, "finish_reason": "length"}]}, {"choices": [], "usage": usage}]
            data = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(data + b"data: [DONE]\n\n")

        def log_message(self, *_: object) -> None:
            return

    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True).start()
    state.url = f"http://127.0.0.1:{found.server_address[1]}"
    yield state
    found.shutdown()
    found.server_close()


def two_arms(server: Caching, preset: str, **design: Any) -> Plan:
    """The same server twice, under two names."""
    arms = [
        Arm(
            name=name,
            checkpoint={"name": "served", "source": "hub", "hub_id": "o/m", "bits": None, "draft": None},
            engine={
                "_target_": "workers.engines.openai_http.OpenaiHttp",
                "name": "openai_http",
                "url": server.url,
                "model": "m",
                "preset": preset,
                "first_token_s": 5.0 + number,
            },
            sampling=SAMPLING,
            draft=None,
        )
        for number, name in enumerate(("a", "b"))
    ]
    prompts = (replace(prompt(turns=2), max_tokens=len(WORDS)),)
    settings = {"rounds": 2, "aa": False, "bracket": False, "warmups": 0, "evidence": "record"} | design
    return replace(plan(*arms, prompts=prompts, **settings), gate=OPEN_GATE)


def run(planned: Plan, tmp_path: Path) -> list[tuple[str, str | None]]:
    """The measured trials' states."""
    database = open_database(f"sqlite:///{tmp_path / 'test.db'}")
    recorder = create_run(database, planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path)
    run_recorded(recorder, observer=Observer())
    with read_only(database) as session:
        trials = session.scalars(select(models.Trial).filter_by(kind="measured")).all()
        return [(trial.status, trial.error_kind) for trial in trials]


def test_a_server_that_keeps_prompts_is_refused_before_the_first_round(server: Caching, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cached_prompt: prompt quick/0: the conversation began with 49 of 50") as no:
        run(two_arms(server, "none", cached_share_max=0.1), tmp_path)
    assert "engine.prefix_cache=false" in str(no.value)
    assert "design.cached_share_max=null" in str(no.value)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["llama_cpp", "vllm"])
def test_a_server_that_can_begin_afresh_does(server: Caching, preset: str, tmp_path: Path) -> None:
    assert run(two_arms(server, preset, cached_share_max=0.1), tmp_path) == [("done", None)] * 4
    later = [body for body in server.bodies if len(body["messages"]) > 1]
    assert all("cache_prompt" not in body for body in later)  # within a conversation its cache may help


@pytest.mark.slow
def test_trials_that_began_from_a_cache_do_not_count(server: Caching, tmp_path: Path) -> None:
    """It begins to keep prompts only when the run is under way."""
    server.kept = {}
    planned = two_arms(server, "none", cached_share_max=0.1, on_preflight_failure="stop")
    told: list[dict[str, Any]] = server.bodies

    real = server.cached
    server.cached = lambda body: real(body) if len(told) > 7 else 0  # type: ignore[method-assign]  # the script
    states = run(planned, tmp_path)
    assert ("invalid", "cached_prompt") in states


@pytest.mark.slow
def test_asked_for_it_is_measured_all_the_same(server: Caching, tmp_path: Path) -> None:
    assert run(two_arms(server, "none", cached_share_max=None), tmp_path) == [("done", None)] * 4


def test_the_rule_counts_what_the_conversation_explains() -> None:
    one = prompt(turns=2)
    first = generation(turn=0, prompt_tokens=100, cached_tokens=10)
    later = generation(turn=1, prompt_tokens=200, cached_tokens=100 + first.tokens)
    assert from_cache([(one, first), (one, later)], share_max=0.1) is None
    assert from_cache([(one, first), (one, replace(later, cached_tokens=None))], share_max=0.1) is None
    told = from_cache([(one, first), (one, replace(later, cached_tokens=199))], share_max=0.1)
    assert told is not None
    assert "turn 2 had 199 of 200" in told
    begun = from_cache([(one, replace(first, cached_tokens=11))], share_max=0.1)
    assert begun is not None
    assert begun.startswith("cached_prompt: ")
    assert from_cache([(one, replace(first, cached_tokens=100))], share_max=None) is None
