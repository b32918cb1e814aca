"""Text that tries to act on whoever shows it."""

import unicodedata

from hypothesis import strategies as st

ANY = st.text(st.characters(exclude_categories=()), max_size=60)

_CONTROLS = (
    "\x1b]0;owned\x07",
    "\x1b[2J",
    "\x1b[31m",
    "\x9b2J",
    "\x00",
    "\b",
    "\r",
    "\r\n",
    "\n",
    "\t",
    "\x7f",
    "\u202e",
)
CONTROLS = st.lists(st.sampled_from(_CONTROLS) | ANY, max_size=6).map("".join)

_MARKUP = (
    *("@octocat", "@", "#12", "o/r#4", "GH-3", "# ", "> ", "- ", "-", "+ ", "1. ", "2)", "---", "===", "    "),
    *("http://evil.example/x", "HTTPS://", "www.evil.example", "_www.x.y", "a@b.co", "a@-b.co", "<http://x.y>"),
    *("![i](", "](", "[a](b)", "[^1]", "<script>", "</td>", "<!--", "-->", "&lt;", "&#64;", "&amp", "\\", "|"),
    *("`", "``", "*", "**", "_", "__", "~~", "$x$", "word", " ", "\u00a0", "\u200c", *_CONTROLS),
)
MARKUP = st.lists(st.sampled_from(_MARKUP) | st.text(max_size=3), max_size=7).map("".join)


def controls(text: str) -> set[str]:
    """Return the characters that control a terminal or are invisible, except line ends."""
    return {each for each in text if each != "\n" and unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {
        "\u200c",
        "\u200d",
    }
