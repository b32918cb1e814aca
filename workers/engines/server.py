"""The engines over HTTP: they send a request, stamp its answer, and read its counts and its evidence.

A server sends no token ids. The number of tokens comes from its usage, or from a tokenizer, never from its chunks; the
stamps are those of the chunks, taken by the worker's stopwatch like any engine's.
"""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.catalogue.binding import ProcessIdentity
from workers.catalogue.evidence import figures
from workers.catalogue.signs import Preset
from workers.counts import require_possible, unlikely
from workers.engines import server_counts
from workers.engines.base import Engine, LoadInfo, TurnRequest, TurnResult, parse_settings
from workers.engines.server_models import flag_model, stated_model
from workers.engines.server_request import prompt_sha256, request_body
from workers.engines.server_signs import Asked, SignReader, Surroundings, usage_of
from workers.errors import EngineError, FaultKind, ProbeUnsupported
from workers.http.answer import Answer
from workers.http.refusals import StatusError, TooLate
from workers.http.reply import Reply
from workers.http.tokens import APPORTIONED, apportion
from workers.protocol import PassesTimed, Regenerate, Regenerated, Scored, ScoreTokens, Served, TimePasses
from workers.sampling import Sampling
from workers.settings import EngineSettings, above, setting
from workers.supervision import served_versions
from workers.supervision.server_process import ServerLog

if TYPE_CHECKING:
    from workers.http.client import Client

TEXT_ONLY = "this server sends text, not tokens, or would end speculation when asked for log-probabilities"
READY_TOKENS = 2
# A larger share of a conversation's first prompt from a cache: an earlier conversation was not forgotten.
_FRESH_SHARE = 0.5


@dataclass(slots=True, kw_only=True)
class ServerTurn:
    """The current turn."""

    request: TurnRequest
    path: str
    body: bytes
    prompt_ids: list[int] | None  # None: no tokenizer of our own
    before: dict[str, Any]  # the preset's addresses
    surroundings: Surroundings
    reply: Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettings(EngineSettings):
    """The request settings of every engine over HTTP."""

    first_token_s: float = setting(
        600.0, "Longest wait of a request for its first token; keep-alive does not extend it.", limit=above(0)
    )
    idle_s: float = setting(60.0, "Longest pause of an answer between two tokens.", limit=above(0))


class ServerEngine(Engine):
    """An engine behind an address."""

    knows_plain = True  # nothing speculates where nothing was requested: we started it that way
    mechanism: str | None = None  # the one requested; None: plain decoding
    model = ""  # the model's name in requests
    server_version: str | None = None
    drafted_per_step: int | None = None  # known once the engine is loaded; None: plain decoding, or unknown

    def __init__(
        self,
        *,
        settings: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        draft: Mapping[str, Any] | None,
        sampling: Mapping[str, Any],
    ) -> None:
        super().__init__(settings=settings, checkpoint=checkpoint, draft=draft, sampling=sampling)
        self._turn: ServerTurn | None = None
        self._client: Client | None = None
        self._reader: SignReader | None = None
        self._processes: frozenset[ProcessIdentity] = frozenset()  # those whose versions are stored
        self._versions: Served | None = None
        self._answered_as: str | None = None  # the model that the newest answer named
        self._tokenizer: Any = None
        self._encode: Callable[[Sequence[Mapping[str, str]]], list[int]] | None = None

    # ---- for each engine to define ----

    @abstractmethod
    def _open(self) -> LoadInfo:
        """Check the settings, start or find the server and `_connect` to it; the load's facts."""

    @abstractmethod
    def _require_server(self) -> None:
        """Raise EngineError before a turn unless the launched server is the one that answers."""

    def _extra_body(self, request: TurnRequest) -> Mapping[str, Any]:
        """The request's fields beside those that every server takes."""
        return {}

    # ---- the contract ----

    def load(self) -> LoadInfo:
        self._sampling = parse_settings(Sampling, self.sampling, engine="server sampling")
        try:
            info = self._open()
            self._processes, self._versions = self._signs().port.processes(), info.served
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
        signs = self._signs()
        signs.settle(self._asked)
        path, body = self._body(request)
        prompt_ids = None if self._encode is None else self._encode(request.messages)
        self._turn = ServerTurn(
            request=request,
            path=path,
            body=json.dumps(body).encode(),
            prompt_ids=prompt_ids,
            before=signs.read_addresses(),
            reply=Reply(answer=Answer(max_tokens=request.max_tokens)),
            surroundings=signs.look_around(),
        )

    def stream(self) -> Iterator[None]:
        turn = self._prepared()
        try:
            yield from self._connected().stream(turn.path, turn.body, turn.reply, self.clock)
        except StatusError as error:
            raise self._signs().with_cause(error, turn.surroundings.log_mark) from error

    def finish(self) -> TurnResult:
        turn, signs = self._prepared(), self._signs()
        answer = turn.reply.answer
        seen = signs.await_signs(answer, turn.before, turn.surroundings, self._asked)
        flags = [] if answer.done else ["no_done"]
        if answer.refusal:
            flags.append("refused")
        stated = stated_model(answer.response)
        flag_model(self.model, stated, self._answered_as, flags)
        self._answered_as = stated or self._answered_as
        recounted = self._recounted(answer)
        tokens = server_counts.completion_tokens(answer, recounted, flags)
        prompt_tokens = server_counts.prompt_tokens(answer, turn.prompt_ids, flags)
        own = dict(figures(signs.preset, seen))
        cached_tokens = server_counts.cached_tokens(answer, own)
        evidence = signs.evidence(seen, self._asked)
        counts = server_counts.all_counts(
            turn.request,
            answer,
            evidence[0],
            tokens=tokens,
            prompt=prompt_tokens,
            cached=cached_tokens,
            own_prompt=None if turn.prompt_ids is None else len(turn.prompt_ids),
            recounted=recounted,
            drafted_per_step=self.drafted_per_step,
            ignores_end=self._sampling.ignore_eos,
        )
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
            prompt_sha256=prompt_sha256(turn.prompt_ids, turn.request.messages),
            evidence=evidence,
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
        """Repeat an answer, only if the server is known to send log-probabilities without ending speculation.

        Raises:
            ProbeUnsupported: always, unless the engine knows better.
        """
        raise ProbeUnsupported(TEXT_ONLY)

    def regenerate(self, request: Regenerate) -> Regenerated:
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
        raise ProbeUnsupported("a server runs whole answers, not single passes")

    def _whole_choice(
        self, messages: Sequence[Mapping[str, str]], sha256: str, *, budget_s: float, **more: Any
    ) -> Mapping[str, Any]:
        """The answer to these messages in one piece, requested with more fields than a timed request has.

        Raises:
            ProbeUnsupported: they become another prompt than the one that was answered, or the server does not answer.
        """
        self._require_server()
        prompt_ids = None if self._encode is None else self._encode(messages)
        if prompt_sha256(prompt_ids, messages) != sha256:
            raise ProbeUnsupported("these messages give another prompt here than the one that was answered")
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

    # ---- the server's versions ----

    def _served(self, first: Answer) -> Served:
        """The versions in the server's environment: as it states them, or by the process behind its port."""
        stated = served_versions.of_answer(first.response)
        found = stated or served_versions.of_processes(self._signs().port.pids())
        return found if found.source else replace(found, source=self._connected().url)

    def _require_same_versions(self) -> None:
        """A restarted server may have been updated: its figures would be stored under the old versions.

        Raises:
            EngineError: the process behind the port is another than when the arm was loaded, with other versions.
        """
        now = self._signs().port.processes()
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

    # ---- for the engines ----

    def _connect(self, client: "Client", preset: Preset, log: ServerLog | None = None, log_start: int = 0) -> None:
        self._client = client
        self._reader = SignReader(client, preset, log, log_start)

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
        self._signs().owe(usage_of(reply.answer))
        return reply.answer

    def _body(self, request: TurnRequest) -> tuple[str, dict[str, Any]]:
        return request_body(request, model=self.model, sampling=self._sampling, more=self._extra_body(request))

    def _recounted(self, answer: Answer) -> int | None:
        """The answer's tokens by the model's tokenizer; None: there is none here."""
        if self._tokenizer is None:
            return None
        return len(self._tokenizer.encode("".join(answer.written), add_special_tokens=False))

    @property
    def _asked(self) -> Asked:
        return Asked(
            mechanism=self.mechanism, model=self.model, version=self.server_version, knows_plain=self.knows_plain
        )

    def _connected(self) -> "Client":
        if self._client is None:
            raise EngineError(FaultKind.generation_failed, "the server is not loaded, or closed")
        return self._client

    def _signs(self) -> SignReader:
        if self._reader is None:
            raise EngineError(FaultKind.generation_failed, "the server is not loaded")
        return self._reader

    def _prepared(self) -> ServerTurn:
        if self._turn is None:
            raise EngineError(FaultKind.generation_failed, "no turn is prepared")
        return self._turn


def _rate(stated: float | None) -> float | None:
    """Return a server's own rate, or None if the stated value is not a rate."""
    return stated if stated is not None and stated > 0 else None
