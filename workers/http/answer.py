"""An answer in OpenAI's chat format, put together from the events of its stream. Pure, no I/O.

Of each chunk only what it says is taken: a chunk with a role alone, with empty text, or that merely keeps the
connection alive brings no token, and is never the first one. The usage is a state, not a sum: servers send it in the
last chunk, or in every one; the last one counts. An error may come after HTTP 200, in the middle of the stream.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.errors import EngineError, FaultKind, classify_text
from workers.http.json_text import read_json
from workers.http.sse import Event
from workers.wellformed import well_formed, well_formed_json

DONE = "[DONE]"
# Servers' words for the end, in ours. Anything else did not end well.
_FINISH = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "length": "length",
    "max_tokens": "length",
}
_CACHE_MESSAGES = ("trimmable prompt cache",)
_SHOWN = 200  # characters of what a server sent, in a message
# An answer far beyond what was asked for does not end by itself. A token is seldom more than a few chunks or 64 bytes.
_PIECES_PER_TOKEN, _PIECES_SPARE = 16, 1024
_CHARACTERS_PER_TOKEN, _CHARACTERS_SPARE = 256, 65536


@dataclass(slots=True)
class Answer:
    """The content of the stream so far. `take` is called once per event.

    Attributes:
        text: the visible answer. reasoning: what the server marks as thinking. Neither holds the other.
        pieces: for each tick, the characters that it brought in any channel; 0: the finish reason alone.
        response: every other key of the chunks, the last value of each: usage, timings, stats, model.
        calls: the names and arguments of tool calls, one after the other. refusal: whether the text is a refusal.
        done: the stream said [DONE].
        empty_chunks: chunks that brought neither text nor the end: a role, a keep-alive, the usage.
        max_tokens: of the request; an answer many times as long is broken off. None: no limit.
    """

    text: str = ""
    reasoning: str = ""
    calls: str = ""
    refusal: bool = False
    finish_reason: str | None = None
    pieces: list[int] = field(default_factory=list)
    response: dict[str, Any] = field(default_factory=dict)
    done: bool = False
    empty_chunks: int = 0
    max_tokens: int | None = None
    _characters: int = field(default=0, init=False)

    @property
    def whole(self) -> bool:
        """Return whether the answer itself has ended, whatever the stream still brings."""
        return self.finish_reason is not None

    @property
    def written(self) -> tuple[str, str, str]:
        """Everything that was written: text, reasoning, calls."""
        return self.text, self.reasoning, self.calls

    @property
    def usage(self) -> Mapping[str, Any]:
        """The usage as it was last stated; empty: never."""
        found = self.response.get("usage")
        return found if isinstance(found, Mapping) else {}

    def take(self, event: Event) -> bool:
        """Add one event. Returns True if it brought text or the end, at which the stopwatch stamps.

        Raises:
            EngineError: the server reports an error, or sends something other than a chunk.
        """
        if event.data.strip() == DONE:
            self.done = True
            return False
        chunk = self._chunk(event)
        for key, value in chunk.items():
            if key != "choices" and value is not None:
                self.response[key] = well_formed_json(value)
        ticked = self._take_choice(_first_choice(chunk))
        self.empty_chunks += not ticked
        return ticked

    def require_complete(self) -> None:
        """Check, at the stream's end, that the answer is complete, and make its text well formed.

        Raises:
            EngineError: it was cut short.
        """
        self.text, self.reasoning = well_formed(self.text), well_formed(self.reasoning)
        if self.finish_reason is None:
            said = "[DONE] without a finish reason" if self.done else "no finish reason and no [DONE]"
            raise self.failure(FaultKind.generation_failed, f"the stream ended with {said}: cut short")

    def failure(self, kind: FaultKind, message: str, *, remedy: str = "") -> EngineError:
        """Return the error with the text that came before it: a partial answer does not count as one."""
        error = EngineError(kind, f"{message} (after {len(self.pieces)} pieces of text)", remedy=remedy)
        if self.pieces:
            partial = " ".join((self.reasoning + self.text).split())
            error.add_note(f"partial answer: {partial[:_SHOWN]!r}")
        return error

    def _chunk(self, event: Event) -> dict[str, Any]:
        try:
            chunk = read_json(event.data)
        except ValueError as error:
            if event.name == "error":
                raise self._reported(event.data) from None
            shown = f"{event.data[:_SHOWN]!r} ({error})"
            raise self.failure(FaultKind.generation_failed, f"the server sent invalid JSON: {shown}") from None
        if isinstance(chunk, dict) and (problem := error_in(chunk)) is not None:
            raise self._reported(problem)
        if event.name == "error" or not isinstance(chunk, dict):
            raise self._reported(str(chunk))
        return chunk

    def _reported(self, problem: str) -> EngineError:
        kind = kind_of(problem, FaultKind.generation_failed)
        return self.failure(kind, f"the server reported an error within its stream: {problem[:_SHOWN]}")

    def _take_choice(self, choice: Mapping[str, Any]) -> bool:
        delta = choice.get("delta")
        source: Mapping[str, Any] = delta if isinstance(delta, Mapping) else choice
        visible = _written(source.get("content")) or _written(source.get("text"))
        if not visible and (refused := _written(source.get("refusal"))):
            visible, self.refusal = refused, True
        hidden = _written(source.get("reasoning_content")) or _written(source.get("reasoning"))
        called = "".join(_call_texts(source))
        self.text += visible
        self.reasoning += hidden
        self.calls += called
        finish = choice.get("finish_reason")
        if finish is not None:
            self._take_finish(finish)
        size = len(visible) + len(hidden) + len(called)
        if not size and finish is None:
            return False
        self.pieces.append(size)
        self._require_end(size)
        return True

    def _require_end(self, size: int) -> None:
        self._characters += size
        if self.max_tokens is None:
            return
        endless = len(self.pieces) > _PIECES_PER_TOKEN * self.max_tokens + _PIECES_SPARE
        if endless or self._characters > _CHARACTERS_PER_TOKEN * self.max_tokens + _CHARACTERS_SPARE:
            what = f"{self._characters} characters for max_tokens {self.max_tokens}"
            raise self.failure(FaultKind.too_long, f"the answer does not end: {what}")

    def _take_finish(self, reason: Any) -> None:
        known = _FINISH.get(reason.lower()) if isinstance(reason, str) else None
        if known is None:
            raise self.failure(FaultKind.generation_failed, f"the server ended the answer with {reason!r:.{_SHOWN}}")
        self.finish_reason = known


def error_in(body: Mapping[str, Any]) -> str | None:
    """The error that a body reports, in one line; None if it reports none."""
    error = body.get("error")
    if error is None and body.get("object") == "error":
        error = body.get("message") or body
    if error is None or error is False:
        return None
    if isinstance(error, Mapping):
        error = error.get("message") or json.dumps(error)
    return " ".join(str(error).split())


def kind_of(problem: str, default: FaultKind) -> FaultKind:
    """The kind of a fault that a server reports in words."""
    if any(words in problem for words in _CACHE_MESSAGES):
        return FaultKind.cache_not_trimmable
    return classify_text(problem) or default


def _first_choice(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = chunk.get("choices")
    if not isinstance(choices, list):
        return {}
    return next((each for each in choices if isinstance(each, Mapping) and each.get("index", 0) == 0), {})


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _written(value: Any) -> str:
    """Text, or the text of a list of parts."""
    if isinstance(value, list):
        return "".join(_string(part.get("text")) for part in value if isinstance(part, Mapping))
    return _string(value)


def _call_texts(source: Mapping[str, Any]) -> Iterator[str]:
    """Return the texts of a tool call's pieces, in the current form or the older one: they count as tokens."""
    calls = source.get("tool_calls")
    functions = [call.get("function") for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []
    for function in [*functions, source.get("function_call")]:
        if isinstance(function, Mapping):
            yield from (_string(function.get(key)) for key in ("name", "arguments"))
