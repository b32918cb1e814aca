"""Shared by all tests: pytest rewrites the engine contract's assertions, registered before anything imports it; and
each test is a machine of its own to the lock that keeps two processes from measuring on one."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.workers.engine_contract")


@pytest.fixture(autouse=True)
def own_state_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test's machine lock; processes that it starts share it."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("INTERLACE_STATE", str(folder))
    return folder
