"""A server that is already running: what it reports is used, what it does not report is unknown."""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.running.trial import judge
from tests.workers import tiny
from tests.workers.serving import QuietHandler, serving
from workers.catalogue.signs import names
from workers.engines.contract import FIRST, SECOND, converse
from workers.engines.openai_http import OpenaiHttp
from workers.errors import EngineError, FaultKind

GREEDY: dict[str, Any] = {"name": "greedy", "temperature": 0.0}
CHECKPOINT = {"name": "served", "source": "hub", "hub_id": "owner/model"}


@dataclass
class Script:
    """The server's answers, to be changed by a test."""

    text: tuple[str, ...] = ("One", " two", " three")
    usage: Mapping[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 60, "completion_tokens": 3, "total_tokens": 63}
    )
    extra: Mapping[str, Any] = field(default_factory=dict)  # of the last chunk
    models: tuple[str, ...] = ("the-model",)
    metrics: str = "vllm:spec_decode_num_draft_tokens_total 100\n"
    metrics_step: int = 0
    drafted: int = 100
    generated: int = 1000
    others: int = 0  # tokens that somebody else gets during a request
    log: Path | None = None
    log_line: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def url(script: Script) -> Iterator[str]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self.reply(
                    f"vllm:spec_decode_num_draft_tokens_total {script.drafted}\n"
                    f"vllm:spec_decode_num_accepted_tokens_total {script.drafted // 4}\n"
                    f"vllm:generation_tokens_total {script.generated}\n".encode(),
                    "text/plain",
                )
            else:
                self.reply(json.dumps({"data": [{"id": name} for name in script.models]}).encode(), "text/plain")

        def do_POST(self) -> None:
            script.bodies.append(json.loads(self.body()))
            script.keys.append(self.headers.get("Authorization"))
            chunks: list[dict[str, Any]] = [{"choices": [{"delta": {"content": word}}]} for word in script.text]
            chunks.append({"choices": [{"delta": {}, "finish_reason": "length"}]})
            chunks.append({"choices": [], "usage": script.usage} | dict(script.extra))
            script.drafted += script.metrics_step
            script.generated += len(script.text) + script.others
            if script.log is not None and script.log_line:
                with script.log.open("a") as log:
                    log.write(f"{script.log_line}\n")
            events = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
            self.reply(events + b"data: [DONE]\n\n", "text/event-stream")

    with serving(Handler) as address:
        yield address


def engine(url: str, sampling: Mapping[str, Any] = GREEDY, **settings: Any) -> OpenaiHttp:
    return OpenaiHttp(settings={"url": url} | settings, checkpoint=CHECKPOINT, draft=None, sampling=sampling)


def loaded(url: str, **settings: Any) -> OpenaiHttp:
    found = engine(url, **settings)
    found.load()
    return found


def test_what_it_answers_is_taken_and_what_it_does_not_say_is_unknown(url: str) -> None:
    attached = engine(url)
    info = attached.load()
    (only,) = converse(attached, FIRST)
    assert only.result.text == "One two three"
    assert (only.result.tokens, only.result.prompt_tokens, only.result.cached_tokens) == (3, 60, None)
    assert len(only.stamps_us) == 3
    assert only.result.token_ids == ()
    assert "is unknown" in info.notes[0]
    sign = only.evidence
    assert (sign.requested, sign.engaged) == (False, None)  # nobody knows what this server does
    assert judge(only.result.evidence).fault is None


def test_a_requested_mechanism_without_a_sign_is_no_result(url: str) -> None:
    (only,) = converse(loaded(url, mechanism="draft_model", preset="rapid_mlx"), FIRST)
    assert str(judge(only.result.evidence).fault).startswith("engagement_unknown: ")


def test_the_only_model_is_taken_and_of_several_one_must_be_named(url: str, script: Script) -> None:
    assert loaded(url).model == "the-model"
    script.models = ("a", "b")
    with pytest.raises(EngineError, match=r"serves 2 models; set engine\.model to one of a, b"):
        engine(url).load()
    loaded(url, model="b")
    assert script.bodies[-1]["model"] == "b"


def test_the_key_is_read_from_the_environment_and_never_shown(
    url: str, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-123")
    attached = engine(url, api_key_env="MY_KEY")
    info = attached.load()
    assert script.keys == ["Bearer sk-123"]
    assert "sk-123" not in f"{info} {attached.settings}"
    with pytest.raises(EngineError, match="no variable OTHER"):
        engine(url, api_key_env="OTHER").load()
    with pytest.raises(EngineError, match="is not the name of a variable") as refused:
        engine(url, api_key_env="sk-proj/abc").load()
    assert "sk-proj" not in str(refused.value)


def test_evidence_in_the_answer(url: str, script: Script) -> None:
    script.extra = {"timings": {"draft_n": 8, "draft_n_accepted": 5, "predicted_per_second": 99.0, "cache_n": 4}}
    (only,) = converse(loaded(url, mechanism="draft_model", preset="llama_cpp", block_size=5), FIRST)
    assert (only.evidence.engaged, only.evidence.drafted, only.evidence.accepted) == (True, 8, 5)
    assert (only.result.engine_decode_tps, only.result.cached_tokens) == (99.0, 4)


def test_evidence_as_the_difference_of_metrics(url: str, script: Script) -> None:
    attached = loaded(url, mechanism="draft_model", preset="vllm")
    script.metrics_step = 8
    (only,) = converse(attached, FIRST)
    assert (only.evidence.engaged, only.evidence.drafted, only.evidence.accepted) == (True, 8, 2)
    script.others = 1
    (only,) = converse(attached, FIRST)
    assert only.evidence.engaged is None
    assert "another client used the server" in only.evidence.text
    script.metrics_step = 0
    (only,) = converse(attached, FIRST)
    assert only.evidence.engaged is False
    assert only.evidence.text == "/metrics: drafted +0, accepted +0"


def test_evidence_in_a_log_file_is_that_of_the_request(url: str, script: Script, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    line = (
        "       eval time =    1403.42 ms /     3 tokens (   21.59 ms per token,    46.32 tokens per second)\n"
        "      total time =    1523.71 ms /    18 tokens\n"
        "draft acceptance rate = 0.5 (  {} accepted /   {} generated)"
    )
    log.write_text(line.format(900, 999) + "\n")
    script.log = log
    attached = loaded(url, mechanism="draft_model", preset="llama_cpp", log_file=str(log))
    (silent,) = converse(attached, FIRST)
    assert silent.evidence.engaged is None  # the old line belongs to another request
    script.log_line = line.format(2, 6)
    (late,) = converse(attached, FIRST)
    assert late.evidence.engaged is None
    assert "late sign of an earlier request" in late.evidence.text
    attached = loaded(url, mechanism="draft_model", preset="llama_cpp", log_file=str(log))
    (only,) = converse(attached, FIRST)
    assert (only.evidence.drafted, only.evidence.accepted) == (6, 2)


def test_evidence_in_what_a_command_prints(url: str, script: Script, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.touch()
    script.log, script.log_line = log, "fast kernel used for 3 tokens"
    sign = {
        "id": "fast",
        "where": "log",
        "meaning": "engaged",
        "mechanism": "kernel",
        "pattern": r"fast kernel .* (?P<generated>\d+) tokens",
    }
    evidence = {"title": "mine", "wait_s": 3.0, "absence": {"kernel": "not_engaged"}, "sign": [sign]}
    follow = (
        "import sys, time\n"
        "with open(sys.argv[1]) as log:\n"
        "    while True:\n"
        "        print(log.read(), end='', flush=True); time.sleep(0.02)\n"
    )
    script_file = tmp_path / "follow.py"
    script_file.write_text(follow)
    command = f"{sys.executable} {script_file} {log}"
    attached = loaded(url, mechanism="kernel", evidence=evidence, log_command=command)
    try:
        (only,) = converse(attached, FIRST)
        assert only.evidence.engaged is True
        assert only.evidence.text == "fast kernel used for 3 tokens"
    finally:
        attached.close()


def test_without_usage_a_tokenizer_counts_and_without_both_nobody_does(
    url: str, script: Script, tmp_path: Path
) -> None:
    script.usage = None
    attached = loaded(url)
    with pytest.raises(EngineError, match="chunks are not tokens") as failed:
        converse(attached, FIRST)
    assert failed.value.remedy.startswith("set engine.tokenizer")
    tiny.build(tmp_path / "tiny")
    counted = loaded(url, tokenizer=str(tmp_path / "tiny"))
    (only,) = converse(counted, FIRST)
    assert only.result.tokens == len("One two three")  # a token a byte
    assert only.result.flags == ["tokens_by_tokenizer", "stamps_apportioned"]
    assert only.result.prompt_tokens > len(FIRST)


def test_a_prompt_that_the_server_counts_differently_is_flagged(url: str, tmp_path: Path) -> None:
    tiny.build(tmp_path / "tiny")
    (only,) = converse(loaded(url, tokenizer=str(tmp_path / "tiny")), FIRST)
    assert "prompt_tokens_differ" in only.result.flags


def test_a_cache_that_knew_the_prompt_before_the_conversation_is_flagged(url: str, script: Script) -> None:
    assert script.usage is not None
    script.usage = {**script.usage, "prompt_tokens_details": {"cached_tokens": 55}}
    first, second = converse(loaded(url), FIRST, SECOND)
    assert first.result.flags == ["cached_before_conversation"]
    assert second.result.flags == []


def test_a_server_that_swaps_the_model_is_flagged(url: str, script: Script) -> None:
    attached = loaded(url)
    script.extra = {"model": "other-7b"}
    (swapped,) = converse(attached, FIRST)
    assert "other_model" in swapped.result.flags
    script.extra = {"model": "third-1b"}
    (again,) = converse(attached, FIRST)
    assert {"other_model", "model_changed"} <= set(again.result.flags)


def test_zero_tokens_are_a_failure(url: str, script: Script) -> None:
    attached = loaded(url)
    script.text, script.usage = (), {"prompt_tokens": 3, "completion_tokens": 0}
    with pytest.raises(EngineError) as failed:
        converse(attached, FIRST)
    assert failed.value.kind is FaultKind.zero_tokens


def test_the_request_carries_what_was_asked_and_no_more(url: str, script: Script) -> None:
    converse(loaded(url, body={"cache_prompt": False}), FIRST, max_tokens=7, seed=5)
    body = script.bodies[-1]
    assert body["messages"] == [{"role": "user", "content": FIRST}]
    assert (body["max_tokens"], body["temperature"], body["cache_prompt"]) == (7, 0.0, False)
    assert body["stream_options"] == {"include_usage": True}
    assert not {"seed", "top_p", "top_k", "min_p", "ignore_eos", "chat_template_kwargs"} & set(body)
    options = {"temperature": 0.7, "top_p": 0.9, "ignore_eos": True, "template_options": {"enable_thinking": False}}
    warm = engine(url, GREEDY | options)
    warm.load()
    converse(warm, FIRST, seed=5)
    body = script.bodies[-1]
    assert (body["seed"], body["top_p"], body["ignore_eos"]) == (5, 0.9, True)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_without_a_chat_template_the_text_goes_as_it_is(url: str, script: Script) -> None:
    bare = engine(url, GREEDY | {"chat_template": False})
    bare.load()
    converse(bare, FIRST)
    assert script.bodies[-1]["prompt"] == FIRST
    assert "messages" not in script.bodies[-1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"preset": "llamacpp"}, "no evidence preset is named 'llamacpp'"),
        ({"evidence": {"sign": [{"id": "a"}]}}, "missing"),
        ({"evidence": {"title": "x"}, "preset": "vllm"}, "excludes"),
        ({"log_file": "/no/such/file"}, "is not a file"),
        ({"log_file": "/dev/null", "log_command": "true"}, "excludes"),
        ({"tokenizer": "/no/such/folder"}, "is not a folder"),
        ({"url": "localhost"}, "give an address such as"),
        ({"url": "http://localhost:99999"}, "give an address such as"),
        ({"modell": "x"}, "does not know modell"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(url: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineError, match=words) as refused:
        engine(settings.pop("url", url), **settings).load()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("preset", names())
def test_every_preset_can_be_attached_with(url: str, preset: str) -> None:
    (only,) = converse(loaded(url, preset=preset), FIRST)
    assert judge(only.result.evidence).fault is None


class Started(OpenaiHttp):
    """The same server, had we started it without a mechanism."""

    knows_plain = True


def test_silence_shows_plain_decoding_only_of_a_server_that_we_started(url: str) -> None:
    ours = Started(settings={"url": url}, checkpoint=CHECKPOINT, draft=None, sampling=GREEDY)
    ours.load()
    for attached, engaged in ((ours, False), (loaded(url), None)):
        (only,) = converse(attached, FIRST)
        assert (only.evidence.requested, only.evidence.engaged, only.evidence.useful) == (False, engaged, engaged)
