"""Text from others is shown whole and has no effect on the page or the terminal."""

import json
import re
import unicodedata

import pytest
from hypothesis import example, given
from markdown_it import MarkdownIt

from db.escaping import in_markdown, shown, shown_json, shown_line
from tests.hostile import ANY, CONTROLS, MARKUP

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
LIVE = re.compile(r"[@#]\w|://|www\.|GH-\d", re.IGNORECASE)  # what GitHub makes links of


@given(ANY)
def test_nothing_shown_is_invisible_or_turns_the_line_round(text: str) -> None:
    for character in shown(text):
        assert character in "\n\t\u200c\u200d" or unicodedata.category(character)[0] != "C"
    shown(text).encode("utf-8")


@given(ANY)
def test_what_is_visible_is_left_alone(text: str) -> None:
    visible = "".join(each for each in text if unicodedata.category(each)[0] not in "CZ" or each == " ")
    assert shown(visible) == visible


def test_people_read_their_own_scripts() -> None:
    assert shown("日本語 ü | \\ 👩‍💻") == "日本語 ü | \\ 👩‍💻"


@given(CONTROLS)
def test_one_line_is_one_line_and_shown_once(text: str) -> None:
    line = shown_line(text)
    assert len(line.splitlines()) <= 1
    assert shown_line(line) == line


@given(CONTROLS)
def test_json_says_the_same(text: str) -> None:
    written = shown_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(written) == text
    assert shown(written) == written


def seen(markdown: str) -> tuple[list[str], list[str]]:
    """The blocks of a document and the inline contents; anything but text in these fails."""
    tokens = MARKDOWN.parse(markdown)
    inline = [token.children or [] for token in tokens if token.type == "inline"]
    assert {child.type for children in inline for child in children} <= {"text"}
    return [token.type for token in tokens], ["".join(child.content for child in children) for children in inline]


def same(found: str, text: str) -> bool:
    """The text as a reader sees it: what is broken up by nothing visible reads the same."""
    return found.replace("\u200c", "").strip() == shown_line(text).replace("\u200c", "").strip()


@given(MARKUP)
@example("a\\|b")
@example("trailing \\")
def test_a_cell_is_its_text_and_nothing_else(text: str) -> None:
    blocks, contents = seen(f"| head | n |\n|---|---|\n| {in_markdown(text)} | 1 |\n")
    assert blocks.count("tr_open") == 2
    assert blocks.count("td_open") == 2
    assert contents[:2] == ["head", "n"]
    assert same(contents[2], text)
    assert contents[3] == "1"
    assert not LIVE.search(contents[2])


@given(MARKUP)
@example("---")
@example("- x")
@example("    code")
@pytest.mark.parametrize(
    ("before", "block"), [("", []), ("- ", ["bullet_list", "list_item"]), ("> ", ["blockquote"]), ("## ", ["heading"])]
)
def test_a_line_opens_no_block(before: str, block: list[str], text: str) -> None:
    escaped = in_markdown(text)
    if escaped in ("", "-"):  # nothing to say, and a missing number
        return
    blocks, contents = seen(before + escaped)
    assert {each.removesuffix("_open") for each in blocks if each.endswith("_open")} == {*block, "paragraph"} - (
        {"paragraph"} if "heading" in block else set()
    )
    (content,) = contents
    assert same(content, text)
    assert not LIVE.search(content)


def test_ordinary_words_stay_readable() -> None:
    for text in ("block size 4 is 1.08x (0.99 to 1.17)", "-5.3", "-", "\u2013", "12:30, 4 + 4 = 8", "mlx-lm 0.31.3"):
        assert in_markdown(text) == text
    assert in_markdown("a_b & c") == r"a\_b \& c"
