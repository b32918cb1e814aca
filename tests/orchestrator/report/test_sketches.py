"""Numbers drawn with characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.report.charts.ratios import EffectRow
from orchestrator.report.sketches import Axis, course, interval, plain_letters, ratio_strokes, squeezed
from orchestrator.report.words import shortened, visible

RATIOS = st.floats(0.01, 100.0)


@given(st.lists(RATIOS, max_size=6), st.integers(20, 70))
def test_an_axis_holds_one_and_every_ratio_in_order(ratios: list[float], width: int) -> None:
    axis = Axis.around(ratios, width=width)
    places = [axis.place(ratio) for ratio in sorted([*ratios, 1.0])]
    assert places == sorted(places)
    assert all(0 <= place < width for place in places)
    assert len(axis.labels) == width


def test_twice_and_half_are_equally_far_from_one() -> None:
    axis = Axis(low=0.25, high=4.0, width=41)
    assert axis.place(1.0) - axis.place(0.5) == axis.place(2.0) - axis.place(1.0) == 10
    assert axis.place(0.0001) == 0
    assert axis.place(1e9) == 40


@given(RATIOS, st.floats(1.0, 3.0), st.integers(20, 70))
def test_an_interval_is_drawn_between_its_ends(ratio: float, spread: float, width: int) -> None:
    axis = Axis.around([ratio / spread, ratio * spread], width=width)
    drawn = interval(ratio, ratio / spread, ratio * spread, axis=axis, floor=(0.99, 1.01))
    assert len(drawn) <= width
    assert drawn.count("●") == 1
    assert drawn.index("●") == axis.place(ratio)


def test_what_a_drawing_says() -> None:
    axis = Axis(low=0.5, high=2.0, width=21)
    assert interval(1.4, 1.2, 1.6, axis=axis, floor=(0.9, 1.1)) == "        ░░│░ ├─●─┤"
    assert interval(1.4, 1.2, None, axis=axis) == "          │  ├─●────▸"
    assert interval(1.4, None, None, axis=axis) == "          │    ·"  # too few rounds: the least loud


def test_the_same_in_ascii() -> None:
    axis = Axis(low=0.5, high=2.0, width=21)
    drawings = interval(1.4, None, 1.6, axis=axis, floor=(0.9, 1.1)) + course([0.0, 0.5, None, 1.0], low=0.0, high=1.0)
    assert plain_letters(drawings).isascii()
    assert course([0.0, 0.5, None, 1.0], low=0.0, high=1.0) == "▁▅·█"
    assert plain_letters("▁▅·█") == "15.8"


def test_equal_values_draw_a_flat_line() -> None:
    assert course([1.0, 1.0], low=1.0, high=1.0) == "▁▁"


@given(st.lists(st.none() | st.floats(0.5, 2.0), max_size=300), st.integers(1, 60))
def test_a_long_course_is_squeezed_to_the_width(values: list[float | None], width: int) -> None:
    found = squeezed(values, width)
    assert len(found) <= max(width, 0)
    known = [value for value in values if value is not None]
    assert all(value is None or min(known) - 1e-9 <= value <= max(known) + 1e-9 for value in found)
    if len(values) <= width:
        assert found == values


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines", "two⏎lines"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("abc\u202edcb", "abc\\u202edcb"),
        ("naïve 東京", "naïve 東京"),
    ],
)
def test_a_models_text_cannot_act_on_the_terminal(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_long_name_keeps_both_ends() -> None:
    assert shortened("mlx_lm_draft block_size=16", 12) == "mlx_lm…ze=16"
    assert shortened("short", 12) == "short"
    assert len(shortened("x" * 99, 24)) == 24


@pytest.mark.parametrize(("direction", "tone"), [("faster", "good"), ("slower", "bad"), (None, "good")])
def test_slower_is_not_drawn_as_good(direction: str | None, tone: str) -> None:
    row = EffectRow(label="a", arm="a", verdict="supported", direction=direction, ratio=0.5, low=0.4, high=0.6)
    assert [stroke.tone for stroke in ratio_strokes([row], 80)] == ["muted", tone, "muted"]
