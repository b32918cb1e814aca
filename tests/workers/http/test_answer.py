"""An answer from the chunks of its stream: what each may bring, and what is none of it."""

import json
from typing import Any

import pytest

from workers.errors import EngineError, FaultKind
from workers.http.answer import DONE, Answer, error_in
from workers.http.sse import Event


def chunk(**values: Any) -> Event:
    return Event(json.dumps(values))


def delta(finish: str | None = None, index: int | None = None, **values: Any) -> dict[str, Any]:
    """One choice of a chunk."""
    choice: dict[str, Any] = {"delta": values, "finish_reason": finish}
    return choice if index is None else choice | {"index": index}


def answer_to(*chunks: Event) -> Answer:
    answer = Answer()
    for each in chunks:
        answer.take(each)
    return answer


def test_a_later_chunk_without_a_value_leaves_the_stated_one() -> None:
    """Servers that state the usage once send null for it before and after."""
    usage = {"completion_tokens": 3}
    answer = answer_to(
        chunk(choices=[delta(content="a")], usage=None, id="x"),
        chunk(choices=[delta("stop")], usage=usage, id="x"),
        chunk(choices=[], usage=None, id=None),
    )
    assert answer.usage == usage
    assert answer.response == {"usage": usage, "id": "x"}


def test_the_last_stated_value_counts() -> None:
    answer = answer_to(*(chunk(choices=[], usage={"completion_tokens": number}) for number in (1, 2)))
    assert answer.usage == {"completion_tokens": 2}


def test_only_the_first_choice_is_the_answer() -> None:
    other = delta(content="no", index=1)
    answer = answer_to(
        chunk(choices=[other]),
        chunk(choices=[other, delta(content="yes", index=0)]),
        chunk(choices=["junk", delta(content=" and", index=0)]),
        chunk(choices=[delta(content=" so")]),
        chunk(choices={"delta": {"content": "no"}}),
        chunk(choices=[delta("stop", index=1)]),
    )
    assert (answer.text, answer.pieces, answer.finish_reason, answer.empty_chunks) == ("yes and so", [3, 4, 3], None, 3)


def test_each_channel_is_kept_apart_and_ticks() -> None:
    call = {"function": {"name": "f", "arguments": "{}"}}
    events = [
        chunk(choices=[delta(role="assistant", content="")]),
        chunk(choices=[delta(reasoning_content="hm")]),
        chunk(choices=[delta(reasoning="m")]),
        chunk(choices=[delta(content=[{"text": "a"}, {"text": 1}, "b"])]),
        chunk(choices=[{"text": "plain"}]),
        chunk(choices=[delta(tool_calls=[call, None])]),
        chunk(choices=[delta(function_call={"name": "g", "arguments": None})]),
        chunk(choices=[delta("tool_calls")]),
    ]
    answer = Answer()
    assert [answer.take(each) for each in events] == [False, *[True] * 7]
    assert answer.written == ("aplain", "hmm", "f{}g")
    assert answer.pieces == [2, 1, 1, 5, 3, 1, 0]
    assert (answer.finish_reason, answer.whole, answer.empty_chunks, answer.refusal) == ("stop", True, 1, False)
    answer.require_complete()


def test_a_refusal_is_text_and_is_marked() -> None:
    assert (answer_to(chunk(choices=[delta(refusal="no")])).text, True) == ("no", True)
    assert answer_to(chunk(choices=[delta(refusal="no")])).refusal
    both = answer_to(chunk(choices=[delta(content="yes", refusal="no")]))
    assert (both.text, both.refusal) == ("yes", False)


@pytest.mark.parametrize(
    ("said", "known"),
    [("stop", "stop"), ("eos", "stop"), ("EOS", "stop"), ("max_tokens", "length"), ("length", "length")],
)
def test_servers_words_for_the_end(said: str, known: str) -> None:
    assert answer_to(chunk(choices=[delta(said)])).finish_reason == known


@pytest.mark.parametrize("said", ["content_filter", "error", "", 3, ["stop"]])
def test_any_other_end_is_a_failure(said: Any) -> None:
    with pytest.raises(EngineError, match="the server ended the answer with") as failed:
        answer_to(chunk(choices=[delta(content="par tial")]), chunk(choices=[delta(said)]))
    assert failed.value.kind is FaultKind.generation_failed
    assert "(after 1 pieces of text)" in str(failed.value)
    assert failed.value.__notes__ == ["partial answer: 'par tial'"]


@pytest.mark.parametrize(
    ("events", "words"),
    [([], "no finish reason and no [DONE]"), ([Event(f" {DONE} ")], "[DONE] without a finish reason")],
)
def test_a_stream_that_ends_without_the_answers_end_was_cut_short(events: list[Event], words: str) -> None:
    answer = answer_to(*events)
    assert not answer.whole
    with pytest.raises(EngineError) as failed:
        answer.require_complete()
    assert f"the stream ended with {words}: cut short" in str(failed.value)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Event('{"error": {"message": "out\\n of luck"}}'), "reported an error within its stream: out of luck"),
        (Event('{"error": "no"}'), "within its stream: no"),
        (Event('{"object": "error", "message": "bad"}'), "within its stream: bad"),
        (Event('{"choices": []}', "error"), "within its stream"),
        (Event("words", "error"), "within its stream: words"),
        (Event("[1]"), "within its stream: [1]"),
        (Event("words"), "sent invalid JSON: 'words'"),
    ],
)
def test_an_error_within_the_stream_is_reported(event: Event, words: str) -> None:
    with pytest.raises(EngineError) as failed:
        Answer().take(event)
    assert words in str(failed.value)
    assert failed.value.kind is FaultKind.generation_failed


@pytest.mark.parametrize("body", [{}, {"error": None}, {"error": False}, {"object": "chunk", "message": "x"}])
def test_a_sound_answer_has_no_error(body: dict[str, Any]) -> None:
    assert error_in(body) is None


def test_an_error_without_a_message_is_shown_whole() -> None:
    assert error_in({"error": {"code": 3}}) == '{"code": 3}'
    assert error_in({"object": "error"}) == '{"object": "error"}'


@pytest.mark.parametrize(("size", "pieces"), [(1, 16 * 2 + 1024), (256 * 2 + 65536, 1)])
def test_an_answer_far_longer_than_asked_for_is_broken_off(size: int, pieces: int) -> None:
    answer = Answer(max_tokens=2)
    for _ in range(pieces):
        answer.take(chunk(choices=[delta(content="x" * size)]))
    with pytest.raises(EngineError, match="the answer does not end") as failed:
        answer.take(chunk(choices=[delta(content="x")]))
    assert failed.value.kind is FaultKind.too_long
    unlimited = Answer()
    for _ in range(pieces + 1):
        unlimited.take(chunk(choices=[delta(content="x" * size)]))
    assert len(unlimited.pieces) == pieces + 1
