"""Fixtures of several folders: the command with a database of its own."""

from pathlib import Path

import pytest

from tests.orchestrator.desk import Desk
from tests.orchestrator.shells import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)
