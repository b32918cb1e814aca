"""`interlace checkpoint list`: what can be named, what the hub's cache holds, and which servers answer now."""

from pathlib import Path

from rich.text import Text

from orchestrator.configuration.groups import Parts
from orchestrator.views.fetch_view import size_words
from orchestrator.views.terminal import console, table
from workers.errors import EngineError
from workers.http.answering import answering
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
    urls: dict[str, list[str]] = {}
    for name, url in attached_urls(parts).items():
        urls.setdefault(url, []).append(name)
    found = answering(urls)
    out = console()
    out.print()
    if not found:
        out.print(Text(f"servers that answer now: none (asked: {', '.join(urls)})"))
        return
    made = table("servers that answer now", "engine", "models")
    for url, server in found.items():
        shown = ", ".join(server.models[:_MODELS_SHOWN]) or "none listed"
        more = f" and {len(server.models) - _MODELS_SHOWN} more" if len(server.models) > _MODELS_SHOWN else ""
        made.add_row(Text(url), " or ".join(urls[url]), Text(shown + more))
    out.print(made)


def attached_urls(parts: Parts) -> dict[str, str]:
    """The addresses of the engines that attach to a server, by the engine's option."""
    from orchestrator.configuration.engines import is_attached

    names = parts.options("engine")
    parts.load([("engine", name) for name in names])
    found = {name: parts.values(("engine", name)) for name in names if is_attached(parts.schema(("engine", name)))}
    return {name: str(values["url"]) for name, values in found.items()}
