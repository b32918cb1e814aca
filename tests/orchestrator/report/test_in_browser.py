"""The page in headless Chromium: no message, no request, every chart drawn; by day, by night, wide and narrow."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from .browser import Page, opened

WIDE, TELEPHONE = 1100, 390
CHARTS = """JSON.stringify([...document.querySelectorAll('figure')].map(figure => {
    const shown = [...figure.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width > 0);
    const box = shown[0].getBoundingClientRect();
    return {
        id: figure.id, drawings: shown.length, width: box.width, height: box.height,
        marks: shown[0].querySelectorAll('path, line, rect').length,
        outside: [...shown[0].querySelectorAll('text')].filter(text => {
            const own = text.getBoundingClientRect();
            return own.left < box.left - 2 || own.right > box.right + 2
                || own.top < box.top - 2 || own.bottom > box.bottom + 2;
        }).map(text => text.textContent),
    };
}))"""


@pytest.fixture(scope="module")
def tab(page_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened(page_file, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.mark.parametrize("width", [WIDE, TELEPHONE])
@pytest.mark.parametrize("dark", [False, True])
def test_every_chart_is_drawn_once_and_whole(tab: Page, width: int, *, dark: bool, tmp_path: Path) -> None:
    tab.show(width=width, dark=dark)
    charts = json.loads(tab.evaluate(CHARTS))
    assert len(charts) > 5
    for chart in charts:
        assert chart["drawings"] == 1, chart
        assert chart["width"] > 250, chart
        assert chart["height"] > 60, chart
        assert chart["marks"] > 5, chart
        assert not chart["outside"], chart
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.logged == []
    picture = tab.screenshot(tmp_path / "page.png")
    assert struct.unpack(">I", picture[16:20])[0] == width


def test_day_and_night_have_their_own_colours(tab: Page) -> None:
    colours = []
    for dark in (False, True):
        tab.show(width=WIDE, dark=dark)
        colours.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        text = tab.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
        assert text != colours[-1]
    assert colours == ["rgb(254, 254, 254)", "rgb(21, 24, 28)"]


def test_it_asks_for_nothing_but_itself(tab: Page, page_file: Path) -> None:
    assert set(tab.asked) == {page_file.resolve().as_uri()}


def test_nothing_foreign_ran(tab: Page) -> None:
    assert tab.evaluate("document.scripts.length") == 0
    assert tab.evaluate("document.querySelectorAll('img').length") == 0


def test_the_style_sheet_is_let_in(tab: Page) -> None:
    tab.show(width=WIDE)
    assert tab.evaluate("getComputedStyle(document.querySelector('.narrow')).display") == "none"
