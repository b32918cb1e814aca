"""A fake hub as this process's hub, with a cache of its own: the real client talks to it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.workers.fake_hub import FakeHub

CONFIG = b'{"model_type": "llama"}'
LARGE = bytes(range(256)) * 400  # 102,400 bytes
TINY = {"config.json": CONFIG, "model.safetensors": LARGE, "tokenizer.json": b"{}", "README.md": b"# Tiny"}


@contextmanager
def hub_here(
    patch: pytest.MonkeyPatch, cache: Path, repos: Mapping[str, Mapping[str, bytes]], *, commit: str = "a" * 40
) -> Iterator[FakeHub]:
    """A hub with these repositories, which this process and those that it starts talk to."""
    with FakeHub(repos, commit=commit) as hub:
        use_hub(patch, cache, hub)
        yield hub


def use_hub(patch: pytest.MonkeyPatch, cache: Path, hub: FakeHub) -> None:
    """Point the client at a hub and a cache, in this process and in those that it starts."""
    for name, value in {"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(cache)}.items():
        patch.setenv(name, value)
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        patch.delenv(name, raising=False)
    patch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "0")
    patch.setenv("HF_TOKEN_PATH", str(cache / "no-token"))
    constants = "huggingface_hub.constants"
    patch.setattr(f"{constants}.ENDPOINT", hub.url)
    patch.setattr(f"{constants}.HF_HUB_CACHE", str(cache))
    patch.setattr(f"{constants}.HF_TOKEN_PATH", str(cache / "no-token"))
    patch.setattr(f"{constants}.HF_HUB_OFFLINE", False)
    patch.setattr(f"{constants}.HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
