"""Servers that lie, through the worker: no wrong count and no rate that was not measured gets by unnamed."""

from collections.abc import Iterator

import pytest

from tests.workers.lied_to import answers_to, become_of
from tests.workers.lying_server import LIES, LyingServer


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with LyingServer() as server:
        yield server.url


@pytest.mark.parametrize("name", LIES)
def test_no_lie_gets_by(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.http.watchdog._AFTER_DONE_S", 0.1)
    monkeypatch.setattr("workers.http.watchdog._AFTER_FINISH_S", 0.3)
    found = become_of(url, name)
    assert found.outcome in answers_to(name), found.words
