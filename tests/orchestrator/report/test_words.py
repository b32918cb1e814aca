"""Numbers as people read them."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.report.words import (
    change,
    count,
    number,
    percent,
    seconds,
    shortened,
    size,
    span,
    times,
)


@given(st.text(min_size=1, max_size=200), st.integers(3, 80))
def test_a_shortened_name_keeps_both_ends(text: str, limit: int) -> None:
    short = shortened(text, limit)
    assert len(short) <= limit
    assert short == text or (text.startswith(short.partition("…")[0]) and len(short) == limit)


def test_a_name_is_shortened_in_its_middle() -> None:
    assert [shortened("abcdefghij", limit) for limit in (10, 9, 6, 3)] == ["abcdefghij", "abcd…ghij", "abc…ij", "a…j"]


def test_numbers_have_the_digits_that_count() -> None:
    assert [number(each) for each in (0.01234, 1.2345, 123.45, 12345.6, 0.0)] == [
        "0.0123",
        "1.23",
        "123",
        "12 346",
        "0",
    ]
    assert [percent(each) for each in (0.081, 0.28, 0.0, 1.0)] == ["8.1\u00a0%", "28\u00a0%", "0\u00a0%", "100\u00a0%"]
    assert [percent(each) for each in (0.0994, 0.0995, 0.0996, -0.0995, 0.0004)] == [
        f"{words}\u00a0%" for words in ("9.9", "10", "10", "-10", "0.0")
    ]
    assert [change(each) for each in (0.0, 0.02, -0.02)] == ["+0\u00a0%", "+2.0\u00a0%", "\u22122.0\u00a0%"]
    assert change(-0.153) == "\u221215\u00a0%"
    assert [times(each) for each in (1.0821, 12.04)] == ["1.08\u00d7", "12.0\u00d7"]
    assert [seconds(each) for each in (0.0381, 1.234, 150.0, 9000.0)] == ["38.1 ms", "1.23 s", "2 min", "2 h 30 min"]
    assert [size(each) for each in (512.0, 9.4e7, 3.1e9)] == ["512 B", "94.0 MB", "3.10 GB"]
    assert span(0.9, None) == "0.90 to \u2013"


def test_what_is_missing_is_a_dash_and_never_zero() -> None:
    assert {number(None), percent(None), seconds(None), size(None), times(None), count(None), span(None, None)} == {
        "\u2013"
    }
