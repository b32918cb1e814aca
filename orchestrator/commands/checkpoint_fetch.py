"""`interlace checkpoint fetch`: weights from the hub, without a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from orchestrator.configuration.groups import Parts
from orchestrator.configuration.overrides import suggest
from orchestrator.errors import HeldError, InputError
from orchestrator.planning.fetching import fetch_all, survey_all
from orchestrator.queue.machine_lock import machine_holder
from orchestrator.views.fetch_view import FetchTeller, size_words
from orchestrator.views.terminal import console
from workers.weights.checkpoints import import_name
from workers.weights.hub import complete_folder


def fetch_checkpoints(names: Sequence[str], *, config_dir: Path | None, anyway: bool, quiet: bool) -> None:
    """Fetch the newest commit of each.

    Raises:
        InputError: no such checkpoint, one that is not at the hub, or one that cannot be had.
        RefusedError: it cannot be fetched now.
        HeldError: a run is measured on this machine.
    """
    parts = Parts(config_dir)
    wanted = [_checkpoint(name, parts) for name in names]
    if not anyway and (holder := machine_holder()) is not None:
        raise HeldError(f"this machine is measuring ({holder}), which fetching disturbs: wait for it, or add --anyway")
    out = console()
    snapshots = survey_all(wanted)
    missing = sum(snapshot.missing_bytes for snapshot in snapshots)
    if missing and not quiet:
        out.print(Text(f"downloads {size_words(missing)}"))
    with FetchTeller(out, quiet=quiet) as teller:
        fetch_all(snapshots, tell=teller)
    for snapshot in snapshots:
        folder = complete_folder(snapshot.hub_id, snapshot.commit)
        size = size_words(snapshot.size_bytes)
        out.print(Text(f"{snapshot.hub_id}: {size} at commit {snapshot.commit[:12]} in {folder}"))


def _checkpoint(name: str, parts: Parts) -> dict[str, Any]:
    """The configuration of a hub checkpoint, by its name or by its id at the hub."""
    if name in parts.options("checkpoint"):
        parts.load([("checkpoint", name)])
        found = parts.values(("checkpoint", name))
        if found["source"] == "hub":
            return found
        how = "it has no weights to fetch"
        if found["source"] == "imported":
            how = f"it is made here: interlace checkpoint import {import_name(name)}"
        elif found["source"] in ("local", "gguf"):
            how = f"its weights are a path of this machine: {found['path']}"
        raise InputError(f"checkpoint {name} is not at the hub: {how}")
    hub_id, _, revision = name.partition("@")
    if hub_id.count("/") != 1:
        raise InputError(f"{name}: no checkpoint of this name; {suggest(name, parts.options('checkpoint'))}")
    return {"name": name, "source": "hub", "hub_id": hub_id, "revision": revision or None}
