"""Checks every count that a generation states against the request, the text and the other counts. Pure.

A part is never larger than its whole, nothing is written that no token wrote, and no token writes less than a byte that
somebody sees, but for a few. What cannot be makes the generation invalid (`require_possible`); what is unlikely is
flagged (`unlikely`) and named by the audit. A count that is not stated is None and is checked against nothing.

Slack, so that no honest server is refused:

- `accepted` and `completion` may pass their limits by one verify step's drafts: a step may end beyond the answer's end,
  and some servers count it whole. `completion` may pass `max_tokens` by an end-of-sequence token.
- `SILENT_TOKENS` of an answer may be without text: its end, the marks around reasoning and tool calls. Where the end of
  the text is ignored, any number may be. Reasoning that is counted and not sent is without text too.
- Hardly a tokenizer merges words: a text has at least half as many tokens as words that white space parts, and at least
  one for `BYTES_PER_TOKEN` bytes. The longest tokens of today's vocabularies, runs of white space, have 128 bytes.
- A prompt's template adds up to `TEMPLATE_TOKENS`.
- Counted again by the model's own tokenizer, a text gives about as many tokens. It may give several times as many where
  the answer holds tokens whose names are text (untrained models write them), but never half as many less
  `RECOUNT_TOKENS`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.errors import EngineError, FaultKind

SILENT_TOKENS = 8
BYTES_PER_TOKEN = 128
TEMPLATE_TOKENS = 4096
RECOUNT_TOKENS = 16
_LIKELY_BYTES_PER_TOKEN = 16
_LIKELY_TEMPLATE_TOKENS = 256
_LIKELY_RECOUNT = 0.1
_LIKELY_DRAFTS_PER_STEP = 64
_LARGEST = 2**63 - 1  # what a database stores
_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The size of a text, whatever tokens wrote it."""

    size_bytes: int
    words: int  # parts between white space

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Written":
        return cls(
            size_bytes=sum(len(text.encode("utf-8", "replace")) for text in texts),
            words=sum(len(text.split()) for text in texts),
        )

    def least_tokens(self) -> int:
        """Fewer cannot have written this, nor read it."""
        return max(self.words // 2, self.size_bytes // BYTES_PER_TOKEN)

    def likely_tokens(self) -> int:
        """Fewer are unlikely."""
        return max(self.words, self.size_bytes // _LIKELY_BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counts that one generation states, and those known besides; None: not stated, or unknown.

    Attributes:
        prompt, cached, completion, reasoning, total: tokens, as they were stated.
        prompt_parts, completion_parts: further parts of the two, by name: audio, cached for writing, predicted.
        others: further statements of the completion's tokens, by where they were found.
        drafted, accepted: proposed tokens, and those of them that were committed.
        drafted_per_step: the width of speculation.
        max_tokens: of the request. ignores_end: the answer goes on beyond the end of the text.
        sent: the request's texts. asked: those of them that no template leaves out, as some do with earlier reasoning.
        answered: everything that was written.
        hidden: reasoning was counted and none was sent.
        chunks: pieces of text that came.
        own_prompt, own_completion: counted by the model's tokenizer.
    """

    max_tokens: int
    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    reasoning: int | None = None
    total: int | None = None
    prompt_parts: Mapping[str, int] | None = None
    completion_parts: Mapping[str, int] | None = None
    others: Mapping[str, int] | None = None
    drafted: int | None = None
    accepted: int | None = None
    drafted_per_step: int | None = None
    ignores_end: bool = False
    sent: Written | None = None
    asked: Written | None = None
    answered: Written | None = None
    hidden: bool = False
    chunks: int | None = None
    own_prompt: int | None = None
    own_completion: int | None = None

    @property
    def answer_tokens(self) -> int | None:
        """Tokens of the answer: as stated, otherwise at most the tokenizer's count with its slack."""
        if self.completion is not None or self.own_completion is None:
            return self.completion
        return 2 * self.own_completion + RECOUNT_TOKENS

    @property
    def overshoot(self) -> int:
        """Tokens by which a last verify step may pass the answer's end."""
        return self.drafted_per_step or 0


def stated_count(holder: Any, name: str) -> int | None:
    """Read a count as a server states it; None if it is missing or null.

    Raises:
        EngineError: the value is not a count: not a whole number, negative, or too large to store.
    """
    value = holder.get(name) if isinstance(holder, Mapping) else None
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= _LARGEST:  # a bool is an int to isinstance
        raise _impossible_count(f"{name} is {value!r:.{_SHOWN}}, which is not a whole number from 0 to 2^63 - 1")
    return value


def require_possible(counts: Counts) -> None:
    """Check that no statement contradicts what is known.

    Raises:
        EngineError: it does, and how.
    """
    problem = next(_impossible(counts), None)
    if problem is not None:
        raise _impossible_count(problem)


def unlikely(counts: Counts) -> list[str]:
    """Flags of what is possible and hardly so."""
    return list(_unlikely(counts))


def _impossible_count(problem: str) -> EngineError:
    return EngineError(FaultKind.impossible_count, problem, remedy="no rate can be made of this server's counts")


def _impossible(counts: Counts) -> Iterator[str]:
    yield from _out_of_range(counts)
    yield from _larger_than_the_whole(counts)
    yield from _impossible_completion(counts)
    yield from _impossible_prompt(counts)


def _out_of_range(counts: Counts) -> Iterator[str]:
    for name in ("prompt", "cached", "completion", "reasoning", "drafted", "accepted"):
        value = getattr(counts, name)
        if value is not None and not 0 <= value <= _LARGEST:
            yield f"{value!r:.{_SHOWN}} {name} tokens are stated"


def _larger_than_the_whole(counts: Counts) -> Iterator[str]:
    if _more(counts.cached, counts.prompt):
        yield f"{counts.cached} cached tokens are stated of a prompt of {counts.prompt}"
    if _more(counts.reasoning, counts.completion):
        yield f"{counts.reasoning} reasoning tokens are stated of {counts.completion} completion tokens"
    for whole, parts in ((counts.prompt, counts.prompt_parts), (counts.completion, counts.completion_parts)):
        for name, part in (parts or {}).items():
            if _more(part, whole):
                yield f"{part} {name:.{_SHOWN}} are stated of {whole} tokens"
    if _more(counts.accepted, counts.drafted):
        yield f"{counts.accepted} accepted tokens are stated of {counts.drafted} drafted ones"
    if _more(counts.accepted, counts.answer_tokens, slack=counts.overshoot):
        yield f"{counts.accepted} accepted tokens are stated in an answer of {counts.answer_tokens}"


def _impossible_completion(counts: Counts) -> Iterator[str]:
    stated, answered, own = counts.completion, counts.answered, counts.own_completion
    if stated is None:
        if own is not None and own > 8 * counts.max_tokens + RECOUNT_TOKENS:
            yield f"the model's tokenizer counts {own} completion tokens for max_tokens {counts.max_tokens}"
        return
    if stated > counts.max_tokens + max(1, counts.overshoot):
        yield f"{stated} completion tokens are stated for max_tokens {counts.max_tokens}"
    if answered is None:
        return
    if stated > answered.size_bytes + SILENT_TOKENS + _hidden(counts) and not counts.ignores_end:
        yield f"{stated} completion tokens are stated for {answered.size_bytes} bytes of text"
    if stated < answered.least_tokens():
        yield f"{stated} completion tokens are stated for {answered.words} words, {answered.size_bytes} bytes"
    if own is not None and stated - _hidden(counts) > 2 * own + RECOUNT_TOKENS:
        yield f"{stated} completion tokens are stated, and the model's tokenizer counts {own}"


def _impossible_prompt(counts: Counts) -> Iterator[str]:
    stated, own = counts.prompt, counts.own_prompt
    if stated is None:
        return
    if counts.asked is not None and stated < counts.asked.least_tokens():
        yield f"{stated} prompt tokens are stated for {counts.asked.words} words, {counts.asked.size_bytes} bytes"
    if counts.sent is not None and stated > counts.sent.size_bytes + TEMPLATE_TOKENS:
        yield f"{stated} prompt tokens are stated for {counts.sent.size_bytes} bytes"
    if own is not None and not own // 2 - RECOUNT_TOKENS <= stated <= 2 * own + TEMPLATE_TOKENS:
        yield f"{stated} prompt tokens are stated, and the model's tokenizer counts {own}"


def _unlikely(counts: Counts) -> Iterator[str]:
    yield from _unlikely_completion(counts)
    yield from _unlikely_prompt(counts)
    yield from _unlikely_drafts(counts)
    sums = None if counts.prompt is None or counts.completion is None else counts.prompt + counts.completion
    if (counts.total is not None and sums is not None and counts.total != sums) or any(
        abs(value - (counts.completion or 0)) > 1 for value in (counts.others or {}).values()
    ):
        yield "counts_disagree"


def _unlikely_completion(counts: Counts) -> Iterator[str]:
    stated, answered = counts.completion, counts.answered
    if stated is None or answered is None:
        return
    if stated > counts.max_tokens:
        yield "more_tokens_than_asked"
    if counts.hidden:
        yield "reasoning_not_sent"
    elif stated > answered.size_bytes:
        yield "more_tokens_than_bytes"
    if stated < answered.likely_tokens():
        yield "fewer_tokens_than_words"
    if counts.chunks is not None and stated < counts.chunks:
        yield "fewer_tokens_than_chunks"
    if counts.own_completion is not None:
        recounted = counts.own_completion + _hidden(counts)
        if abs(stated - recounted) > 2 + _LIKELY_RECOUNT * recounted:
            yield "completion_tokens_differ"
    elif counts.chunks is not None and stated not in (counts.chunks, counts.chunks + 1):
        yield "tokens_unverified"


def _unlikely_prompt(counts: Counts) -> Iterator[str]:
    stated, asked, sent = counts.prompt, counts.asked, counts.sent
    if stated is None or asked is None or sent is None or counts.own_prompt is not None:
        return  # the model's tokenizer is the better judge
    if not asked.likely_tokens() <= stated <= sent.size_bytes + _LIKELY_TEMPLATE_TOKENS:
        yield "prompt_tokens_unlikely"


def _unlikely_drafts(counts: Counts) -> Iterator[str]:
    if counts.completion is None:
        return
    if _more(counts.accepted, counts.completion):
        yield "accepted_beyond_the_end"
    steps = counts.completion + 1
    if counts.drafted is not None and counts.drafted > (counts.drafted_per_step or _LIKELY_DRAFTS_PER_STEP) * steps:
        yield "drafted_unlikely"


def _hidden(counts: Counts) -> int:
    return (counts.reasoning or 0) if counts.hidden else 0


def _more(part: int | None, whole: int | None, *, slack: int = 0) -> bool:
    return part is not None and whole is not None and part > whole + slack
