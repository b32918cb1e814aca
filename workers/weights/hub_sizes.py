"""The needs of a model, from what the hub states about it, before anything of it is on this machine."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.weights.hub import survey
from workers.weights.hub_errors import HubError, within

_MOST_CONFIG_BYTES = 1 << 20
_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSizes:
    """Sizes of a repository's model. None: the hub does not state it in time."""

    missing_bytes: int  # still to come
    weights_bytes: int
    kv_bytes_per_token: int | None = None  # growth of an unquantised cache per token, all layers
    bytes_read_per_token: int | None = None  # weights that one decoded token reads


def ask_sizes(hub_id: str, revision: str | None, *, limit_s: float) -> HubSizes | None:
    """Ask the hub, briefly; None if it has no such model, or cannot be asked now.

    Args:
        limit_s: for each of at most four questions.
    """
    try:
        found = survey(hub_id, revision, waits_s=(), limit_s=limit_s)
    except HubError:
        return None
    weights = sum(file.size_bytes for file in found.files if file.name.endswith(".safetensors"))
    sizes = HubSizes(missing_bytes=found.missing_bytes, weights_bytes=weights)
    try:
        return _with_shape(sizes, hub_id, found.commit, limit_s)
    except Exception:  # noqa: BLE001 - whatever the hub or a hostile file does here, the sizes alone are still known
        return sizes


def _with_shape(sizes: HubSizes, hub_id: str, commit: str, limit_s: float) -> HubSizes:
    from workers.weights.checkpoints import bytes_read_per_token, cache_of_config, is_mixture

    config = within(limit_s, lambda: _config(hub_id, commit, limit_s))
    stated = config.get("dtype") or config.get("torch_dtype")
    cache = cache_of_config(config, stated if stated in _DTYPES else "bfloat16")
    read: int | None = sizes.weights_bytes
    if is_mixture(config):
        read = bytes_read_per_token(within(limit_s, lambda: _tensors(hub_id, commit)), config)
    return HubSizes(
        missing_bytes=sizes.missing_bytes,
        weights_bytes=sizes.weights_bytes,
        kv_bytes_per_token=cache,
        bytes_read_per_token=read,
    )


def _config(hub_id: str, commit: str, limit_s: float) -> dict[str, Any]:
    """The model's config.json. It is not kept: a cache that holds it alone would look like an incomplete model."""
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils._headers import build_hf_headers

    url = hf_hub_url(hub_id, "config.json", revision=commit)
    with get_session().stream(
        "GET", url, headers=build_hf_headers(), timeout=limit_s, follow_redirects=True
    ) as response:
        response.raise_for_status()
        text = b""
        for piece in response.iter_bytes():
            text += piece
            if len(text) > _MOST_CONFIG_BYTES:
                raise ValueError("config.json is larger than such a file ever is")
    read = json.loads(text)
    if not isinstance(read, dict):
        raise TypeError("config.json holds no object")
    return read


def _tensors(hub_id: str, commit: str) -> Mapping[str, int]:
    """The bytes of every tensor, from the headers of the weight files."""
    from huggingface_hub import HfApi

    files = HfApi().get_safetensors_metadata(hub_id, revision=commit).files_metadata.values()
    tensors = ((name, tensor.data_offsets) for file in files for name, tensor in file.tensors.items())
    return {name: end - begin for name, (begin, end) in tensors}
