"""Facts from public sources about hub repositories (conf/published.toml), used until a model is on this machine."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A repository's figures. None: not stated."""

    hub_id: str
    source: str
    weights_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    read_bytes: int | None = None  # weights that one decoded token reads, if not all of them
    block_size: int | None = None  # of a draft: the block size that it was trained for


def published(checkpoint: Mapping[str, Any]) -> Published | None:
    """Return the figures of a hub checkpoint, or None for another source or a repository that is not listed."""
    return _listed().get(str(checkpoint.get("hub_id"))) if checkpoint.get("source") == "hub" else None


@cache
def _listed() -> dict[str, Published]:
    text = files("conf").joinpath("published.toml").read_text(encoding="utf-8")
    models = [Published(**entry) for entry in tomllib.loads(text)["model"]]
    return {model.hub_id: model for model in models}
