"""Event streams in every shape that servers send, cut at every byte."""

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workers.http import sse
from workers.http.sse import Event, SseError, SseParser


def parse(chunks: Iterable[bytes]) -> list[Event]:
    parser = SseParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return [*events, *parser.close()]


def by_the_standard(stream: bytes) -> list[Event]:
    """The same rules on the whole text at once, written as the standard words them."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events, data, name = [], [], ""
    for line in [*text.split(b"\n"), b""]:
        if not line:
            if data:
                events.append(Event("\n".join(data), name))
            data, name = [], ""
            continue
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field.lstrip(b" ") == b"data":
            data.append(value.decode("utf-8", "replace"))
        elif field.lstrip(b" ") == b"event":
            name = value.decode("utf-8", "replace")
    return events


@pytest.mark.parametrize(
    ("stream", "data"),
    [
        (b"data: a\n\n", ["a"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a\n\n", [" a"]),
        (b"data: a\r\n\r\n", ["a"]),
        (b"data: a\r\r", ["a"]),
        (b"data: a\r\n\ndata: b\r\r\n", ["a", "b"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data\n\n", [""]),
        (b"data:\n\n", [""]),
        (b": keepalive 1/8\n\ndata: a\n\n", ["a"]),
        (b":\n\n:\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"\n\n\ndata: a\n\n\n\n", ["a"]),
        (b"   data: a\n\n", ["a"]),
        (b"      \ndata: a\n\n", ["a"]),
        (b"id: 7\nretry: 3\nunknown: x\ndata: a\n\n", ["a"]),
        (b"data: a", ["a"]),
        (b"data: [DONE]\n", ["[DONE]"]),
        (b"", []),
        ("data: \u00e4\u20ac\U0001f600\n\n".encode(), ["\u00e4\u20ac\U0001f600"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        ("data: a\u2028b\u0085c\x0bd\x1ce\n\n".encode(), ["a\u2028b\u0085c\x0bd\x1ce"]),
    ],
)
def test_streams_as_servers_send_them(stream: bytes, data: list[str]) -> None:
    assert [event.data for event in parse([stream])] == data
    assert parse([stream]) == by_the_standard(stream)


def test_an_events_name_is_its_own() -> None:
    assert parse([b"event: error\ndata: a\n\ndata: b\n\n"]) == [Event("a", "error"), Event("b", "")]
    assert parse([b"event: error\n\ndata: b\n\n"]) == [Event("b", "")]


def test_comments_are_counted_and_no_events() -> None:
    parser = SseParser()
    assert parser.feed(b": keepalive 1/3\n\n: keepalive 2/3\r\n\r\n:\n") == []
    assert parser.comments == 3


def test_an_event_is_reported_with_the_byte_that_completes_it() -> None:
    """A reader that waited for the byte after a CR would stamp every token one token late."""
    for ending in (b"\n\n", b"\r\r", b"\r\n\r"):
        parser = SseParser()
        before = [event for place in range(len(ending) - 1) for event in parser.feed(ending[place : place + 1])]
        assert before == []
        assert parser.feed(b"data: a") == []
        events = [parser.feed(ending[place : place + 1]) for place in range(len(ending))]
        assert [len(each) for each in events] == [0] * (len(ending) - 1) + [1]


def test_every_cut_into_two_and_into_single_bytes() -> None:
    stream = '\ufeff: hi\r\n\r\ndata:{"a":\r\ndata: "\u00e4\U0001f600"}\r\revent: x\ndata: b\n\r\n data: c'.encode()
    expected = by_the_standard(stream)
    assert len(expected) == 3
    for cut in range(len(stream) + 1):
        assert parse([stream[:cut], stream[cut:]]) == expected, cut
    assert parse(stream[place : place + 1] for place in range(len(stream))) == expected


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    with pytest.raises(SseError, match="an event of more than"):
        parse([b"x" * 100] * 11)


def test_an_event_of_many_lines_is_refused_as_one_of_a_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    with pytest.raises(SseError, match="an event of more than"):
        parse([b"data: " + b"x" * 100 + b"\n"] * 11)
    assert len(parse([b"data: " + b"x" * 100 + b"\n\n"] * 11)) == 11


LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
VALUES = st.one_of(
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=12),
    st.sampled_from([b'{"choices":[{"delta":{"content":"\xe2\x82\xac"}}]}', b"[DONE]", b"", b" ", b"  x"]),
)
FIELDS = st.sampled_from(
    [b"data:", b"data: ", b"data", b"event:", b"event: ", b":", b": keepalive", b"id: ", b" data:"]
)
LINES = st.one_of(st.builds(lambda name, value: name + value, FIELDS, VALUES), st.just(b""), VALUES)
STREAMS = st.builds(
    lambda bom, lines: bom + b"".join(line + end for line, end in lines[:-1]) + (lines[-1][0] if lines else b""),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(st.tuples(LINES, LINE_ENDS), max_size=12),
)


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    """The stream in pieces, some of them empty."""
    bounds = [0, *sorted(min(place, len(stream)) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


@given(STREAMS, st.lists(st.integers(0, 300), max_size=20))
@example(b"data: a\r\n\r\n", [8, 9, 10])
@settings(max_examples=300, deadline=None)
def test_any_chunking_gives_the_same_events(stream: bytes, places: list[int]) -> None:
    assert parse(cut(stream, places)) == by_the_standard(stream)


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=10))
@settings(max_examples=300, deadline=None)
def test_any_bytes_at_all_give_the_same_events(stream: bytes, places: list[int]) -> None:
    assert parse(cut(stream, places)) == by_the_standard(stream)


SPLITS_AN_EXAMPLE = 50


@pytest.mark.nightly
@given(STREAMS, st.integers(0, 2**32 - 1))
@settings(max_examples=2_200, deadline=None)
def test_a_hundred_thousand_cuts(stream: bytes, seed: int) -> None:
    """2,200 streams that Hypothesis draws, each cut in 50 ways of its own: 110,000 cases of stream and chunking.

    Hypothesis shrinks the stream and the seed of the cuts; the cuts themselves come of that seed.
    """
    expected = by_the_standard(stream)
    luck = random.Random(seed)
    for _ in range(SPLITS_AN_EXAMPLE):
        places = [luck.randrange(len(stream) + 1) for _ in range(luck.randrange(12))]
        assert parse(cut(stream, places)) == expected, places
