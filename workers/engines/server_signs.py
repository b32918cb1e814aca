"""The signs that requests leave on a server: read from its log, its addresses and its port, bound to their request."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workers.catalogue.binding import LogIdentity, ProcessIdentity, Usage, Window
from workers.catalogue.evidence import copies, explain, is_final, judge_request, unpaid
from workers.catalogue.matches import Seen
from workers.catalogue.signs import CatalogueError, Preset, load
from workers.catalogue.values import parse_prometheus
from workers.errors import EngineError, FaultKind, classify_text
from workers.http.answer import Answer
from workers.http.refusals import StatusError
from workers.protocol import Evidence
from workers.supervision.port_watch import PortWatch
from workers.supervision.server_process import ServerLog
from workers.supervision.tcp_table import Connections
from workers.supervision.tracebacks import last_fault

if TYPE_CHECKING:
    from workers.http.client import Client

_POLL_S = 0.02
_CAUSE_S = 1.0  # how long after an error its cause may come in the log
_QUIET_S = 0.2  # a log that has not grown for so long holds everything that was due
_OWED_S = 30.0  # an earlier request's sign that comes later than this is not expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The demands of every request of an arm on its server.

    Attributes:
        mechanism: None: plain decoding.
        model: the model's name in requests.
        version: the server's; None: unknown.
        knows_plain: nothing speculates where nothing was requested, because the arm started the server that way.
    """

    mechanism: str | None
    model: str
    version: str | None
    knows_plain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The log, the server's processes and its connections at one moment."""

    log: LogIdentity | None
    processes: frozenset[ProcessIdentity]
    connections: Connections

    @property
    def log_mark(self) -> int:
        """Return the place at which the log's next line begins."""
        return 0 if self.log is None else self.log.size


class SignReader:
    """Reads the signs of one server's requests.

    Args:
        log: None: there is no log to read.
        log_start: where this server's part of the log begins.
    """

    def __init__(self, client: "Client", preset: Preset, log: ServerLog | None = None, log_start: int = 0) -> None:
        self.preset = preset
        self.log = log
        self.log_start = log_start
        self._client = client
        self._watch: PortWatch | None = None
        self._owed: list[tuple[Usage, float]] = []  # requests without a sign as yet, and until when it may come
        self._searched_until = log_start  # the place in the log up to which signs of earlier requests were sought

    @property
    def port(self) -> PortWatch:
        """The server's port, watched from its first use, so that a server restarted later is another process."""
        if self._watch is None:
            self._watch = PortWatch(self._client.url)
        return self._watch

    def log_since_start(self) -> list[str]:
        """This server's lines; empty without a log."""
        return [] if self.log is None else self.log.lines_since(self.log_start)

    def log_in(self, key: str | None) -> list[str]:
        """Log in for the preset's addresses, if they want that; notes on why they cannot be read."""
        if self.preset.login is None:
            return []
        addresses = " and ".join(self.preset.addresses)
        if key is None:
            return [f"no key: the counters of {addresses} cannot be read"]
        status = self._client.post(self.preset.login, {"api_key": key}).status_code
        return [] if status == 200 else [f"no login for the counters of {addresses}: HTTP {status}"]

    # ---- before a request ----

    def look_around(self, *, mark: int | None = None) -> Surroundings:
        """The surroundings now; `mark`: where the request's lines begin, if it has begun."""
        return Surroundings(
            log=None if self.log is None else self.log.identify(mark=mark),
            processes=self.port.processes(),
            connections=self.port.connections(),
        )

    def read_addresses(self) -> dict[str, Any]:
        """The answers of the preset's addresses. One that does not answer is left out: unknown is not 0."""
        found = {}
        for address in self.preset.addresses:
            try:
                response = self._client.get(address)
                if response.status_code != 200:
                    continue
                text = address in self.preset.prometheus
                found[address] = parse_prometheus(response.text) if text else response.json()
            except (EngineError, ValueError):
                continue
        return found

    def settle(self, asked: Asked) -> None:
        """Wait for the lines that earlier requests still owe: later ones belong to the next request."""
        now = time.monotonic()
        self._owed = [(usage, until) for usage, until in self._owed if until > now]
        if not self._owed or self.log is None or asked.mechanism is None:
            return
        self._wait_until_quiet(self.log)
        lines = self.log.lines_since(self._searched_until)
        self._searched_until = self.log.mark()
        left = unpaid(self.preset, lines, [usage for usage, _ in self._owed])
        self._owed = [self._owed[number] for number in left]

    def _wait_until_quiet(self, log: ServerLog) -> None:
        deadline = time.monotonic() + self.preset.wait_s
        size, since = log.mark(), time.monotonic()
        while time.monotonic() < min(deadline, since + _QUIET_S):
            time.sleep(_POLL_S)
            if (grown := log.mark()) != size:
                size, since = grown, time.monotonic()

    # ---- after a request ----

    def owe(self, usage: Usage) -> None:
        """Record a request of ours whose signs are not waited for."""
        self._owed.append((usage, time.monotonic() + _OWED_S))

    def await_signs(self, answer: Answer, before: Mapping[str, Any], surroundings: Surroundings, asked: Asked) -> Seen:
        """Everything that the request left, as soon as a sign is final.

        A server may print or count a moment after its answer ended; the preset says how long.

        Args:
            before, surroundings: from just before the request.
        """
        deadline = time.monotonic() + (self.preset.wait_s if asked.mechanism is not None else 0.0)
        while True:
            seen = self._seen(answer, before, surroundings, asked)
            decided = judge_request(self.preset, seen, mechanism=asked.mechanism)
            if is_final(decided) or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        if asked.mechanism is not None and not decided.engaged:
            self.owe(seen.window.usage)
        return seen

    def _seen(self, answer: Answer, before: Mapping[str, Any], surroundings: Surroundings, asked: Asked) -> Seen:
        lines = None if self.log is None else self.log.lines_since(surroundings.log_mark)
        after = self.look_around(mark=surroundings.log_mark)
        window = Window(
            usage=usage_of(answer),
            owed=[usage for usage, _ in self._owed],
            log_before=surroundings.log,
            log_after=after.log,
            processes_before=surroundings.processes,
            processes_after=after.processes,
            company=self.port.company(surroundings.connections, after.connections, ours=self._client.ends),
        )
        return Seen(
            lines=lines,
            response=answer.response,
            before=before,
            after=self.read_addresses(),
            model=asked.model,
            version=asked.version,
            window=window,
        )

    def evidence(self, seen: Seen, asked: Asked) -> tuple[Evidence, ...]:
        """The way of decoding first, then the tokens copied from the context, as engines in process state them."""
        copied = None if asked.mechanism is None else copies(self.preset, seen)
        decoding = self._decoding(seen, asked)
        return (decoding,) if copied is None else (decoding, copied)

    def _decoding(self, seen: Seen, asked: Asked) -> Evidence:
        """Silence of a server that somebody else started does not show that it decodes plainly."""
        found = judge_request(self.preset, seen, mechanism=asked.mechanism)
        if asked.mechanism is None and not found.engaged and not asked.knows_plain:
            return replace(found, engaged=None, useful=None)
        if asked.mechanism is None or found.engaged or self.log is None:
            return found
        why = explain(self.preset, self.log_since_start(), mechanism=asked.mechanism)
        if why is None or why in found.text:
            return found
        return replace(found, text=f"{why} (this request: {found.text})")

    def with_cause(self, error: StatusError, mark: int) -> EngineError:
        """A server's own error (HTTP 5xx) with the fault that its log names: the answer often does not name it."""
        if error.status < 500 or self.log is None:
            return error
        deadline = time.monotonic() + _CAUSE_S
        while (fault := last_fault(self.log.lines_since(mark))) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if fault is None or fault in str(error):
            return error
        return EngineError(classify_text(fault) or error.kind, f"{error}; the last fault in its log: {fault}")


def usage_of(answer: Answer) -> Usage:
    """One request's size, as the answer itself states it: our own tokenizer's counts bind no sign."""
    prompt, generated = (answer.usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    named = answer.response.get("id")
    return Usage(
        prompt=prompt if type(prompt) is int else None,
        generated=generated if type(generated) is int else None,
        max_tokens=answer.max_tokens,
        ids=frozenset({named} if isinstance(named, str) else ()),
    )


def load_preset(name: str) -> Preset:
    """A preset of the catalogue.

    Raises:
        EngineError: the catalogue has no preset of this name.
    """
    try:
        return load(name)
    except CatalogueError as error:
        raise EngineError(FaultKind.unsupported_setting, str(error)) from error
