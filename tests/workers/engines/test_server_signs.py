"""The reader of a server's signs on a clock of its own: how long it waits, what it owes, what it does not believe."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from workers.catalogue.binding import Usage
from workers.catalogue.matches import Seen
from workers.catalogue.signs import Preset, read
from workers.engines import server_signs
from workers.engines.server_signs import Asked, SignReader, load_preset, usage_of
from workers.errors import EngineError, FaultKind
from workers.http.answer import Answer
from workers.http.refusals import StatusError
from workers.supervision.server_process import ServerLog

DRAFTED = Asked(mechanism="kernel", model="m", version=None, knows_plain=True)
PLAIN = Asked(mechanism=None, model="m", version=None, knows_plain=True)
ANSWER = Answer(text="a", response={"id": "chatcmpl-1", "usage": {"prompt_tokens": 5, "completion_tokens": 8}})
DONE = "fast kernel wrote 8 tokens"
SIGN = {"where": "log", "mechanism": "kernel"}
PRESET = read(
    "mine",
    {
        "wait_s": 1.0,
        "absence": {"kernel": "not_engaged"},
        "sign": [
            SIGN | {"id": "fast", "meaning": "engaged", "pattern": r"kernel wrote (?P<generated>\d+)"},
            SIGN | {"id": "off", "meaning": "fell_back", "pattern": r"kernel is off: .*"},
        ],
    },
)


@dataclass
class Clock:
    """`time` for the reader: sleeping moves it on, and what was due by then happens."""

    now_s: float = 100.0
    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        for at, happen in [each for each in self.due if each[0] <= self.now_s]:
            self.due.remove((at, happen))
            happen()


@dataclass
class Reply:
    status_code: int
    text: str = ""

    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class StubClient:
    """Answers from a table; an address that is not there is not reached."""

    replies: dict[str, Reply] = field(default_factory=dict)
    url: str = "http://127.0.0.1:9"
    posted: list[tuple[str, Any]] = field(default_factory=list)
    ends: frozenset[Any] = frozenset()

    def get(self, address: str) -> Reply:
        if address not in self.replies:
            raise EngineError(FaultKind.generation_failed, "not reached")
        return self.replies[address]

    def post(self, address: str, body: Any) -> Reply:
        self.posted.append((address, body))
        return self.replies[address]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(server_signs, "time", clock)
    return clock


class QuietPort:
    """A port with this client's connections alone, which `PortWatch` sees only of a server that listens."""

    def __init__(self, url: str) -> None:
        pass

    def processes(self) -> frozenset[Any]:
        return frozenset()

    def connections(self) -> None:
        return None

    def company(self, before: None, after: None, *, ours: frozenset[Any]) -> None:
        return None


@pytest.fixture(autouse=True)
def quiet_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_signs, "PortWatch", QuietPort)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_text("started\n")
    return path


def reader(log: Path | None = None, *, client: StubClient | None = None, preset: Preset = PRESET) -> SignReader:
    return SignReader(client or StubClient(), preset, None if log is None else ServerLog(log))  # type: ignore[arg-type]


def add(log: Path, line: str) -> Callable[[], None]:
    def append() -> None:
        with log.open("a") as opened:
            opened.write(f"{line}\n")

    return append


def await_signs(signs: SignReader, asked: Asked = DRAFTED) -> Seen:
    return signs.await_signs(ANSWER, {}, signs.look_around(), asked)


# ---- waiting for a request's sign ----


def test_a_sign_that_is_there_is_not_waited_for(clock: Clock, log: Path) -> None:
    signs = reader(log)
    surroundings = signs.look_around()
    add(log, DONE)()
    seen = signs.await_signs(ANSWER, {}, surroundings, DRAFTED)
    assert (seen.lines, clock.now_s) == ([f"{DONE}\n"], 100.0)
    assert signs.evidence(seen, DRAFTED)[0].engaged is True
    signs.settle(DRAFTED)  # nothing is owed: the log is not waited for
    assert (await_signs(signs, PLAIN).window.owed, clock.now_s) == ([], 100.0)


def test_a_late_sign_is_waited_for_as_long_as_the_preset_says(clock: Clock, log: Path) -> None:
    signs = reader(log)
    clock.due = [(100.9, add(log, DONE))]
    assert await_signs(signs).lines == [f"{DONE}\n"]
    assert clock.now_s == pytest.approx(100.9, abs=0.03)
    later = reader(log)
    clock.due = [(clock.now_s + 1.5, add(log, DONE))]
    before_s = clock.now_s
    assert await_signs(later).lines == []
    assert clock.now_s - before_s == pytest.approx(1.0, abs=0.03)


def test_plain_decoding_waits_for_no_sign_and_owes_none(clock: Clock, log: Path) -> None:
    signs = reader(log)
    assert await_signs(signs, PLAIN).window.owed == []
    assert clock.now_s == 100.0
    assert await_signs(signs, PLAIN).window.owed == []


def test_a_request_without_a_sign_owes_one_for_half_a_minute(clock: Clock, log: Path) -> None:
    signs = reader(log)
    await_signs(signs)
    owed = Usage(prompt=5, generated=8, ids=frozenset({"chatcmpl-1"}))
    assert await_signs(signs).window.owed == [owed]
    clock.now_s += 31.0
    signs.settle(DRAFTED)
    add(log, DONE)()
    assert signs.await_signs(ANSWER, {}, signs.look_around(mark=log.stat().st_size), DRAFTED).window.owed == []


# ---- paying what earlier requests owe ----


def owed_after_settling(signs: SignReader, asked: Asked = DRAFTED) -> int:
    signs.settle(asked)
    return len(await_signs(signs, PLAIN).window.owed)


def test_a_line_pays_for_one_request_of_its_size_and_is_counted_once(clock: Clock, log: Path) -> None:
    signs = reader(log)
    signs.owe(Usage(generated=8))
    signs.owe(Usage(generated=8))
    add(log, DONE)()
    assert owed_after_settling(signs) == 1
    assert owed_after_settling(signs) == 1  # the same line again is no second one
    add(log, DONE)()
    assert owed_after_settling(signs) == 0


def test_a_line_of_another_size_pays_nothing(clock: Clock, log: Path) -> None:
    signs = reader(log)
    signs.owe(Usage(generated=9))
    add(log, DONE)()
    assert owed_after_settling(signs) == 1


def test_settling_waits_until_the_log_is_quiet(clock: Clock, log: Path) -> None:
    signs = reader(log)
    signs.owe(Usage(generated=8))
    clock.due = [(100.15, add(log, "working")), (100.3, add(log, DONE))]
    assert owed_after_settling(signs) == 0
    assert clock.now_s == pytest.approx(100.5, abs=0.04)


def test_settling_ends_after_the_presets_time_on_a_log_that_never_rests(clock: Clock, log: Path) -> None:
    signs = reader(log)
    signs.owe(Usage(generated=8))
    clock.due = [(100.0 + number / 10, add(log, "chatter")) for number in range(1, 40)]
    assert owed_after_settling(signs) == 1
    assert clock.now_s == pytest.approx(101.0, abs=0.03)


@pytest.mark.parametrize(("with_log", "asked"), [(False, DRAFTED), (True, PLAIN)])
def test_without_a_log_or_a_mechanism_nothing_is_settled(clock: Clock, log: Path, with_log: bool, asked: Asked) -> None:
    signs = reader(log if with_log else None)
    signs.owe(Usage(generated=8))
    add(log, DONE)()
    assert owed_after_settling(signs, asked) == 1
    assert clock.now_s == 100.0


# ---- addresses ----


def test_an_address_that_gives_no_values_is_left_out_and_not_zero() -> None:
    preset = read("mine", {"traffic": {"address": "/json"}, "prometheus": ["/text"], "sign": [
        {"id": name, "where": "state", "meaning": "engaged", "address": f"/{name}", "counts": {"n": "n"}}
        for name in ("text", "refused", "page", "gone")
    ]})  # fmt: skip
    replies = {
        "/json": Reply(200, '{"n": 1}'),
        "/text": Reply(200, "n 2\n"),
        "/refused": Reply(401, '{"n": 3}'),
        "/page": Reply(200, "<html>"),
    }
    found = reader(client=StubClient(replies), preset=preset).read_addresses()
    assert found == {"/json": {"n": 1}, "/text": {"n": 2.0}}


def test_counters_behind_a_login_need_the_key_and_report_why_they_are_missing() -> None:
    preset = read("mine", {"traffic": {"address": "/stats"}, "login": "/login"})
    assert reader().log_in(None) == []
    assert reader(preset=preset).log_in(None) == ["no key: the counters of /stats cannot be read"]
    for status, notes in ((200, []), (403, ["no login for the counters of /stats: HTTP 403"])):
        client = StubClient({"/login": Reply(status)})
        assert reader(client=client, preset=preset).log_in("k") == notes
        assert client.posted == [("/login", {"api_key": "k"})]


# ---- evidence and causes ----


def test_a_request_without_a_sign_is_explained_by_an_earlier_line(log: Path) -> None:
    add(log, "INFO kernel is off: no GPU")()
    signs = reader(log)
    (found,) = signs.evidence(Seen(lines=[]), DRAFTED)
    assert found.engaged is False
    assert found.text.startswith("kernel is off: no GPU (this request: ")
    assert reader().evidence(Seen(lines=[]), DRAFTED)[0].text in found.text
    own = signs.evidence(Seen(lines=["kernel is off: no GPU"]), DRAFTED)[0]
    assert own.text.count("kernel is off") == 1


def test_silence_shows_plain_decoding_of_the_own_server_alone() -> None:
    unknown = Asked(mechanism=None, model="m", version=None, knows_plain=False)
    assert [reader().evidence(Seen(lines=[]), asked)[0].engaged for asked in (PLAIN, unknown)] == [False, None]


def test_a_servers_error_is_reported_with_the_fault_of_its_log(clock: Clock, log: Path) -> None:
    signs, mark = reader(log), log.stat().st_size
    refused = StatusError("http://x", 500, "Internal Server Error")
    clock.due = [(100.5, add(log, "ERROR: RuntimeError: Insufficient Memory"))]
    cause = signs.with_cause(refused, mark)
    assert str(cause).startswith(str(refused))
    assert "the last fault in its log: " in str(cause)
    assert "Insufficient Memory" in str(cause)
    assert (refused.kind, cause.kind) == (FaultKind.generation_failed, FaultKind.out_of_memory)
    mark = log.stat().st_size
    add(log, "ERROR: something else")()
    assert reader(log).with_cause(refused, mark).kind is FaultKind.generation_failed
    assert clock.now_s == pytest.approx(100.5, abs=0.03)


def test_an_error_stays_as_it_is_without_a_fault_in_the_log(clock: Clock, log: Path) -> None:
    own, mark = StatusError("http://x", 500, "boom"), log.stat().st_size
    assert reader(log).with_cause(own, mark) is own
    assert clock.now_s == pytest.approx(101.0, abs=0.03)
    assert reader().with_cause(own, 0) is own
    clients = StatusError("http://x", 499, "bad request")
    add(log, "ERROR: out of memory")()
    assert reader(log).with_cause(clients, mark) is clients
    named = StatusError("http://x", 503, "ERROR: out of memory")
    assert reader(log).with_cause(named, mark) is named


@pytest.mark.parametrize(("stated", "count"), [(8, 8), (0, 0), (True, None), (8.0, None), ("8", None), (None, None)])
def test_a_requests_size_is_what_its_answer_states_as_a_count(stated: object, count: int | None) -> None:
    usage = {"prompt_tokens": stated, "completion_tokens": stated}
    found = usage_of(Answer(response={"id": 7, "usage": usage}, max_tokens=64))
    assert found == Usage(prompt=count, generated=count, max_tokens=64)
    assert usage_of(Answer(response={"id": "x"})).ids == {"x"}


def test_a_preset_that_the_catalogue_lacks_is_refused() -> None:
    assert load_preset("vllm").name == "vllm"
    with pytest.raises(EngineError, match="no evidence preset is named 'vlm'") as caught:
        load_preset("vlm")
    assert caught.value.kind is FaultKind.unsupported_setting
