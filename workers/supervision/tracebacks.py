"""The last fault in a program's log: the exception that ended the last traceback, or the last error line.

A server answers HTTP 500 and keeps the cause for its log. Pure.
"""

import re
from collections.abc import Sequence

_BEGINS = re.compile(r"Traceback \(most recent call last\):\s*$")
_ERROR = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b")
_LEVEL = re.compile(r"^.*?\b(?:ERROR|CRITICAL|FATAL)\b[\s:\]|-]*")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SHOWN = 300


def last_fault(lines: Sequence[str]) -> str | None:
    """The last exception with its message, otherwise the last line marked as an error; None if there is neither."""
    clean = [_COLOUR.sub("", line).rstrip() for line in lines]
    found = _last_exception(clean)
    if found is None:
        errors = [_LEVEL.sub("", line) for line in clean if _ERROR.search(line)]
        found = next((line for line in reversed(errors) if line.strip()), None)
    return None if found is None else " ".join(found.split())[:_SHOWN]


def _last_exception(lines: Sequence[str]) -> str | None:
    """The first line after the last traceback's start that stands as far left as the start itself: frames are indented.

    An exception group draws bars and dashes before each line.
    """
    found, margin = None, None
    for line in lines:
        if (begins := _BEGINS.search(line)) is not None:
            margin = begins.start()
        elif margin is not None and line[: margin + 1].strip(" |") and line.strip(" |+-"):
            found, margin = line[margin:] if margin and not line[:margin].strip(" |") else line, None
    return found
