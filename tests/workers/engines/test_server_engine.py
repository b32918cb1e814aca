"""Every engine over HTTP makes the same of one answer: tested with a client that answers from a script."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from workers.catalogue.binding import ProcessIdentity
from workers.catalogue.signs import read
from workers.engines import server_signs
from workers.engines.base import LoadInfo, TurnRequest, TurnResult
from workers.engines.server import ServerEngine
from workers.engines.server_request import prompt_sha256
from workers.errors import EngineError, ProbeUnsupported
from workers.http.refusals import TooLate
from workers.http.reply import Reply
from workers.protocol import Regenerate, ScoreTokens, Served, TimePasses
from workers.supervision import served_versions

ASKED = [{"role": "user", "content": "one two"}]
PRESET = read("mine", {"figures": {"decode_tps": "timings.rate"}})


@dataclass
class ScriptedClient:
    """Streams `text`, one tick per word, and `response`; answers a post with `posted`."""

    text: str = "a b c"
    response: dict[str, Any] = field(default_factory=dict)
    posted: Callable[[], Any] = lambda: None
    url: str = "http://127.0.0.1:9"
    ends: frozenset[Any] = frozenset()

    def stream(self, path: str, body: bytes, reply: Reply, clock: Callable[[], int]) -> Iterator[None]:
        reply.answer.response |= self.response
        for word in self.text.split():
            reply.answer.text += f"{word} "
            reply.answer.pieces.append(len(word) + 1)
            yield
        reply.answer.finish_reason, reply.answer.done = "stop", True

    def post(self, path: str, body: Mapping[str, Any], *, limit_s: float) -> Any:
        assert (body["stream"], body["max_tokens"], body["logprobs"]) == (False, 8, True)
        return self.posted()

    def close(self) -> None:
        pass


class Scripted(ServerEngine):
    """An engine on a scripted client."""

    client = ScriptedClient()

    def _open(self) -> LoadInfo:
        self.model = "m"
        self._connect(self.client, PRESET)  # type: ignore[arg-type]
        return LoadInfo(served=Served(python="3.12", versions={"mlx": "0.32.0"}, source="s"))

    def _require_server(self) -> None:
        pass

    def whole_choice(self, sha256: str) -> Mapping[str, Any]:
        return self._whole_choice(ASKED, sha256, budget_s=1.5, max_tokens=8, logprobs=True)


class Port:
    """A server's port, whose process is replaced when a test says so."""

    process = 1
    python = "3.12"

    def __init__(self, url: str) -> None:
        pass

    def processes(self) -> frozenset[ProcessIdentity]:
        return frozenset({ProcessIdentity(pid=self.process, started_at=1.0)} if self.process else ())

    def pids(self) -> list[int]:
        return [self.process]

    def connections(self) -> None:
        return None

    def company(self, before: None, after: None, *, ours: frozenset[Any]) -> None:
        return None


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> type[Port]:
    class Fresh(Port):
        pass

    monkeypatch.setattr(server_signs, "PortWatch", Fresh)
    monkeypatch.setattr(
        served_versions,
        "of_processes",
        lambda pids: Served(python=Fresh.python, versions={"mlx": "0.32.0"}, source="process"),
    )
    return Fresh


def engine_with(client: ScriptedClient) -> Scripted:
    engine = Scripted(settings={}, checkpoint={}, draft=None, sampling={"name": "greedy", "temperature": 0.0})
    engine.client = client
    engine.load()
    return engine


def answered(engine: ServerEngine, *, turn: int = 0) -> TurnResult:
    engine.prepare(TurnRequest(messages=ASKED, turn=turn, max_tokens=64, seed=0))
    for _ in engine.stream():
        pass
    return engine.finish()


def usage(*, prompt: int = 10, completion: int = 3, cached: int | None = None) -> dict[str, Any]:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": completion, **details}}


@pytest.mark.parametrize(
    ("cached", "turn", "flagged"), [(None, 0, False), (0, 0, False), (5, 0, False), (6, 0, True), (6, 1, False)]
)
def test_a_first_prompt_that_comes_mostly_from_a_cache_is_flagged(cached: int | None, turn: int, flagged: bool) -> None:
    result = answered(engine_with(ScriptedClient(response=usage(cached=cached))), turn=turn)
    assert ("cached_before_conversation" in result.flags) is flagged
    assert result.cached_tokens == cached


@pytest.mark.parametrize(
    ("text", "tokens", "rate", "expected"),
    [("a b c", 3, 50.0, 50.0), ("a b", 2, 50.0, 50.0), ("a", 1, 50.0, None), ("a b", 2, 0, None)],
)
def test_a_servers_own_decode_rate_needs_two_tokens(
    text: str, tokens: int, rate: float, expected: float | None
) -> None:
    response = usage(completion=tokens) | {"timings": {"rate": rate}}
    assert answered(engine_with(ScriptedClient(text, response))).engine_decode_tps == expected


@pytest.mark.parametrize(
    ("process", "python", "refused"), [(1, "3.13", False), (2, "3.12", False), (2, "3.13", True), (0, "3.13", False)]
)
def test_a_server_started_anew_with_other_versions_ends_its_arm(
    port: type[Port], process: int, python: str, refused: bool
) -> None:
    engine = engine_with(ScriptedClient(response=usage()))
    port.process, port.python = process, python
    if refused:
        with pytest.raises(EngineError, match="started anew since this arm was loaded, with other versions"):
            answered(engine)
    else:
        assert answered(engine).completion_tokens == 3
        port.python = "3.14"  # the same process as before is not looked at again
        assert answered(engine).completion_tokens == 3


def test_probes_of_whole_passes_are_not_supported_over_http() -> None:
    engine = engine_with(ScriptedClient())
    scored = ScoreTokens(
        request_id="r", messages=[], prompt_sha256="", token_ids=[], rivals=[], widths=[], most_likely=1, budget_s=1.0
    )
    again = Regenerate(request_id="r", messages=[], prompt_sha256="", max_tokens=1, budget_s=1.0)
    timed = TimePasses(
        request_id="r",
        messages=[],
        token_ids=[],
        context_tokens=1,
        widths=[],
        draft=False,
        repeats=1,
        seed=0,
        budget_s=1.0,
    )
    with pytest.raises(ProbeUnsupported, match="sends text, not tokens"):
        engine.score(scored)
    with pytest.raises(ProbeUnsupported, match="sends text, not tokens"):
        engine.regenerate(again)
    with pytest.raises(ProbeUnsupported, match="not single passes"):
        engine.time_passes(timed)


def too_late() -> Any:
    raise TooLate("http://127.0.0.1:9")


def reply(status: int, body: Any) -> Callable[[], Any]:
    def post() -> Any:
        def json() -> Any:
            if isinstance(body, str):
                raise ValueError("not JSON")
            return body

        return SimpleNamespace(status_code=status, text=str(body), json=json)

    return post


@pytest.mark.parametrize(
    ("posted", "sha256", "words"),
    [
        (reply(200, {"choices": [{"text": "a"}]}), "0" * 64, "another prompt here than the one that was answered"),
        (too_late, None, "did not answer within the 1.5 s that were left"),
        (reply(404, "<html>not here</html>"), None, "HTTP 404: <html>not here"),
        (reply(200, {"choices": []}), None, "HTTP 200"),
        (reply(200, ["a list"]), None, "HTTP 200"),
        (reply(200, {"choices": ["a"]}), None, "no choice"),
    ],
)
def test_a_repeated_answer_that_cannot_be_had_is_unsupported_with_its_reason(
    posted: Callable[[], Any], sha256: str | None, words: str
) -> None:
    engine = engine_with(ScriptedClient(posted=posted))
    with pytest.raises(ProbeUnsupported, match=words):
        engine.whole_choice(sha256 or prompt_sha256(None, ASKED))


def test_a_repeated_answer_is_one_request_for_the_same_prompt() -> None:
    engine = engine_with(ScriptedClient(posted=reply(200, {"choices": [{"text": "a"}, {"text": "b"}]})))
    assert engine.whole_choice(prompt_sha256(None, ASKED)) == {"text": "a"}
