"""`interlace checkpoint list`: what can be named, what the hub's cache holds, and which servers answer now."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from orchestrator.configuration.groups import Parts
from orchestrator.views.fetch_view import size_words
from orchestrator.views.terminal import console, table
from workers.catalogue.signs import CatalogueError, load
from workers.errors import EngineError
from workers.http.answering import Answering, answering
from workers.weights.checkpoints import describe, resolve
from workers.weights.hub import CachedModel, cached_models

_WITHOUT_WEIGHTS = {"simulated": "none needed", "unknown": "a server's"}
_COMMIT_SHOWN = 12
_MODELS_SHOWN = 3


def list_checkpoints(*, config_dir: Path | None) -> None:
    """Print the checkpoints that can be named, those of the hub's cache, and the servers that answer now."""
    parts = Parts(config_dir)
    _print_options(parts)
    _print_cache(cached_models())
    _print_servers(parts)
    console().print("any other: checkpoint=OWNER/MODEL of the hub, checkpoint=FOLDER, checkpoint=FILE.gguf")


def _print_options(parts: Parts) -> None:
    names = parts.options("checkpoint")
    parts.load([("checkpoint", name) for name in names])
    made = table("checkpoint", "source", "bits", "draft", "weights", right=("bits",))
    for name in names:
        config = parts.values(("checkpoint", name))
        bits = "" if config["bits"] is None else str(config["bits"])
        made.add_row(Text(name), config["source"], bits, config["draft"] or "", _presence(config))
    console().print(made)


def _presence(config: dict[str, object]) -> str:
    """Describe in a few words whether a checkpoint's weights are on this machine."""
    source = str(config["source"])
    if source in _WITHOUT_WEIGHTS:
        return _WITHOUT_WEIGHTS[source]
    try:
        info = describe(resolve(config))
    except EngineError as error:
        return "not imported" if source == "imported" else str(error)
    return "not fetched" if info is None else size_words(info.weights_bytes)


def _print_cache(models: list[CachedModel]) -> None:
    out = console()
    out.print()
    if not models:
        out.print("in the hub's cache: nothing")
        return
    made = table("in the hub's cache", "size", "commit", "state", right=("size",))
    for each in models:
        state = "complete" if each.complete else each.why_not
        made.add_row(Text(each.hub_id), size_words(each.size_bytes), each.commit[:_COMMIT_SHOWN], state)
    out.print(made)


def _print_servers(parts: Parts) -> None:
    """The servers at the addresses of the engines that attach to one."""
    attached = attached_engines(parts)
    found = answering(each.url for each in attached)
    out = console()
    out.print()
    if not found:
        asked = ", ".join(dict.fromkeys(each.url for each in attached))
        out.print(Text(f"servers that answer now: none (asked: {asked})"))
        return
    made = table("servers that answer now", "engine", "models")
    for url, server in found.items():
        shown = ", ".join(server.models[:_MODELS_SHOWN]) or "none listed"
        more = f" and {len(server.models) - _MODELS_SHOWN} more" if len(server.models) > _MODELS_SHOWN else ""
        made.add_row(Text(url), " or ".join(engines_of(server, attached)), Text(shown + more))
    out.print(made)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """An engine that attaches to a server which runs already."""

    name: str
    url: str
    owned_by: str | None  # the owner that such a server names for its models; None: unknown


def attached_engines(parts: Parts) -> list[Attached]:
    """The engines that attach to a server, with their addresses."""
    from orchestrator.configuration.engines import is_attached

    names = parts.options("engine")
    parts.load([("engine", name) for name in names])
    found = {name: parts.values(("engine", name)) for name in names if is_attached(parts.schema(("engine", name)))}
    return [
        Attached(name=name, url=str(values["url"]), owned_by=_owner(str(values["preset"])))
        for name, values in found.items()
    ]


def engines_of(server: Answering, attached: Iterable[Attached]) -> list[str]:
    """The engines that a server may be: those of its address, or only the one whose owner it names."""
    here = [each for each in attached if each.url == server.url]
    named = [each.name for each in here if each.owned_by in server.owners]
    return named or [each.name for each in here]


def _owner(preset: str) -> str | None:
    try:
        return load(preset).owned_by
    except CatalogueError:  # a file of the user's; a plan with it says what is wrong
        return None
