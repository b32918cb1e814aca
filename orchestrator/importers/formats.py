"""The known formats, and the detection of a file's format. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InputError
from orchestrator.importers import dflash_mlx, guidellm, llama_bench, llama_benchy, mlx_chronos, vllm_bench
from orchestrator.importers.foreign_run import ForeignResults

_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One tool's file."""

    name: str
    file: str  # how the tool writes it
    recognises: Callable[[Any], bool]
    read: Callable[[Any], ForeignResults]


FORMATS = (
    Format(
        name=llama_bench.NAME,
        file="llama-bench -o json",
        recognises=llama_bench.recognises,
        read=llama_bench.read,
    ),
    Format(
        name=mlx_chronos.NAME,
        file="an mlx-chronos result",
        recognises=mlx_chronos.recognises,
        read=mlx_chronos.read,
    ),
    Format(
        name=dflash_mlx.NAME,
        file="dflash benchmark's results.json or runs.jsonl",
        recognises=dflash_mlx.recognises,
        read=dflash_mlx.read,
    ),
    Format(
        name=guidellm.NAME,
        file="guidellm's benchmarks.json",
        recognises=guidellm.recognises,
        read=guidellm.read,
    ),
    Format(
        name=vllm_bench.NAME,
        file="vllm bench serve --save-result",
        recognises=vllm_bench.recognises,
        read=vllm_bench.read,
    ),
    Format(
        name=llama_benchy.NAME,
        file="llama-benchy's JSON report",
        recognises=llama_benchy.recognises,
        read=llama_benchy.read,
    ),
)


def choose_format(body: Any, wanted: str, *, name: str) -> Format:
    """The format named, or the one that the content has.

    Args:
        wanted: a format's name, or `auto`.
        name: the file's, for messages.

    Raises:
        InputError: no known format, or not the named one; the message names the known formats and the content seen.
    """
    if wanted != "auto":
        chosen = next(each for each in FORMATS if each.name == wanted)
        if not _recognises(chosen, body):
            raise InputError(
                f"{name}: is not {chosen.file}: it holds {seen(body)}; leave --format out to have it found"
            )
        return chosen
    found = [each for each in FORMATS if _recognises(each, body)]
    if not found:
        known = ", ".join(f"{each.name} ({each.file})" for each in FORMATS)
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
