"""Databases for the tests of this folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine

from db.session import open_database
from tests.db.filling import Filled, fill


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """An open database and where it is."""

    engine: Engine
    path: Path
    url: str


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A fresh database."""
    yield from _opened(tmp_path / "interlace.db")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Database, Filled]]:
    """A filled database, for tests that only read."""
    for database in _opened(tmp_path_factory.mktemp("stored") / "interlace.db"):
        yield database, fill(database.engine)


def _opened(path: Path) -> Iterator[Database]:
    url = f"sqlite:///{path}"
    engine = open_database(url)
    yield Database(engine=engine, path=path, url=url)
    engine.dispose()
