"""Names a body that is not the event stream, or not the JSON, that was asked for. Pure, no I/O.

A login page, a proxy's error page and a server that ignores `stream` all answer with status 200.
"""

import re
from typing import Any

from workers.http.json_text import read_json

OTHER_ADDRESS = "check engine.url; a login page, a proxy or another program may answer at this address"
STREAMS = "use a server that streams"
_SHOWN = 100
_PAGE = re.compile(
    r"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_TITLE = re.compile(r"<(title|h1)[^>]*>(.*?)</", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>")


def page_in(text: str) -> str | None:
    """Name the web page that a text is, with its title if it has one; None if it is no web page."""
    if not _PAGE.match(text):
        return None
    found = _TITLE.search(text)
    title = " ".join(_TAG.sub(" ", found[2]).split())[:_SHOWN] if found else ""
    return f"a web page ({title!r})" if title else "a web page"


def describe(text: str) -> tuple[str, str]:
    """The kind of body that came instead of an event stream, and the remedy.

    Args:
        text: the start of the body, or all of it.
    """
    if not text.strip():
        return "an empty body", OTHER_ADDRESS
    if (page := page_in(text)) is not None:
        return page, OTHER_ADDRESS
    if isinstance(_json(text), dict):
        return "its answer in one piece, as JSON: no token has a time", STREAMS
    if isinstance(_json(text.lstrip().split("\n", 1)[0]), dict):
        return (
            "lines of JSON instead of server-sent events",
            "check engine.url and the server's API: OpenAI's is needed",
        )
    return f"text that starts with {' '.join(text.split())[:_SHOWN]!r}", OTHER_ADDRESS


def _json(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return None
