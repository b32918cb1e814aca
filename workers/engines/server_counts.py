"""The counts of a server's answer: as its usage states them, or by a tokenizer, never by its chunks. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from workers.counts import Counts, Written, stated_count
from workers.engines.base import TurnRequest
from workers.errors import EngineError, FaultKind
from workers.http.answer import Answer
from workers.protocol import Evidence


def completion_tokens(answer: Answer, recounted: int | None, flags: list[str]) -> int:
    """Return the number of tokens of the answer.

    Args:
        recounted: by the model's tokenizer; None: there is none here.
        flags: `tokens_by_tokenizer` is added where the server states no count.

    Raises:
        EngineError: none at all, or nothing counts them.
    """
    stated = stated_count(answer.usage, "completion_tokens")
    if stated is not None:
        if stated == 0:
            raise EngineError(FaultKind.zero_tokens, f"the server answered with {stated} tokens by its usage")
        return stated
    if recounted is None:
        raise EngineError(
            FaultKind.generation_failed,
            "the server states no usage, and chunks are not tokens",
            remedy="set engine.tokenizer to the model's folder, or let the server send usage",
        )
    flags.append("tokens_by_tokenizer")
    if not recounted:
        raise EngineError(FaultKind.zero_tokens, "the server answered without one token")
    return recounted


def prompt_tokens(answer: Answer, prompt_ids: Sequence[int] | None, flags: list[str]) -> int:
    """Return the number of tokens of the prompt.

    Args:
        prompt_ids: by our own tokenizer; None: there is none here.
        flags: `prompt_tokens_differ` is added where both counts are known and differ.

    Raises:
        EngineError: nothing counts them.
    """
    stated = stated_count(answer.usage, "prompt_tokens")
    own = None if prompt_ids is None else len(prompt_ids)
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


def cached_tokens(answer: Answer, figures: Mapping[str, float]) -> int | None:
    """Prompt tokens that came from a cache; None: the server does not state them, which is not 0."""
    stated = stated_count(answer.usage.get("prompt_tokens_details"), "cached_tokens")
    if stated is None and "cached_tokens" in figures:
        return int(figures["cached_tokens"])
    return stated


def all_counts(
    request: TurnRequest,
    answer: Answer,
    evidence: Evidence,
    *,
    tokens: int,
    prompt: int,
    cached: int | None,
    own_prompt: int | None,
    recounted: int | None,
    drafted_per_step: int | None,
    ignores_end: bool,
) -> Counts:
    """All counts of one answer, which are checked against each other."""
    usage = answer.usage
    reasoning = stated_count(usage.get("completion_tokens_details"), "reasoning_tokens")
    broken = "\ufffd" in "".join(answer.written)  # bytes that were no character: their tokens cannot be recounted
    return Counts(
        max_tokens=request.max_tokens,
        prompt=prompt,
        cached=cached,
        completion=None if usage.get("completion_tokens") is None else tokens,
        reasoning=reasoning,
        total=stated_count(usage, "total_tokens"),
        prompt_parts=_parts(usage.get("prompt_tokens_details")),
        completion_parts=_parts(usage.get("completion_tokens_details")),
        others=_other_counts(answer.response),
        drafted=evidence.drafted,
        accepted=evidence.accepted,
        drafted_per_step=drafted_per_step,
        ignores_end=ignores_end,
        sent=Written.of([message["content"] for message in request.messages]),
        asked=Written.of([each["content"] for each in request.messages if each["role"] != "assistant"]),
        answered=Written.of(answer.written),
        hidden=bool(reasoning) and not answer.reasoning,
        chunks=sum(size > 0 for size in answer.pieces),
        own_prompt=own_prompt,
        own_completion=None if broken else recounted,
    )


def _parts(details: Any) -> dict[str, int]:
    """The counts of a usage's details. Rejected predictions are left out: they are no part of the answer.

    Raises:
        EngineError: one of them is no count.
    """
    if not isinstance(details, Mapping):
        return {}
    names = [name for name in details if name.endswith("_tokens") and not name.startswith("rejected_")]
    found = {name: stated_count(details, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _other_counts(response: Mapping[str, Any]) -> dict[str, int]:
    """The completion's tokens by other fields of the chunks: llama.cpp's timings, Ollama's own field."""
    timings = response.get("timings")
    found = {
        "timings.predicted_n": stated_count(timings, "predicted_n"),
        "eval_count": stated_count(response, "eval_count"),
    }
    return {name: value for name, value in found.items() if value is not None}
