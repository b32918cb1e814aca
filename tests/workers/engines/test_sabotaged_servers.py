"""Attached servers that are shared, restarted, rotated and late: what never ran is never counted as engaged."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.workers import tiny_drafts
from tests.workers.environments import lent_package
from tests.workers.serving import QuietHandler, serving
from workers.catalogue.signs import load
from workers.engines.contract import FIRST, converse
from workers.engines.dflash_server import DflashServer
from workers.engines.openai_http import OpenaiHttp

GREEDY: dict[str, Any] = {"name": "greedy", "temperature": 0.0}
CHECKPOINT = {"name": "served", "source": "hub", "hub_id": "owner/model"}
PROMPT, TOKENS = 30, 4
THEIRS = {
    "llama_cpp": "draft acceptance = 0.64479 (  167 accepted /   259 generated), mean acceptance length =  2.92",
    "mlx_vlm": "Speculative decode: kind=dflash batch=1 tokens=128 accept=0.61 rounds=40 drafted=160",
    "ollama": 'msg="speculative decode stats" iterations=9 drafted=40 accepted=12 acceptance=0.3 avg_draft=4.4',
    "mlx_serve": "[spec-stats] mode=mtp attempts=120 accepts=90 avg_per_round=0.75 runtime_disabled=false",
    "omlx": "DFlash generation complete: 64 tokens, 38.2 tok/s, acceptance=67.2%, cycles=21, phases[prefill=0.1s]",
    "dflash_mlx": "[dflash] 98.1 tok/s | 84.7% accepted | 512 tokens | 5.2s | prompt: 40 tokens",
    "sglang": "Decode batch. #running-req: 1, #token: 108, token usage: 0.00, accept len: 2.17, cuda graph: True,",
    "vllm": "SpecDecoding metrics: Mean acceptance length: 3.49, Accepted: 92 tokens, Drafted: 259 tokens,",
}
# The same programs' lines for a request of ours; where they cannot be bound without counters, none.
OURS = {
    "llama_cpp": "   eval time =    14.42 ms /     4 tokens (x)\ndraft acceptance = 0.5 ( 2 accepted / 4 generated)",
    "mlx_vlm": "Speculative decode: kind=dflash batch=1 tokens=4 accept=2.00 rounds=2 drafted=4",
    "ollama": 'level=DEBUG msg="speculative decode stats" iterations=2 drafted=4 accepted=2 acceptance=0.5 avg_draft=2',
    "mlx_serve": "[spec-stats] mode=mtp attempts=2 accepts=2 avg_per_round=1.00 runtime_disabled=false",
    "omlx": "DFlash generation complete: 4 tokens, 38.2 tok/s, acceptance=50.0%, cycles=2, phases[prefill=0.1s]",
    "dflash_mlx": "[dflash] 98.1 tok/s | 50.0% accepted | 4 tokens | 0.1s | prompt: 30 tokens",
}


def mechanism_of(preset: str) -> str:
    return (
        "dflash" if preset in ("omlx", "dflash_mlx", "mlx_vlm") else "mtp" if preset == "mlx_serve" else "draft_model"
    )


@dataclass
class Fake:
    """A server whose requests never speculate unless a test says so."""

    during: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None
    extra: Mapping[str, Any] = field(default_factory=dict)
    metrics: str = ""
    log: Path = Path()

    def say(self, text: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{text}\n")


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    found = Fake(log=tmp_path / "server.log")
    found.log.write_text("started\n" * 40)
    return found


@pytest.fixture
def url(fake: Fake) -> Iterator[str]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            body = fake.metrics if self.path == "/metrics" else json.dumps({"data": [{"id": "m"}]})
            self.reply(body.encode(), "text/plain")

        def do_POST(self) -> None:
            self.body()
            fake.during()
            chunks: list[dict[str, Any]] = [{"choices": [{"delta": {"content": "a "}}]} for _ in range(TOKENS)]
            chunks.append({"choices": [{"delta": {}, "finish_reason": "length"}]} | dict(fake.extra))
            chunks.append({"choices": [], "usage": {"prompt_tokens": PROMPT, "completion_tokens": TOKENS}})
            text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
            fake.after()
            self.reply(f"{text}data: [DONE]\n\n".encode(), "text/event-stream")

    with serving(Handler) as address:
        yield address


def engaged(url: str, fake: Fake, preset: str, act: Callable[[], object] = lambda: None) -> tuple[bool | None, str]:
    """Return the evidence of the first measured request; `act` happens once the engine is loaded."""
    settings = {"url": url, "preset": preset, "mechanism": mechanism_of(preset), "log_file": str(fake.log)}
    engine = OpenaiHttp(settings=settings, checkpoint=CHECKPOINT, draft=None, sampling=GREEDY)
    engine.load()
    try:
        act()
        (only,) = converse(engine, FIRST, max_tokens=TOKENS)
    finally:
        engine.close()
    return only.evidence.engaged, only.evidence.text


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs' own patience is for programs that take time."""
    monkeypatch.setattr("workers.engines.openai_http.load_preset", lambda name: replace(load(name), wait_s=0.05))


@pytest.mark.parametrize("preset", THEIRS)
def test_another_clients_line_in_our_window_is_not_ours(url: str, fake: Fake, preset: str) -> None:
    fake.during = lambda: fake.say(THEIRS[preset])
    found, text = engaged(url, fake, preset)
    assert found is not True
    assert text


@pytest.mark.parametrize("preset", OURS)
def test_our_own_line_counts_where_nothing_interferes(url: str, fake: Fake, preset: str) -> None:
    fake.after = lambda: fake.say(OURS[preset])
    assert engaged(url, fake, preset)[0] is True


@pytest.mark.parametrize("preset", OURS)
def test_two_lines_of_our_size_are_unknown(url: str, fake: Fake, preset: str) -> None:
    def both() -> None:
        fake.say(OURS[preset])
        fake.say(OURS[preset])

    found, text = engaged(url, fake, preset, act=lambda: setattr(fake, "after", both))
    assert found is None
    assert "two lines" in text


@pytest.mark.parametrize("preset", OURS)
@pytest.mark.parametrize("how", ["truncated", "regrown", "renamed"])
def test_a_log_that_was_rotated_shows_nothing(url: str, fake: Fake, preset: str, how: str) -> None:
    def rotate() -> None:
        if how == "renamed":
            fake.log.rename(fake.log.with_suffix(".1"))
        fake.log.write_text(OURS[preset] + "\n" + ("more\n" * 400 if how == "regrown" else ""))

    found, text = engaged(url, fake, preset, act=lambda: setattr(fake, "during", rotate))
    assert found is None
    assert "log" in text


@pytest.mark.parametrize("preset", ["llama_cpp", "mlx_vlm"])
def test_an_answer_with_a_place_for_the_counts_outranks_the_log(url: str, fake: Fake, preset: str) -> None:
    fake.extra, fake.after = {"timings": {"predicted_n": TOKENS}}, lambda: fake.say(OURS[preset])
    found, text = engaged(url, fake, preset)
    assert found is None
    assert "the answer itself" in text
    fake.extra = {"timings": {"draft_n": 9, "draft_n_accepted": 2}}
    assert engaged(url, fake, preset)[0] is True


@pytest.mark.parametrize("preset", OURS)
def test_the_late_line_of_the_request_before_is_not_ours(url: str, fake: Fake, preset: str) -> None:
    """The request before has our size; its line comes while ours runs, which left none."""
    fake.during = lambda: None

    def late() -> None:
        fake.during = lambda: fake.say(OURS[preset])

    found, text = engaged(url, fake, preset, act=late)
    assert found is None
    assert "late sign of an earlier request" in text


def counters(drafted: int, generated: int, requests: int, started: float = 1.0) -> str:
    return (
        f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {drafted}\n'
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {drafted // 2}\n'
        f'vllm:generation_tokens_total{{engine="0"}} {generated}\n'
        f'vllm:request_success_total{{finished_reason="length"}} {requests}\n'
        f"process_start_time_seconds {started}\n"
    )


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (counters(104, 1000 + TOKENS, 11), True),
        (counters(120, 1000 + TOKENS + 60, 12), None),  # another client
        (counters(120, 1000 + TOKENS, 12), None),  # another client, whose tokens are not counted yet
        (counters(104, 1000 + TOKENS, 11, started=2.0), None),  # started anew, with higher counters
        (counters(4, TOKENS, 1), None),  # started anew, with lower ones
        (counters(140, 1000 + TOKENS, 11), None),  # more accepted than we have tokens
        (counters(100, 1000 + TOKENS + 60, 12), False),  # whoever ran: nobody drafted
        (counters(104, 1000, 10).replace("vllm:gen", "vllm:no").replace("vllm:req", "vllm:no"), None),
    ],
)
def test_counters_of_a_whole_server_are_ours_where_it_served_nobody_else(
    url: str, fake: Fake, after: str, expected: bool | None
) -> None:
    fake.metrics = counters(100, 1000, 10)
    found, _ = engaged(url, fake, "vllm", act=lambda: setattr(fake, "during", lambda: setattr(fake, "metrics", after)))
    assert found is expected


@pytest.mark.nightly
def test_stand_ins_in_processes_of_their_own_admit_nothing_wrong_and_everything_honest() -> None:
    script = Path(__file__).parents[3] / "benchmarks" / "sabotaged_servers.py"
    presets = "llama_cpp_old,ollama,omlx_mtp,vllm"
    command = [sys.executable, str(script), "--generations", "28", "--presets", presets]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert "wrong: 0 of 28" in done.stdout
    assert "honest: 4 of 4 counted" in done.stdout


SECOND_CLIENT = """
import json, sys, urllib.request
url, text, tokens = sys.argv[1:]
message = {"role": "user", "content": text}
body = {"model": "default_model", "messages": [message], "max_tokens": int(tokens), "stream": True}
request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
urllib.request.urlopen(request, timeout=60).read()
"""


@pytest.mark.nightly
def test_the_real_dflash_serve_with_a_second_client(tmp_path: Path) -> None:
    """Ours are short enough for its plain fast path; the second client's speculate."""
    target, draft = tiny_drafts.build_target(tmp_path / "target"), tiny_drafts.build_draft(tmp_path / "draft")
    with lent_package(tmp_path) as python:
        settings = {"server_python": python, "prefix_cache": False, "ready_s": 120.0, "fastpath_max_tokens": 16}
        engine = DflashServer(settings=settings, checkpoint=target, draft=draft, sampling=GREEDY)
        engine.load()
        try:
            (honest,) = converse(engine, FIRST, max_tokens=24)
            assert honest.evidence.engaged is True
            (alone,) = converse(engine, FIRST, max_tokens=12)
            assert alone.evidence.engaged is False
            url = f"{engine._connected().url}/v1/chat/completions"  # noqa: SLF001 - the test looks behind the engine
            for _ in range(3):
                with subprocess.Popen([sys.executable, "-c", SECOND_CLIENT, url, FIRST, "24"]) as other:
                    while other.poll() is None:
                        (ours,) = converse(engine, FIRST, max_tokens=12)
                        assert ours.evidence.engaged is not True
        finally:
            engine.close()
