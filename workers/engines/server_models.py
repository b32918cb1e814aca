"""The model that an answer names, compared with the request's and with that of earlier answers. Pure."""

import re
from collections.abc import Mapping
from typing import Any

_CACHED = re.compile(r"models--[^/]+?--([^/]+)/snapshots/[^/]+")  # a folder of the hub's cache
_ENDS = (":latest", ".gguf")
_DATE = re.compile(r"-20\d{2}-?\d{2}-?\d{2}$")


def stated_model(response: Mapping[str, Any]) -> str | None:
    """The model that the answer names; None: it names none."""
    found = response.get("model")
    return found if isinstance(found, str) and found.strip() else None


def is_same_model(asked: str, stated: str) -> bool:
    """Return whether two names may be of one model: by the last part of an id or a path, without a release's date."""
    return _plain(asked) == _plain(stated)


def flag_model(asked: str, stated: str | None, earlier: str | None, flags: list[str]) -> None:
    """Compare the name that an answer states with the request's, and with that of an earlier answer (None: none yet).

    Args:
        flags: `other_model` and `model_changed` are added where they differ.
    """
    if stated is None:
        return
    if not is_same_model(asked, stated):
        flags.append("other_model")
    if earlier is not None and not is_same_model(earlier, stated):
        flags.append("model_changed")


def _plain(name: str) -> str:
    last = _CACHED.sub(r"\1", name.strip().rstrip("/").lower()).rpartition("/")[2]
    for end in _ENDS:
        last = last.removesuffix(end)
    return _DATE.sub("", last)
