"""Which model a server says has answered: the one that was asked for, or another. Pure."""

import re
from collections.abc import Mapping
from typing import Any

_CACHED = re.compile(r"models--[^/]+?--([^/]+)/snapshots/[^/]+")  # a folder of the hub's cache
_ENDS = (":latest", ".gguf")


def stated_model(response: Mapping[str, Any]) -> str | None:
    """The model that the answer names; None: it names none."""
    found = response.get("model")
    return found if isinstance(found, str) and found.strip() else None


def is_same_model(asked: str, stated: str) -> bool:
    """True if both names may be of one model: the same last part of an id or a path, or a dated release of it."""
    one, other = _plain(asked), _plain(stated)
    return one == other or re.fullmatch(re.escape(one) + r"-\d{4}-?\d{2}-?\d{2}", other) is not None


def flag_model(asked: str, stated: str | None, earlier: str | None, flags: list[str]) -> None:
    """Compare the name that an answer states with the request's, and with that of an earlier answer (None: none yet).

    Args:
        flags: `other_model` and `model_changed` are added where they differ.
    """
    if stated is None:
        return
    if not is_same_model(asked, stated):
        flags.append("other_model")
    if earlier not in (None, stated):
        flags.append("model_changed")


def _plain(name: str) -> str:
    last = _CACHED.sub(r"\1", name.strip().rstrip("/").lower()).rpartition("/")[2]
    for end in _ENDS:
        last = last.removesuffix(end)
    return last
