"""Fixtures of several modules: tiny checkpoints."""

from pathlib import Path
from typing import Any

import pytest

from tests.workers import tiny


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def target(models: Path) -> dict[str, Any]:
    return tiny.build(models / "target")


@pytest.fixture(scope="module")
def near(models: Path) -> dict[str, Any]:
    """The target with a little noise: another model that mostly answers alike."""
    return tiny.build_noisy(models / "near", noise=0.02)


@pytest.fixture(scope="module")
def checkpoint(models: Path) -> dict[str, Any]:
    """A checkpoint for servers, which name a model by its folder."""
    return tiny.build(models / "tiny")
