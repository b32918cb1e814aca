"""Sizes that the hub stated in this process, of models that are not on this machine and that nobody published."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workers.weights.hub_sizes import HubSizes

ASKED_S = 3.0  # how long a plan waits for each of the hub's answers
_MOST_AT_ONCE = 8

_Key = tuple[str, str, str | None]  # the hub's address, the id and the revision
_stated: dict[_Key, "HubSizes | None"] = {}


def stated(checkpoint: Mapping[str, Any]) -> "HubSizes | None":
    """The sizes that the hub stated of a checkpoint; None if it was not asked, or stated none."""
    return _stated.get(_key(checkpoint)) if checkpoint.get("source") == "hub" else None


def ask(checkpoints: Iterable[Mapping[str, Any]]) -> None:
    """Ask the hub for the sizes of these hub checkpoints, all at once, and each once per process."""
    from workers.weights.hub_sizes import ask_sizes

    wanted = [key for key in {_key(each): None for each in checkpoints} if key not in _stated]
    if not wanted:
        return
    with ThreadPoolExecutor(max_workers=min(_MOST_AT_ONCE, len(wanted))) as pool:
        found = pool.map(lambda key: ask_sizes(key[1], key[2], limit_s=ASKED_S), wanted)
        _stated.update(zip(wanted, found, strict=True))


def _key(checkpoint: Mapping[str, Any]) -> _Key:
    from workers.weights.hub_errors import endpoint

    return endpoint(), str(checkpoint["hub_id"]), checkpoint.get("revision")
