"""The page's text, without a browser: nothing is loaded, nothing runs, everything foreign is escaped and visible."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from orchestrator.report.document import Document
from orchestrator.report.material import Material

from .runs import HOSTILE_ARM

LOADING = ("src", "href", "xlink:href", "data", "action", "poster", "srcset", "background", "ping", "formaction")
ALLOWED_TAGS = frozenset(
    (
        "html head meta title link style body main header nav a p b span h1 h2 h3 h4 ul li i section div figure"
        " figcaption details summary table thead tbody tr th td code article pre dl dt dd footer svg g path line rect"
        " text tspan defs clippath circle"
    ).split()
)


class Reader(HTMLParser):
    """Tags, attributes and visible text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]


@pytest.fixture(scope="module")
def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


def test_there_is_nothing_in_it_but_known_tags(read: Reader) -> None:
    assert set(read.tags) <= ALLOWED_TAGS


def test_nothing_is_loaded_from_anywhere(read: Reader, page: str) -> None:
    links = {(tag, value) for tag, name, value in read.attributes if name in LOADING}
    assert {link for link in links if link[0] != "a"} == {("link", "data:,")}
    contents = {value for tag, value in links if tag == "a"}
    assert contents
    assert contents <= {f"#{name}" for name in read.ids}  # places of this page
    assert "@import" not in page
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", page)


def test_no_attribute_runs_anything_or_bears_a_style(read: Reader) -> None:
    assert not [name for _, name, _ in read.attributes if name.startswith("on") or name == "style"]


def test_the_policy_lets_in_the_style_sheet_and_nothing_else(read: Reader, page: str) -> None:
    css = page.split("<style>")[1].split("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(css.encode("utf-8")).digest()).decode("ascii")
    (policy,) = (value for tag, name, value in read.attributes if tag == "meta" and value.startswith("default-src"))
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert "unsafe" not in policy


def test_what_others_wrote_is_shown_not_obeyed(page: str) -> None:
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "␛[31mred" in page
    assert "⟨U+202E⟩" in page
    assert "a␀b" in page
    assert "}}{{7*7}}" in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)


def test_every_id_is_there_once(read: Reader) -> None:
    assert len(read.ids) == len(set(read.ids))


def test_clip_paths_refer_to_what_is_there(read: Reader) -> None:
    used = {match for _, _, value in read.attributes for match in re.findall(r"url\(#([\w-]+)\)", value)}
    assert used <= set(read.ids)


def test_what_was_run_is_reported(page: str, material: Material) -> None:
    for text in (material.run.run_id, material.run.plan_sha256, str(material.run.seed), "interlace run"):
        assert text in page


def test_a_simulation_reports_it_before_everything_else(page: str) -> None:
    assert page.index("A fake clock and no model") < page.index("<h1>")


def test_every_section_is_there_or_says_why_not(report: Document) -> None:
    shown = {section.key for section in report.sections}
    assert {"trials", "ratios", "rounds", "widths", "turns", "losslessness", "arms", "evidence", "left-out"} <= shown
    assert {one.title for one in report.absent} == {
        "Two settings together",
        "How near to the ceiling",
        "Compared with published figures",
        "Samplers",
    }
    assert all(one.reason for one in report.absent)


def test_every_picture_reports_what_it_shows_its_units_and_rounds(report: Document) -> None:
    assert {picture.key for picture in report.pictures} >= {"trials", "ratios", "ratios-by-scope", "rounds", "widths"}
    for picture in report.pictures:
        assert len(picture.title.split()) > 3
        assert re.search(r"\d+ (complete )?(round|generation)", picture.detail), picture.key


def test_long_names_are_whole_in_tables(page: str) -> None:
    assert HOSTILE_ARM[-40:] in page
