"""Flags of an arm's generations that a reader of its figures must know. Pure: frames in, reasons out."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from orchestrator.statistics.comparability import Reason

# docs/evidence.md explains each. Flags that honest servers raise, such as a missing [DONE], are not included.
_WORDS = {
    "model_changed": "the answer names another model than an earlier answer did: the server has swapped it",
    "other_model": "the answer names another model than was asked for (set engine.model to the name that it states)",
    "delivered_at_once": "all tokens arrived together: no time of the first token, no decode rate",
    "delivered_in_bursts": "tokens were held back and arrived in few bursts: no decode rate",
    "batched_delivery": "tokens were held back a little: their decode rate is wrong by up to 2 %",
    "reasoning_not_sent": "reasoning was counted and not sent: no decode rate",
    "more_tokens_than_asked": "more completion tokens than max_tokens",
    "more_tokens_than_bytes": "more completion tokens than bytes of text",
    "fewer_tokens_than_words": "fewer completion tokens than words",
    "fewer_tokens_than_chunks": "fewer completion tokens than chunks of text",
    "completion_tokens_differ": "the model's tokenizer counts other completion tokens than the server",
    "tokens_unverified": "only the server counts the tokens that it wrote (set engine.tokenizer)",
    "prompt_tokens_unlikely": "prompt tokens that hardly fit the prompt's text",
    "counts_disagree": "two counts of the server contradict each other",
    "accepted_beyond_the_end": "more accepted tokens than the answer has",
    "drafted_unlikely": "more drafted tokens than verify steps could hold",
}


def oddities(measured: pd.DataFrame, arm: str) -> tuple[Reason, ...]:
    """Return one reason per flag that concerns the arm's figures, with the number of its generations that have it."""
    own = [_flags(value) for value in measured.loc[measured["label"] == arm, "flags"]]
    return tuple(_reasons(own, arm))


def _reasons(own: Sequence[frozenset[str]], arm: str) -> Iterator[Reason]:
    for flag, words in _WORDS.items():
        count = sum(flag in flags for flags in own)
        if count:
            yield Reason(code=flag, text=f"{arm}: {count} of {len(own)} generations: {words}")


def _flags(value: Any) -> frozenset[str]:
    return frozenset(map(str, value)) if isinstance(value, list | tuple) else frozenset()
