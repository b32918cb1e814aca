"""Numbers as people read them."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.report.words import (
    change,
    count,
    counted,
    decimals,
    ended,
    listed,
    number,
    p_value,
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


def test_units_change_where_a_person_would_change_them() -> None:
    found = [seconds(each) for each in (0.9994, 1.0, 119.9, 120.0, 7100.0, 7169.0, 7170.0, 7260.0)]
    assert found == ["999 ms", "1.00 s", "120 s", "2 min", "118 min", "119 min", "2 h 0 min", "2 h 1 min"]
    sizes = [size(each) for each in (999.0, 1e3, 999e3, 1e6, 1e9, 1e12)]
    assert sizes == ["999 B", "1.00 kB", "999 kB", "1.00 MB", "1.00 GB", "1.00 TB"]
    assert [times(each) for each in (9.994, 9.996, 10.0)] == ["9.99\u00d7", "10.0\u00d7", "10.0\u00d7"]
    assert [p_value(each) for each in (0.0, 0.0004, 0.0005, 0.04, 1.0, None)] == [
        *("<0.001", "<0.001", "0.001", "0.040", "1.000", "\u2013")
    ]
    assert [decimals(each) for each in (0.0, 1.23456, None)] == ["0.000", "1.235", "\u2013"]


def test_words_for_counts_and_lists() -> None:
    assert [counted(each, "trial") for each in (0, 1, 1234)] == ["0 trials", "1 trial", "1 234 trials"]
    assert [listed(list(each)) for each in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
    assert [ended(each) for each in ("so", "so.", "so!", "so?")] == ["so.", "so.", "so!", "so?"]
    assert (span(None, 2.0), span(1.0, 2.0, digits=1)) == ("\u2013 to 2.00", "1.0 to 2.0")
    assert (number(-1234.5), number(0.5, digits=1), number(9.995)) == ("-1 234", "0.5", "9.99")
