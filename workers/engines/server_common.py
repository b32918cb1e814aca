"""What the engines over HTTP share: the request, the answer's counts and stamps, the evidence of one request.

A server tells no token ids. How many tokens there were comes from its usage, or from a tokenizer, never from chunks;
the stamps are those of the chunks, taken by the worker's stopwatch like any engine's.
"""

import hashlib
import json
import os
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workers.catalogue.binding import LogIdentity, ProcessIdentity, Usage, Window
from workers.catalogue.evidence import copies, explain, figures, is_final, judge_request, unpaid
from workers.catalogue.matches import Seen
from workers.catalogue.signs import CatalogueError, Preset, load
from workers.catalogue.values import parse_prometheus
from workers.counts import Counts, Written, require_possible, stated_count, unlikely
from workers.engines.base import Engine, LoadInfo, TurnRequest, TurnResult, parse_settings, sha256_of_ids
from workers.engines.mlx_common import Sampling
from workers.errors import EngineError, FaultKind, ProbeUnsupported, classify_text
from workers.http.answer import Answer
from workers.http.client import Client, StatusError, TooLate
from workers.http.reply import Reply
from workers.http.tokens import APPORTIONED, apportion
from workers.masking import KNOWN
from workers.protocol import Evidence, PassesTimed, Retell, Retold, Scored, ScoreTokens, Served, TimePasses
from workers.supervision import served_versions
from workers.supervision.port_watch import PortWatch
from workers.supervision.server_process import ServerLog
from workers.supervision.tcp_table import Connections
from workers.supervision.tracebacks import last_fault

TEXT_ONLY = "this server tells text, not tokens, or would end speculation when asked for log-probabilities"
CHAT_PATH, TEXT_PATH = "/v1/chat/completions", "/v1/completions"
READY_TOKENS = 2
_POLL_S = 0.02
_CAUSE_S = 1.0  # how long after an error its cause may come in the log
_QUIET_S = 0.2  # a log that grows no more for so long has printed what it owed
_OWED_S = 30.0  # an earlier request's sign that comes later than this is not expected
# More of a conversation's first prompt from a cache than this: some earlier one was not forgotten.
_FRESH_SHARE = 0.5


@dataclass(slots=True, kw_only=True)
class Turn:
    """One turn under way."""

    request: TurnRequest
    path: str
    body: bytes
    prompt_ids: list[int] | None  # None: no tokenizer of our own
    before: dict[str, Any]
    surroundings: "Surroundings"
    reply: Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is there beside the server's own figures at one moment."""

    log: LogIdentity | None
    processes: frozenset[ProcessIdentity]
    connections: Connections

    @property
    def log_mark(self) -> int:
        """Where the log's next line begins."""
        return 0 if self.log is None else self.log.size


class ServerEngine(Engine):
    """An engine behind an address."""

    def __init__(
        self,
        *,
        settings: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        draft: Mapping[str, Any] | None,
        sampling: Mapping[str, Any],
    ) -> None:
        super().__init__(settings=settings, checkpoint=checkpoint, draft=draft, sampling=sampling)
        self._turn: Turn | None = None
        self._client: Client | None = None
        self._log: ServerLog | None = None
        self._log_start = 0  # where this server's part of the log begins
        self._watch: PortWatch | None = None
        self._processes: frozenset[ProcessIdentity] = frozenset()  # those whose versions are stored
        self._versions: Served | None = None
        self._owed: list[tuple[Usage, float]] = []  # requests without a sign as yet, and until when it may come
        self._looked_until = 0  # the place in the log up to which signs of earlier requests were looked for
        self._tokenizer: Any = None
        self._encode: Callable[[Sequence[Mapping[str, str]]], list[int]] | None = None

    # ---- what each engine says ----

    @abstractmethod
    def _open(self) -> LoadInfo:
        """Check the settings, start or find the server, set `_client`, `_preset` and the rest; the load's facts."""

    @abstractmethod
    def _require_server(self) -> None:
        """Before each turn: raises EngineError unless the server that was launched is the one that answers."""

    def _extra_body(self, request: TurnRequest) -> Mapping[str, Any]:
        """What the request says beside what every server takes."""
        return {}

    knows_plain = True  # that nothing speculates where nothing was requested: we started it that way
    mechanism: str | None = None  # what was requested; None: plain decoding
    model = ""  # the model's name in requests
    server_version: str | None = None
    drafted_per_step: int | None = None  # known once the engine is loaded; None: plain decoding, or unknown

    # ---- the contract ----

    def load(self) -> LoadInfo:
        self._sampling = parse_settings(Sampling, self.sampling, engine="server sampling")
        self._preset: Preset = load("none")
        try:
            info = self._open()
            self._processes, self._versions = self._port_watch().processes(), info.served
            self._looked_until = self._log_start
        except BaseException as error:
            try:
                self.close()  # whatever was started must not outlive a load that failed
            except EngineError as second:
                error.add_note(str(second))
            raise
        self.drafted_per_step = info.drafted_per_step
        return info

    def start_conversation(self) -> None:
        self._turn = None

    def prepare(self, request: TurnRequest) -> None:
        self._require_server()
        self._require_same_versions()
        self._settle_log()
        path, body = self._body(request)
        prompt_ids = None if self._encode is None else self._encode(request.messages)
        self._turn = Turn(
            request=request,
            path=path,
            body=json.dumps(body).encode(),
            prompt_ids=prompt_ids,
            before=self._read_addresses(),
            reply=Reply(answer=Answer(max_tokens=request.max_tokens)),
            surroundings=self._look_around(),
        )

    def stream(self) -> Iterator[None]:
        turn = self._prepared()
        try:
            yield from self._connected().stream(turn.path, turn.body, turn.reply, self.clock)
        except StatusError as error:
            raise self._with_cause(error, turn.surroundings.log_mark) from error

    def finish(self) -> TurnResult:
        turn = self._prepared()
        answer = turn.reply.answer
        seen = self._await_signs(turn)
        flags = [] if answer.done else ["no_done"]
        if answer.refusal:
            flags.append("refused")
        tokens = self._completion_tokens(answer, flags)
        prompt_tokens = self._prompt_tokens(turn, flags)
        own = dict(figures(self._preset, seen))
        cached_tokens = self._cached_tokens(answer, own)
        signs = self._signs(seen)
        counts = self._counts(turn, tokens, prompt_tokens, cached_tokens, signs[0])
        require_possible(counts)  # before anything is made of so many tokens
        flags += unlikely(counts)
        tokens_per_stamp, how = apportion(answer.pieces, tokens)
        if how == APPORTIONED:
            flags.append("stamps_apportioned")
        if turn.request.turn == 0 and cached_tokens and cached_tokens > _FRESH_SHARE * prompt_tokens:
            flags.append("cached_before_conversation")
        return TurnResult(
            token_ids=(),
            completion_tokens=tokens,
            text=answer.text,
            finish_reason=answer.finish_reason or "stop",
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            prompt_sha256=_prompt_sha256(turn.prompt_ids, turn.request.messages),
            evidence=signs,
            tokens_per_stamp=tokens_per_stamp,
            stamps_of="chunk",
            engine_prefill_tps=_rate(own.get("prefill_tps")),
            engine_decode_tps=_rate(own.get("decode_tps")) if tokens > 1 else None,
            first_byte_us=turn.reply.since_start_us(turn.reply.first_byte_ns),
            first_visible_us=turn.reply.since_start_us(turn.reply.first_visible_ns),
            flags=flags,
        )

    def settle(self) -> None:
        self._turn = None

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # ---- probes ----

    def score(self, request: ScoreTokens) -> Scored:
        """Only where a server is known to tell log-probabilities without ending speculation: several do not.

        Raises:
            ProbeUnsupported: always, unless the engine knows better.
        """
        raise ProbeUnsupported(TEXT_ONLY)

    def retell(self, request: Retell) -> Retold:
        """As `score`.

        Raises:
            ProbeUnsupported: always, unless the engine knows better.
        """
        raise ProbeUnsupported(TEXT_ONLY)

    def time_passes(self, request: TimePasses) -> PassesTimed:
        """Not over HTTP.

        Raises:
            ProbeUnsupported: always.
        """
        raise ProbeUnsupported("a server runs whole answers, no single passes")

    # ---- the server's versions ----

    def _served(self, first: Answer) -> Served:
        """What is known of the server's environment: by its own words, or by the process behind its port."""
        told = served_versions.of_answer(first.response)
        found = told or served_versions.of_processes(self._port_watch().pids())
        return found if found.source else replace(found, source=self._connected().url)

    def _require_same_versions(self) -> None:
        """A server that was started anew may have been updated: its figures would be stored under the old versions.

        Raises:
            EngineError: the process behind the port is another than when the arm was loaded, with other versions.
        """
        now = self._port_watch().processes()
        if now == self._processes or not now:
            return
        found, known = self._served(self._complete_once()), self._versions
        if known is not None and (found.python, found.versions) != (known.python, known.versions):
            raise EngineError(
                FaultKind.generation_failed,
                f"{self._connected().url}: the server was started anew since this arm was loaded, with other versions",
                remedy="start a new run: this one's versions are stored",
            )
        self._processes = now

    def _whole_choice(
        self, messages: Sequence[Mapping[str, str]], prompt_sha256: str, *, budget_s: float, **more: Any
    ) -> Mapping[str, Any]:
        """The answer to these messages in one piece, asked for with more than a timed request says.

        Raises:
            ProbeUnsupported: they become another prompt than the one that was answered, or the server does not answer.
        """
        self._require_server()
        prompt_ids = None if self._encode is None else self._encode(messages)
        if _prompt_sha256(prompt_ids, messages) != prompt_sha256:
            raise ProbeUnsupported("these messages become another prompt here than the one that was answered")
        path, body = self._body(TurnRequest(messages=messages, turn=0, max_tokens=more.pop("max_tokens"), seed=0))
        del body["stream_options"]
        try:
            response = self._connected().post(path, body | {"stream": False} | more, limit_s=budget_s)
        except TooLate:
            raise ProbeUnsupported(f"the server did not answer within the {budget_s:.3g} s that were left") from None
        try:
            choice = response.json()["choices"][0]
        except (ValueError, LookupError, TypeError):
            raise ProbeUnsupported(f"the server answered HTTP {response.status_code}: {response.text:.200}") from None
        if not isinstance(choice, Mapping):
            raise ProbeUnsupported("the server's answer has no choice")
        return choice

    # ---- for the engines ----

    def _use_tokenizer(self, folder: Path) -> None:
        """Count and hash prompts as the in-process engines do."""
        from mlx_lm import utils

        from workers.engines.mlx_common import prompt_encoder

        load_tokenizer: Any = utils.load_tokenizer
        self._tokenizer = load_tokenizer(folder)
        self._encode = prompt_encoder(self._tokenizer, self._sampling)

    def _complete_once(self, *, text: str = "Say hello.", tokens: int = READY_TOKENS) -> Answer:
        """One real completion, to its end: only that shows that a server is ready.

        Raises:
            EngineError: it fails.
        """
        messages = [{"role": "user", "content": text}]
        path, body = self._body(TurnRequest(messages=messages, turn=0, max_tokens=tokens, seed=0))
        reply = Reply(answer=Answer(max_tokens=tokens))
        for _ in self._connected().stream(path, json.dumps(body).encode(), reply, self.clock):
            pass
        self._owe(_usage(reply.answer, max_tokens=tokens))  # nobody waited for its signs
        return reply.answer

    def _connected(self) -> Client:
        if self._client is None:
            raise EngineError(FaultKind.generation_failed, "the server is not loaded, or closed")
        return self._client

    def _prepared(self) -> Turn:
        if self._turn is None:
            raise EngineError(FaultKind.generation_failed, "no turn is prepared")
        return self._turn

    # ---- the request ----

    def _body(self, request: TurnRequest) -> tuple[str, dict[str, Any]]:
        sampling = self._sampling
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "temperature": sampling.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        neutral = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
        body |= {name: getattr(sampling, name) for name, value in neutral.items() if getattr(sampling, name) != value}
        if sampling.temperature > 0:
            body["seed"] = request.seed  # greedy decoding needs none, and some servers are slower with one
        body |= self._extra_body(request)
        if not sampling.chat_template:
            body["prompt"] = "\n".join(message["content"] for message in request.messages)
            return TEXT_PATH, body
        body["messages"] = [dict(message) for message in request.messages]
        if sampling.template_options:
            body["chat_template_kwargs"] = dict(sampling.template_options)
        return CHAT_PATH, body

    # ---- the answer ----

    def _completion_tokens(self, answer: Answer, flags: list[str]) -> int:
        stated = stated_count(answer.usage, "completion_tokens")
        if stated is not None:
            if stated == 0 or not answer.pieces:
                raise EngineError(FaultKind.zero_tokens, f"the server answered with {stated} tokens by its usage")
            return stated
        counted = self._recounted(answer)
        if counted is None:
            raise EngineError(
                FaultKind.generation_failed,
                "the server states no usage, and chunks are no tokens",
                remedy="set engine.tokenizer to the model's folder, or let the server send usage",
            )
        flags.append("tokens_by_tokenizer")
        if not counted:
            raise EngineError(FaultKind.zero_tokens, "the server answered without one token")
        return counted

    def _recounted(self, answer: Answer) -> int | None:
        """The answer's tokens by the model's tokenizer; None: there is none here."""
        if self._tokenizer is None:
            return None
        return len(self._tokenizer.encode("".join(answer.written), add_special_tokens=False))

    def _prompt_tokens(self, turn: Turn, flags: list[str]) -> int:
        stated = stated_count(turn.reply.answer.usage, "prompt_tokens")
        own = None if turn.prompt_ids is None else len(turn.prompt_ids)
        if stated is None:
            if own is None:
                raise EngineError(
                    FaultKind.generation_failed,
                    "the server states no prompt tokens",
                    remedy="set engine.tokenizer to the model's folder",
                )
            return own
        if own is not None and own != stated:
            flags.append("prompt_tokens_differ")  # a template applied twice, or with other options
        return stated

    def _cached_tokens(self, answer: Answer, own: Mapping[str, float]) -> int | None:
        """None: the server does not say, which is not 0."""
        stated = stated_count(answer.usage.get("prompt_tokens_details"), "cached_tokens")
        if stated is None and "cached_tokens" in own:
            return int(own["cached_tokens"])
        return stated

    def _counts(self, turn: Turn, tokens: int, prompt: int, cached: int | None, evidence: Evidence) -> Counts:
        answer, usage = turn.reply.answer, turn.reply.answer.usage
        reasoning = stated_count(usage.get("completion_tokens_details"), "reasoning_tokens")
        stated = usage.get("completion_tokens") is not None
        broken = "\ufffd" in "".join(answer.written)  # bytes that were no character: their tokens cannot be recounted
        return Counts(
            max_tokens=turn.request.max_tokens,
            prompt=prompt,
            cached=cached,
            completion=tokens if stated else None,
            reasoning=reasoning,
            total=stated_count(usage, "total_tokens"),
            others=_other_counts(answer.response),
            drafted=evidence.drafted,
            accepted=evidence.accepted,
            drafted_per_step=self.drafted_per_step,
            ignores_end=self._sampling.ignore_eos,
            sent=Written.of([message["content"] for message in turn.request.messages]),
            asked=Written.of([each["content"] for each in turn.request.messages if each["role"] != "assistant"]),
            answered=Written.of(answer.written),
            hidden=bool(reasoning) and not answer.reasoning,
            chunks=sum(size > 0 for size in answer.pieces),
            own_prompt=None if turn.prompt_ids is None else len(turn.prompt_ids),
            own_completion=None if broken else self._recounted(answer),
        )

    # ---- the evidence ----

    def _read_addresses(self) -> dict[str, Any]:
        """What the preset's addresses say now. One that does not answer is left out: unknown is not 0."""
        client, found = self._connected(), {}
        for address in self._preset.addresses:
            try:
                response = client.get(address)
                if response.status_code != 200:
                    continue
                text = address in self._preset.prometheus
                found[address] = parse_prometheus(response.text) if text else response.json()
            except (EngineError, ValueError):
                continue
        return found

    def _signs(self, seen: Seen) -> tuple[Evidence, ...]:
        """The way of decoding first, then what was copied from the context, as the engines in process tell it."""
        copied = None if self.mechanism is None else copies(self._preset, seen)
        return (self._evidence(seen),) if copied is None else (self._evidence(seen), copied)

    def _evidence(self, seen: Seen) -> Evidence:
        """Of a server that somebody else started, silence does not show that it decodes plainly."""
        evidence = judge_request(self._preset, seen, mechanism=self.mechanism)
        if self.mechanism is None and not evidence.engaged and not self.knows_plain:
            return replace(evidence, engaged=None, useful=None)
        if self.mechanism is None or evidence.engaged or self._log is None:
            return evidence
        why = explain(self._preset, self._log.lines_since(self._log_start), mechanism=self.mechanism)
        if why is None or why in evidence.text:
            return evidence
        return replace(evidence, text=f"{why} (this request: {evidence.text})")

    def _with_cause(self, error: StatusError, mark: int) -> EngineError:
        """An error of the server's own (HTTP 5xx) with what its log says of it: the answer often does not."""
        if error.status < 500 or self._log is None:
            return error
        deadline = time.monotonic() + _CAUSE_S
        while (fault := last_fault(self._log.lines_since(mark))) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if fault is None or fault in str(error):
            return error
        return EngineError(classify_text(fault) or error.kind, f"{error}; the last fault in its log: {fault}")

    def _await_signs(self, turn: Turn) -> Seen:
        """A server may print or count a moment after its answer ended; wait for that, not longer than it takes."""
        deadline = time.monotonic() + (self._preset.wait_s if self.mechanism is not None else 0.0)
        while True:
            seen = self._seen(turn)
            decided = judge_request(self._preset, seen, mechanism=self.mechanism)
            if is_final(decided) or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        if self.mechanism is not None and not decided.engaged:
            self._owe(seen.window.usage)
        return seen

    def _owe(self, usage: Usage) -> None:
        self._owed.append((usage, time.monotonic() + _OWED_S))

    def _seen(self, turn: Turn) -> Seen:
        before = turn.surroundings
        lines = None if self._log is None else self._log.lines_since(before.log_mark)
        after = self._look_around(mark=before.log_mark)
        window = Window(
            usage=_usage(turn.reply.answer, max_tokens=turn.request.max_tokens),
            owed=[usage for usage, _ in self._owed],
            log_before=before.log,
            log_after=after.log,
            processes_before=before.processes,
            processes_after=after.processes,
            company=self._port_watch().company(before.connections, after.connections, ours=self._connected().ends),
        )
        return Seen(
            lines=lines,
            response=turn.reply.answer.response,
            before=turn.before,
            after=self._read_addresses(),
            model=self.model,
            version=self.server_version,
            window=window,
        )

    def _look_around(self, *, mark: int | None = None) -> Surroundings:
        watch = self._port_watch()
        return Surroundings(
            log=None if self._log is None else self._log.identify(mark=mark),
            processes=watch.processes(),
            connections=watch.connections(),
        )

    def _port_watch(self) -> PortWatch:
        """Made while the engine loads, so that a server that is restarted later is another process."""
        if self._watch is None:
            self._watch = PortWatch(self._connected().url)
        return self._watch

    def _settle_log(self) -> None:
        """Let the lines come that earlier requests still owe: what is printed after them is this request's."""
        now = time.monotonic()
        self._owed = [(usage, until) for usage, until in self._owed if until > now]
        if not self._owed or self._log is None or self.mechanism is None:
            return
        self._wait_until_quiet(self._log)
        lines = self._log.lines_since(self._looked_until)
        self._looked_until = self._log.mark()
        left = unpaid(self._preset, lines, [usage for usage, _ in self._owed])
        self._owed = [self._owed[number] for number in left]

    def _wait_until_quiet(self, log: ServerLog) -> None:
        deadline = time.monotonic() + self._preset.wait_s
        size, since = log.mark(), time.monotonic()
        while time.monotonic() < min(deadline, since + _QUIET_S):
            time.sleep(_POLL_S)
            if (grown := log.mark()) != size:
                size, since = grown, time.monotonic()


def _usage(answer: Answer, *, max_tokens: int) -> Usage:
    """By the answer's own words alone: what our tokenizer counts binds nothing."""
    prompt, generated = (answer.usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    named = answer.response.get("id")
    return Usage(
        prompt=prompt if type(prompt) is int else None,
        generated=generated if type(generated) is int else None,
        max_tokens=max_tokens,
        ids=frozenset({named} if isinstance(named, str) else ()),
    )


def _rate(stated: float | None) -> float | None:
    """A server's own rate; what is no rate is none."""
    return stated if stated is not None and stated > 0 else None


def _other_counts(response: Mapping[str, Any]) -> dict[str, int]:
    """What else of the chunks tells the completion's tokens: llama.cpp's timings, Ollama's own field."""
    timings = response.get("timings")
    found = {
        "timings.predicted_n": stated_count(timings, "predicted_n"),
        "eval_count": stated_count(response, "eval_count"),
    }
    return {name: value for name, value in found.items() if value is not None}


def load_preset(name: str) -> Preset:
    """A preset of the catalogue.

    Raises:
        EngineError: there is none of this name.
    """
    try:
        return load(name)
    except CatalogueError as error:
        raise EngineError(FaultKind.unsupported_setting, str(error)) from error


def key_from(variable: str | None) -> str | None:
    """The key that an environment variable holds; the name alone is stored, never the key.

    Raises:
        EngineError: the variable is not set, or what is given looks like a key itself.
    """
    if variable is None:
        return None
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise EngineError(
            FaultKind.unsupported_setting,
            "engine.api_key_env is no variable's name",
            remedy="put the key into an environment variable and give its name here",
        )
    key = os.environ.get(variable)
    if not key:
        raise EngineError(
            FaultKind.unsupported_setting, f"the environment has no variable {variable}", remedy="set it to the key"
        )
    KNOWN.add(key)  # a server may repeat it in whatever it says
    return key


def _prompt_sha256(prompt_ids: Sequence[int] | None, messages: Sequence[Mapping[str, str]]) -> str:
    """Of the prompt's ids where we can make them, as for any engine; else of the messages themselves."""
    if prompt_ids is not None:
        return sha256_of_ids(prompt_ids)
    text = json.dumps([dict(message) for message in messages], sort_keys=True)
    return hashlib.sha256(f"messages:{text}".encode()).hexdigest()
