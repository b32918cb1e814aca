"""One request of a server, read: its counts and its signs, without a server."""

import pytest

from workers.catalogue.matches import Seen
from workers.catalogue.signs import load
from workers.counts import Counts
from workers.engines.base import TurnRequest
from workers.engines.server_counts import all_counts, cached_tokens, completion_tokens, prompt_tokens
from workers.engines.server_signs import Asked, SignReader
from workers.errors import EngineError, FaultKind
from workers.http.answer import Answer
from workers.http.client import Client
from workers.protocol import Evidence


@pytest.mark.parametrize(("usage", "recounted"), [({}, 0), ({"completion_tokens": 0}, 7)])
def test_an_answer_without_one_token_is_no_generation(usage: dict[str, int], recounted: int) -> None:
    with pytest.raises(EngineError, match="answered with") as caught:
        completion_tokens(Answer(response={"usage": usage}), recounted, [])
    assert caught.value.kind is FaultKind.zero_tokens


def test_tokens_that_nothing_counts_are_no_guess() -> None:
    unstated = Answer(response={"usage": {}})
    for count in (completion_tokens, prompt_tokens):
        with pytest.raises(EngineError, match=r"set engine\.tokenizer") as caught:
            count(unstated, None, [])
        assert caught.value.kind is FaultKind.generation_failed


@pytest.mark.parametrize(
    ("stated", "own", "tokens", "flags"),
    [(5, None, 5, []), (5, 5, 5, []), (5, 4, 5, ["prompt_tokens_differ"]), (None, 4, 4, [])],
)
def test_a_prompt_of_another_length_than_ours_is_flagged(
    stated: int | None, own: int | None, tokens: int, flags: list[str]
) -> None:
    found: list[str] = []
    answer = Answer(response={"usage": {"prompt_tokens": stated}})
    assert prompt_tokens(answer, None if own is None else range(own), found) == tokens
    assert found == flags


def test_usage_states_the_cached_tokens_before_any_other_figure() -> None:
    stated = Answer(response={"usage": {"prompt_tokens_details": {"cached_tokens": 5}}})
    assert cached_tokens(stated, {"cached_tokens": 7.0}) == 5
    assert cached_tokens(Answer(), {"cached_tokens": 7.0}) == 7
    assert cached_tokens(Answer(), {}) is None


@pytest.mark.parametrize(
    ("response", "knows_plain", "engaged"),
    [
        ({"timings": {"draft_n": 40, "draft_n_accepted": 30}}, False, True),
        ({}, True, False),
        ({}, False, None),
    ],
)
def test_a_draft_that_nobody_asked_for_is_seen_where_silence_shows_nothing(
    response: dict[str, object], knows_plain: bool, engaged: bool | None
) -> None:
    reader = SignReader(Client("http://127.0.0.1:9"), load("llama_cpp"))
    asked = Asked(mechanism=None, model="m", version=None, knows_plain=knows_plain)
    assert reader.evidence(Seen(response=response), asked)[0].engaged is engaged


def counts_of(answer: Answer, *, recounted: int | None = 12) -> Counts:
    messages = [
        {"role": "user", "content": "one two"},
        {"role": "assistant", "content": "three four five six"},
        {"role": "user", "content": "seven"},
    ]
    return all_counts(
        TurnRequest(messages=messages, turn=1, max_tokens=64, seed=0),
        answer,
        Evidence(mechanism="plain", requested=True, engaged=True, useful=None, source="s", text="t", drafted=9),
        tokens=12,
        prompt=40,
        cached=None,
        own_prompt=None,
        recounted=recounted,
        drafted_per_step=None,
        ignores_end=False,
    )


def test_the_parts_of_a_usage_are_its_tokens_without_rejected_predictions() -> None:
    details = {"reasoning_tokens": 3, "accepted_prediction_tokens": 2, "rejected_prediction_tokens": 5, "seconds": 7}
    usage = {"completion_tokens": 12, "completion_tokens_details": details | {"audio_tokens": None}, "total_tokens": 52}
    found = counts_of(Answer(text="a b", response={"usage": usage}))
    assert found.completion_parts == {"reasoning_tokens": 3, "accepted_prediction_tokens": 2}
    assert (found.prompt_parts, found.completion, found.total, found.reasoning) == ({}, 12, 52, 3)
    assert (found.sent.words, found.asked.words, found.answered.words, found.drafted) == (7, 3, 2, 9)


@pytest.mark.parametrize(
    ("reasoning_tokens", "reasoning", "hidden"),
    [(3, "", True), (3, "thought", False), (0, "", False), (None, "", False)],
)
def test_reasoning_that_is_counted_and_not_sent_is_hidden(
    reasoning_tokens: int | None, reasoning: str, hidden: bool
) -> None:
    usage = {"completion_tokens_details": {"reasoning_tokens": reasoning_tokens}}
    found = counts_of(Answer(text="a", reasoning=reasoning, response={"usage": usage}))
    assert found.hidden is hidden
    assert found.completion is None  # the usage does not state it


@pytest.mark.parametrize(("text", "own"), [("whole", 12), ("bro\ufffdken", None)])
def test_an_answer_with_broken_characters_is_not_recounted(text: str, own: int | None) -> None:
    assert counts_of(Answer(text=text)).own_completion == own


def test_the_counts_of_other_fields_are_kept_by_their_names() -> None:
    response = {"timings": {"predicted_n": 11, "prompt_n": 40}, "eval_count": 12}
    assert counts_of(Answer(response=response)).others == {"timings.predicted_n": 11, "eval_count": 12}
    assert counts_of(Answer(response={"timings": "off"})).others == {}
