"""The known formats, and the detection of a file's format. Pure."""

from collections.abc import Mapping
from typing import Any, Protocol

from orchestrator.errors import InputError
from orchestrator.importers import dflash_mlx, guidellm, llama_bench, llama_benchy, mlx_chronos, vllm_bench
from orchestrator.importers.foreign_run import ForeignResults

_SHOWN = 8


class Format(Protocol):
    """A module that reads one tool's file."""

    NAME: str
    FILE: str  # how the tool writes it

    def recognises(self, body: Any) -> bool: ...

    def read(self, body: Any) -> ForeignResults: ...


FORMATS: tuple[Format, ...] = (llama_bench, mlx_chronos, dflash_mlx, guidellm, vllm_bench, llama_benchy)


def choose_format(body: Any, wanted: str, *, name: str) -> Format:
    """The format named, or the one that the content has.

    Args:
        wanted: a format's name, or `auto`.
        name: the file's, for messages.

    Raises:
        InputError: no known format, or not the named one; the message names the known formats and the content seen.
    """
    if wanted != "auto":
        chosen = next(each for each in FORMATS if each.NAME == wanted)
        if not _recognises(chosen, body):
            raise InputError(
                f"{name}: is not {chosen.FILE}: it holds {seen(body)}; leave --format out to have it found"
            )
        return chosen
    found = [each for each in FORMATS if _recognises(each, body)]
    if not found:
        known = ", ".join(f"{each.NAME} ({each.FILE})" for each in FORMATS)
        raise InputError(f"{name}: no format that is known: it holds {seen(body)}; known are {known}")
    return found[0]


def _recognises(each: Format, body: Any) -> bool:
    """Return whether a reader recognises the content; an error while it looks means that it does not."""
    try:
        return each.recognises(body)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return False


def seen(body: Any) -> str:
    """Describe a JSON value in a few words."""
    if isinstance(body, Mapping):
        keys = list(map(str, body))
        more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
        return f"an object with {', '.join(keys[:_SHOWN]) or 'nothing in it'}{more}"
    if isinstance(body, list):
        return f"a list of {len(body)}, the first {seen(body[0])}" if body else "an empty list"
    return f"a {type(body).__name__}"
