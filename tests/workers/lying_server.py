"""A server that answers honestly and says something else: its counts, its times, or its manners are wrong.

`LyingServer` speaks OpenAI's chat protocol over a real socket; the request's `model` names one of `LIES`. The truth of
an answer is its text, one word per token, one token per chunk. Every lie says what an honest reader must make of it.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

Step = bytes | float  # to send; seconds to wait
Expected = Literal["right", "invalid", "flagged", "no_rate", "unknown"]

WORDS = ("One", " word", " after", " another", " is", " a", " token", " of", " its", " own", " here", ".")
TEMPLATE_TOKENS = 12
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
_DONE = b"data: [DONE]\n\n"
_BEATS = 100_000  # of what does not end by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """An honest answer to one request."""

    max_tokens: int
    prompt_tokens: int
    gap_s: float

    @property
    def words(self) -> list[str]:
        return [WORDS[place % len(WORDS)] for place in range(self.max_tokens)]

    def usage(self, **changes: Any) -> dict[str, Any]:
        honest = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.max_tokens}
        return honest | {"total_tokens": self.prompt_tokens + self.max_tokens} | changes


def event(body: Any) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def delta(**parts: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": parts, "finish_reason": None}]})


def finish(reason: Any = "length") -> bytes:
    return event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})


def paced(truth: Truth, words: Iterable[str] | None = None) -> Iterator[Step]:
    """One word a chunk, as they are made."""
    for word in truth.words if words is None else words:
        yield truth.gap_s
        yield delta(content=word)


def whole(truth: Truth, usage: Any, *, body: Iterable[Step] | None = None, **more: Any) -> Iterator[Step]:
    """An answer with this usage; `more` stands beside it in the last chunk."""
    yield from paced(truth) if body is None else body
    yield finish()
    yield event({"choices": [], "usage": usage} | more)
    yield _DONE


def in_bursts(truth: Truth, sizes: Iterable[int]) -> Iterator[Step]:
    left = truth.words
    for size in sizes:
        burst, left = left[:size], left[size:]
        if burst:
            yield truth.gap_s * len(burst)
            yield b"".join(delta(content=word) for word in burst)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """One way to lie, and the required outcome of such a generation."""

    answer: Callable[[Truth], Iterable[Step]]
    expected: Expected
    head: bytes = field(default=_HEAD)


def _usage(**changes: Any) -> Callable[[Truth], Iterable[Step]]:
    return lambda truth: whole(truth, truth.usage(**changes))


def _completion(value: Callable[[int], Any]) -> Callable[[Truth], Iterable[Step]]:
    """Another count of the answer's tokens, the total in keeping with it where both are numbers."""

    def answer(truth: Truth) -> Iterable[Step]:
        stated = value(truth.max_tokens)
        usage = truth.usage(completion_tokens=stated, total_tokens=None)
        return whole(truth, usage)

    return answer


def _cached(value: Any) -> Callable[[Truth], Iterable[Step]]:
    return _usage(prompt_tokens_details={"cached_tokens": value})


def _drafts(**timings: Any) -> Callable[[Truth], Iterable[Step]]:
    return lambda truth: whole(truth, truth.usage(), timings=timings)


def _text(*words: str) -> Callable[[Truth], Iterable[Step]]:
    return lambda truth: whole(truth, truth.usage(), body=paced(truth, words))


def _raw_usage(text: bytes) -> Callable[[Truth], Iterable[Step]]:
    return lambda truth: [*paced(truth), finish(), b'data: {"choices": [], "usage": ' + text + b"}\n\n", _DONE]


def _raw_drafts(text: bytes) -> Callable[[Truth], Iterable[Step]]:
    return lambda truth: [*list(whole(truth, truth.usage()))[:-1], b'data: {"timings": ' + text + b"}\n\n", _DONE]


def _forever(step: bytes, pause_s: float = 0.01) -> Iterator[Step]:
    for _ in range(_BEATS):
        yield step
        yield pause_s


def _halves(tokens: int) -> list[str]:
    return ["a\ud83d", "\ude00b\udfff"] * (tokens // 2) + ["."] * (tokens % 2)


def _hidden_reasoning(truth: Truth) -> Iterable[Step]:
    details = {"reasoning_tokens": truth.max_tokens - 12}
    return whole(truth, truth.usage(completion_tokens_details=details), body=paced(truth, WORDS))


LIES: dict[str, Lie] = {
    "honest": Lie(answer=lambda truth: whole(truth, truth.usage()), expected="right"),
    "honest_details": Lie(answer=_cached(0), expected="right"),
    # ---- the completion's tokens ----
    "a_thousandfold": Lie(answer=_completion(lambda tokens: 1000 * tokens), expected="invalid"),
    "twice": Lie(answer=_completion(lambda tokens: 2 * tokens), expected="invalid"),
    "a_tenth_more": Lie(answer=_completion(lambda tokens: tokens + tokens // 10), expected="invalid"),
    "one_more": Lie(answer=_completion(lambda tokens: tokens + 1), expected="flagged"),
    "one_less": Lie(answer=_completion(lambda tokens: tokens - 1), expected="flagged"),
    "a_third_less": Lie(answer=_completion(lambda tokens: tokens * 2 // 3), expected="flagged"),
    "a_tenth": Lie(answer=_completion(lambda tokens: tokens // 10), expected="invalid"),
    "no_tokens": Lie(answer=_completion(lambda _: 0), expected="invalid"),
    "negative": Lie(answer=_completion(lambda tokens: -tokens), expected="invalid"),
    "true": Lie(answer=_completion(lambda _: True), expected="invalid"),
    "a_fraction": Lie(answer=_completion(lambda tokens: tokens + 0.5), expected="invalid"),
    "a_float": Lie(answer=_completion(float), expected="invalid"),
    "a_string": Lie(answer=_completion(str), expected="invalid"),
    "a_list": Lie(answer=_completion(lambda tokens: [tokens]), expected="invalid"),
    "beyond_64_bits": Lie(answer=_completion(lambda _: 2**63), expected="invalid"),
    "a_hundred_digits": Lie(answer=_completion(lambda _: 10**100), expected="invalid"),
    "not_a_number": Lie(answer=_raw_usage(b'{"prompt_tokens": 90, "completion_tokens": NaN}'), expected="invalid"),
    "unstated": Lie(answer=_completion(lambda _: None), expected="invalid"),
    "stated_twice": Lie(
        answer=_raw_usage(b'{"prompt_tokens": 90, "completion_tokens": 64, "completion_tokens": 12}'),
        expected="invalid",
    ),
    "for_a_few_bytes": Lie(answer=_text("a", "b", "c"), expected="invalid"),
    "other_timings": Lie(answer=_drafts(predicted_n=7), expected="flagged"),
    "other_total": Lie(answer=_usage(total_tokens=7), expected="flagged"),
    "hidden_reasoning": Lie(answer=_hidden_reasoning, expected="flagged"),
    "more_reasoning": Lie(answer=_usage(completion_tokens_details={"reasoning_tokens": 9999}), expected="invalid"),
    "more_predicted": Lie(
        answer=_usage(completion_tokens_details={"accepted_prediction_tokens": 9999}), expected="invalid"
    ),
    "negative_audio": Lie(answer=_usage(completion_tokens_details={"audio_tokens": -7}), expected="invalid"),
    "more_written_to_a_cache": Lie(
        answer=_usage(prompt_tokens_details={"cache_creation_tokens": 10**6}), expected="invalid"
    ),
    # ---- the prompt's ----
    "a_short_prompt": Lie(answer=_usage(prompt_tokens=20), expected="invalid"),
    "a_long_prompt": Lie(answer=_usage(prompt_tokens=10**6), expected="invalid"),
    "no_prompt": Lie(answer=_usage(prompt_tokens=0), expected="invalid"),
    "a_negative_prompt": Lie(answer=_usage(prompt_tokens=-5), expected="invalid"),
    "a_true_prompt": Lie(answer=_usage(prompt_tokens=True), expected="invalid"),
    "a_prompt_beyond_64_bits": Lie(answer=_usage(prompt_tokens=2**63), expected="invalid"),
    "cached_above_prompt": Lie(answer=_cached(5000), expected="invalid"),
    "cached_negative": Lie(answer=_cached(-7), expected="invalid"),
    "cached_true": Lie(answer=_cached(True), expected="invalid"),
    "cached_beyond_64_bits": Lie(answer=_cached(2**70), expected="invalid"),
    # ---- speculation's ----
    "accepted_above_drafted": Lie(answer=_drafts(draft_n=10, draft_n_accepted=11), expected="invalid"),
    "accepted_above_emitted": Lie(answer=_drafts(draft_n=900, draft_n_accepted=800), expected="invalid"),
    "drafted_beyond_64_bits": Lie(answer=_drafts(draft_n=2**64, draft_n_accepted=3), expected="invalid"),
    "drafted_true": Lie(answer=_drafts(draft_n=True, draft_n_accepted=True), expected="unknown"),
    "drafted_in_words": Lie(answer=_drafts(draft_n="60", draft_n_accepted="50"), expected="unknown"),
    "drafted_without_end": Lie(answer=_raw_drafts(b'{"draft_n": 1e999, "draft_n_accepted": 3}'), expected="unknown"),
    "drafted_negative": Lie(answer=_drafts(draft_n=-60, draft_n_accepted=-50), expected="invalid"),
    "drafted_without_measure": Lie(answer=_drafts(draft_n=10**6, draft_n_accepted=3), expected="flagged"),
    # ---- times ----
    "in_one_write": Lie(
        answer=lambda truth: [truth.gap_s * truth.max_tokens, b"".join(map(_bytes, whole(truth, truth.usage())))],
        expected="no_rate",
    ),
    "in_two_bursts": Lie(
        answer=lambda truth: whole(
            truth, truth.usage(), body=in_bursts(truth, [truth.max_tokens // 2, truth.max_tokens])
        ),
        expected="no_rate",
    ),
    "by_a_timer": Lie(
        answer=lambda truth: whole(truth, truth.usage(), body=in_bursts(truth, [8] * truth.max_tokens)),
        expected="no_rate",
    ),
    "with_the_tail_held_back": Lie(
        answer=lambda truth: whole(truth, truth.usage(), body=in_bursts(truth, [*[1] * 8, truth.max_tokens])),
        expected="no_rate",
    ),
    "with_the_first_held_back": Lie(
        answer=lambda truth: whole(truth, truth.usage(), body=in_bursts(truth, [truth.max_tokens - 2, 1, 1])),
        expected="no_rate",
    ),
    # ---- manners ----
    "goes_on_after_done": Lie(
        answer=lambda truth: [*whole(truth, truth.usage()), *_forever(delta(content="more"))], expected="right"
    ),
    "never_closes": Lie(
        answer=lambda truth: [*list(whole(truth, truth.usage()))[:-1], *_forever(b": beat\n\n")], expected="right"
    ),
    "never_ends": Lie(answer=lambda _: _forever(delta(content="a ") * 50, 0.001), expected="invalid"),
    "half_characters": Lie(
        answer=lambda truth: whole(truth, truth.usage(), body=paced(truth, _halves(truth.max_tokens))),
        expected="right",
    ),
    "an_odd_end": Lie(answer=lambda truth: [*paced(truth), finish({"\ud800": 1}), _DONE], expected="invalid"),
    "deep_json": Lie(answer=lambda _: [b"data: " + b'{"a":' * 100_000 + b"\n\n"], expected="invalid"),
    "parts": Lie(
        answer=lambda truth: whole(
            truth,
            truth.usage(),
            body=(
                step
                for word in truth.words
                for step in (truth.gap_s, delta(content=[{"type": "text", "text": word}]))
            ),
        ),
        expected="right",
    ),
    "closed_early": Lie(answer=lambda truth: [*paced(truth)], expected="invalid"),
}  # fmt: skip


def _bytes(step: Step) -> bytes:
    return step if isinstance(step, bytes) else b""


class LyingServer:
    """Serves until it is closed. A context manager.

    Args:
        gap_s: between two tokens.
    """

    def __init__(self, *, gap_s: float = 0.004) -> None:
        self._gap_s = gap_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            request = read_request(connection)
            if request is None:
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            words = sum(len(message["content"].split()) for message in request["messages"])
            truth = Truth(max_tokens=request["max_tokens"], prompt_tokens=words + TEMPLATE_TOKENS, gap_s=self._gap_s)
            lie = LIES[request["model"] if words > 5 else "honest"]  # the first, short request finds it ready
            connection.sendall(lie.head)
            for step in lie.answer(truth):
                if isinstance(step, bytes):
                    connection.sendall(step)
                else:
                    time.sleep(step)


def read_request(connection: socket.socket) -> dict[str, Any] | None:
    """The body of a POST; None: another request."""
    received = b""
    while b"\r\n\r\n" not in received:
        if not (more := connection.recv(65536)):
            return None
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    if not head.startswith(b"POST"):
        return None
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65536)
    parsed: dict[str, Any] = json.loads(body)
    return parsed


# ---- what became of a generation ----

PROMPT = "Say what the following list is about, one point after another, and be brief about it. " * 6
COUNT_FLAGS = frozenset(
    ("more_tokens_than_asked more_tokens_than_bytes fewer_tokens_than_words fewer_tokens_than_chunks"
     " completion_tokens_differ tokens_unverified reasoning_not_sent prompt_tokens_unlikely counts_disagree"
     " accepted_beyond_the_end drafted_unlikely").split()
)  # fmt: skip
RATE_FLAGS = frozenset(("delivered_at_once", "delivered_in_bursts"))
