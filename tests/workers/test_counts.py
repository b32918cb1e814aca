"""Impossible counts are refused, unlikely ones are flagged, and honest ones are neither."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.counts import Counts, Written, require_possible, stated_count, unlikely
from workers.errors import EngineError, FaultKind

PROMPT = "Write down what a linked list is. " * 50  # 350 words
ANSWER = "A linked list is a chain of nodes, and each of them knows the next."  # 15 words
HONEST = Counts(
    max_tokens=64,
    prompt=420,
    cached=100,
    completion=17,
    total=437,
    drafted=20,
    accepted=12,
    sent=Written.of([PROMPT]),
    asked=Written.of([PROMPT]),
    answered=Written.of([ANSWER]),
    chunks=16,
)


def test_an_honest_statement_passes() -> None:
    require_possible(HONEST)
    assert unlikely(HONEST) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"completion": 3000, "max_tokens": 16}, "3000 completion tokens are stated for max_tokens 16"),
        ({"completion": 66}, "66 completion tokens are stated for max_tokens 64"),
        ({"completion": 60, "answered": Written.of(["abc"])}, "60 completion tokens are stated for 3 bytes of text"),
        ({"completion": 3, "accepted": None}, "3 completion tokens are stated for 15 words"),
        ({"completion": 60, "own_completion": 15}, "the model's tokenizer counts 15"),
        ({"completion": -3}, "-3 completion tokens"),
        ({"cached": 421}, "421 cached tokens are stated of a prompt of 420"),
        ({"cached": -7}, "-7 cached tokens"),
        ({"cached": 2**70}, "cached tokens are stated"),
        ({"reasoning": 18}, "18 reasoning tokens are stated of 17"),
        ({"accepted": 21}, "21 accepted tokens are stated of 20 drafted ones"),
        ({"accepted": 18}, "18 accepted tokens are stated in an answer of 17"),
        ({"accepted": 18, "drafted": None, "drafted_per_step": 0}, "in an answer of 17"),
        ({"drafted": 2**63}, "drafted tokens are stated"),
        ({"prompt": 20, "cached": 0}, "20 prompt tokens are stated for 350 words"),
        ({"prompt": 10**6}, "1000000 prompt tokens are stated for 1700 bytes"),
        ({"completion": None, "max_tokens": 16, "own_completion": 190}, "190 completion tokens for max_tokens 16"),
        ({"completion": None, "own_completion": 1, "accepted": 20}, "20 accepted tokens are stated in an answer of 18"),
        ({"prompt": 180, "own_prompt": 430}, "the model's tokenizer counts 430"),
    ],
)
def test_what_cannot_be_is_refused_with_the_contradiction(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineError, match=words) as refused:
        require_possible(replace(HONEST, **changes))
    assert refused.value.kind is FaultKind.impossible_count


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"completion": 65, "answered": Written.of([ANSWER * 3]), "chunks": 64}, "more_tokens_than_asked"),
        ({"completion": 8, "answered": Written.of(["abc"]), "chunks": 8, "accepted": 3}, "more_tokens_than_bytes"),
        ({"completion": 12, "chunks": 12}, "fewer_tokens_than_words"),
        ({"chunks": 40}, "fewer_tokens_than_chunks"),
        ({"own_completion": 13}, "completion_tokens_differ"),
        ({"own_completion": 60}, "completion_tokens_differ"),
        ({"chunks": 9}, "tokens_unverified"),
        ({"reasoning": 5, "hidden": True}, "reasoning_not_sent"),
        ({"total": 500}, "counts_disagree"),
        ({"others": {"timings.predicted_n": 40}}, "counts_disagree"),
        ({"prompt": 300}, "prompt_tokens_unlikely"),
        ({"accepted": 18, "drafted_per_step": 4}, "accepted_beyond_the_end"),
        ({"drafted": 2000}, "drafted_unlikely"),
    ],
)  # fmt: skip
def test_what_is_hardly_so_is_flagged(changes: dict[str, Any], flag: str) -> None:
    counts = replace(HONEST, **changes)
    require_possible(counts)
    assert flag in unlikely(counts)


def test_a_last_verify_step_and_an_ignored_end_are_given_their_slack() -> None:
    require_possible(replace(HONEST, accepted=32, drafted=40, drafted_per_step=15))
    require_possible(replace(HONEST, max_tokens=10, drafted_per_step=7))
    require_possible(replace(HONEST, completion=64, answered=Written.of(["abc"]), ignores_end=True))


@pytest.mark.parametrize("value", [True, False, 3.0, "3", -1, 2**63, 10**400, [3], {"n": 3}])
def test_what_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(EngineError, match=r"completion_tokens is .* not a whole number") as refused:
        stated_count({"completion_tokens": value}, "completion_tokens")
    assert refused.value.kind is FaultKind.impossible_count
    assert len(str(refused.value)) < 250


def test_what_is_not_stated_is_unknown() -> None:
    assert [stated_count(holder, "n") for holder in ({}, {"n": None}, None, [], "n")] == [None] * 5
    assert stated_count({"n": 0}, "n") == 0


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=6), min_size=1, max_size=60))
def test_any_tokens_count_as_themselves(tokens: list[str]) -> None:
    """However a tokenizer cuts a text, as long as its tokens are visible and begin with at most one space."""
    text = "".join(f" {''.join(token.split()) or 'x'}" for token in tokens)
    written = Written.of([text])
    assert written.least_tokens() <= len(tokens) <= written.size_bytes
