"""One request of a server, read: its counts and its signs, without a server."""

import pytest

from workers.catalogue.matches import Seen
from workers.catalogue.signs import load
from workers.engines.server_counts import cached_tokens, completion_tokens
from workers.engines.server_signs import Asked, SignReader
from workers.errors import EngineError, FaultKind
from workers.http.answer import Answer
from workers.http.client import Client


@pytest.mark.parametrize(("usage", "recounted"), [({}, 0), ({"completion_tokens": 0}, 7)])
def test_an_answer_without_one_token_is_no_generation(usage: dict[str, int], recounted: int) -> None:
    with pytest.raises(EngineError, match="answered with") as caught:
        completion_tokens(Answer(response={"usage": usage}), recounted, [])
    assert caught.value.kind is FaultKind.zero_tokens


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
