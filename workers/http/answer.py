"""An answer in OpenAI's chat format, put together from the events of its stream. Pure, no I/O.

Of each chunk only what it says is taken: a chunk with a role alone, with empty text, or that merely keeps the
connection alive brings no token, and is never the first one. The usage is a state, not a sum: servers send it in the
last chunk, or in every one; the last one counts. An error may come after HTTP 200, in the middle of the stream.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.errors import EngineError, FaultKind, classify_text
from workers.http.sse import Event

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


@dataclass(slots=True)
class Answer:
    """What the stream has brought so far. `take` is called once an event.

    Attributes:
        text: the visible answer. reasoning: what the server marks as thinking. Neither holds the other.
        pieces: for each tick, the characters that it brought in any channel; 0: the finish reason alone.
        response: every other key of the chunks, the last value of each: usage, timings, stats, model.
        done: the stream said [DONE].
        empty_chunks: chunks that brought neither text nor the end: a role, a keep-alive, the usage.
    """

    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    pieces: list[int] = field(default_factory=list)
    response: dict[str, Any] = field(default_factory=dict)
    done: bool = False
    empty_chunks: int = 0

    @property
    def usage(self) -> Mapping[str, Any]:
        """The usage as it was last stated; empty: never."""
        found = self.response.get("usage")
        return found if isinstance(found, Mapping) else {}

    def take(self, event: Event) -> bool:
        """Add one event; whether it brought text or the end, which is when the stopwatch stamps.

        Raises:
            EngineError: the server reports an error, or sends what is no chunk.
        """
        if event.data.strip() == DONE:
            self.done = True
            return False
        chunk = self._chunk(event)
        for key, value in chunk.items():
            if key != "choices" and value is not None:
                self.response[key] = value
        ticked = self._take_choice(_first_choice(chunk))
        self.empty_chunks += not ticked
        return ticked

    def require_complete(self) -> None:
        """The stream has ended: was that the answer's end?

        Raises:
            EngineError: it was cut short.
        """
        if self.finish_reason is None:
            said = "[DONE] without a finish reason" if self.done else "no finish reason and no [DONE]"
            raise self.failure(FaultKind.generation_failed, f"the stream ended with {said}: cut short")

    def failure(self, kind: FaultKind, message: str, *, remedy: str = "") -> EngineError:
        """The error, with what had come before it kept beside it: a partial answer is no answer."""
        error = EngineError(kind, f"{message} (after {len(self.pieces)} pieces of text)", remedy=remedy)
        if self.pieces:
            partial = " ".join((self.reasoning + self.text).split())
            error.add_note(f"partial answer: {partial[:_SHOWN]!r}")
        return error

    def _chunk(self, event: Event) -> dict[str, Any]:
        try:
            chunk = json.loads(event.data)
        except ValueError:
            if event.name == "error":
                raise self._reported(event.data) from None
            shown = event.data[:_SHOWN]
            raise self.failure(FaultKind.generation_failed, f"the server sent what is no JSON: {shown!r}") from None
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
        visible = _string(source.get("content")) or _string(source.get("text"))
        hidden = _string(source.get("reasoning_content")) or _string(source.get("reasoning"))
        called = _call_text(source.get("tool_calls"))
        self.text += visible
        self.reasoning += hidden
        finish = choice.get("finish_reason")
        if finish is not None:
            self._take_finish(str(finish))
        size = len(visible) + len(hidden) + len(called)
        if not size and finish is None:
            return False
        self.pieces.append(size)
        return True

    def _take_finish(self, reason: str) -> None:
        if reason not in _FINISH:
            raise self.failure(FaultKind.generation_failed, f"the server ended the answer with {reason!r}")
        self.finish_reason = _FINISH[reason]


def error_in(body: Mapping[str, Any]) -> str | None:
    """What an answer's body says went wrong, in one line; None: nothing."""
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


def _call_text(calls: Any) -> str:
    """The text of a tool call's pieces: tokens as well, though nobody reads them."""
    if not isinstance(calls, list):
        return ""
    functions = [call.get("function") for call in calls if isinstance(call, Mapping)]
    return "".join(
        _string(function.get(key))
        for function in functions
        if isinstance(function, Mapping)
        for key in ("name", "arguments")
    )
