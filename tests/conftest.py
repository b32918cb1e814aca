"""Shared by all tests.

pytest rewrites the engine contract's assertions, registered before anything imports it. Each test is a machine of its
own to the lock that keeps two processes from measuring on one. A fresh database is a copy of one that the revisions
made: running them takes 0.2 s of CPU, which several hundred tests would pay each. Shipped options are composed once.
"""

import functools
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

import db.session
from db.engine import Database
from db.migrate import Version, current, upgrade
from orchestrator.configuration.groups import SHIPPED_DIR, Part, Parts
from orchestrator.planning import simulation_cache
from tests.costs import Meter, name_of, slow_names
from workers.files.private import make_private_folder
from workers.masking import KNOWN

pytest.register_assert_rewrite("workers.engines.contract")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--measure-costs", action="store_true", help="write tests/costs.txt; not with -n")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--measure-costs"):
        config.pluginmanager.register(Meter())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that do not enter the inner loop are marked slow; others bear the mark where they are defined."""
    slow = slow_names()
    for item in items:
        if name_of(item.nodeid) in slow:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def own_state_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test's machine lock; processes that it starts share it."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("INTERLACE_STATE", str(folder))
    return folder


@pytest.fixture(autouse=True, scope="session")
def fresh_databases_are_copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For `open_database` in this process; `db.migrate.upgrade` itself and other processes run the revisions."""

    @functools.cache
    def template() -> Path:
        return upgrade(f"sqlite:///{tmp_path_factory.mktemp('template') / 'fresh.db'}").path

    def copied(url: str) -> Version:
        path = current(url).path
        if path.exists():
            return upgrade(url)
        make_private_folder(path.parent)
        shutil.copy(template(), path)
        return current(url)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db.session, "upgrade", copied)
        yield


@pytest.fixture(autouse=True, scope="session")
def simulations_are_kept_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Plans made in this process share their simulations, and leave none in the user's cache."""
    folder = tmp_path_factory.mktemp("simulations")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation_cache, "folder", lambda: folder)
        yield


@pytest.fixture(autouse=True, scope="session")
def shipped_options_are_composed_once() -> Iterator[None]:
    """By `Parts` of the shipped folder in this process. Parts copy what they change, so the trees can be shared.

    A composition takes Hydra 50 ms of CPU, and a plan needs four. Those that name a folder of the user's are made anew.
    """
    compose_root, compose = Parts.root, Parts.load
    nodes: dict[Part, DictConfig] = {}
    schemas: dict[Part, type[Any]] = {}
    root = functools.cache(lambda: compose_root(Parts()))

    def load(self: Parts, wanted: Iterable[Part]) -> None:
        parts = list(wanted)
        if self._dirs != [SHIPPED_DIR]:
            return compose(self, parts)
        kept = [part for part in parts if part in nodes and part not in self._nodes]
        self._nodes |= {part: nodes[part] for part in kept}
        self._schemas |= {part: schemas[part] for part in kept}
        compose(self, parts)
        shipped = [part for part in self._nodes if self._files(part)]  # a folder's or a hub's means another each time
        nodes.update({part: self._nodes[part] for part in shipped})
        schemas.update({part: self._schemas[part] for part in shipped})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Parts, "load", load)
        patch.setattr(Parts, "root", lambda self: root() if self._dirs == [SHIPPED_DIR] else compose_root(self))
        yield


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """A fresh database, `test.db` in the test's folder."""
    return db.session.open_database(f"sqlite:///{tmp_path / 'test.db'}")


@pytest.fixture(autouse=True)
def no_known_secrets() -> None:
    """Forget the secrets of one test's environment before the next."""
    KNOWN.clear()
