"""The available engines, and the Hydra schema of each, made from what the engine's class declares.

One of our engines is a module of `workers.engines` and an option in conf/engine that names its class. Another package
brings one by an entry point of the group `interlace.engines`, such as `toy = "toy_engine:Toy"`: then `engine=toy` is an
option without a file. See CONTRIBUTING.md.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass
from functools import cache
from importlib import import_module
from inspect import getdoc, getmodule
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_type_hints

import omegaconf
from hydra.core.config_store import ConfigStore

import conf
from conf.schema import EngineConfig
from workers.engines.base import Engine, offered
from workers.settings import EngineSettings, setting

_TARGET = re.compile(r"^_target_: *(\S+) *$", re.MULTILINE)
_SIMULATED = "workers.engines.simulated.Simulated"
_ATTACHED = "workers.engines.openai_http.OpenaiHttp"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """One engine.

    Attributes:
        name: as `engine=` takes it.
        target: the dotted path of its class, as a plan and a YAML file name it.
        schema: what Hydra checks its settings against.
        meaning: what it is, in a sentence or two.
        package: the distribution that brings it; None: interlace.
        follows_environment: whether an environment that an arm declares applies to it.
    """

    name: str
    target: str
    schema: type[EngineConfig]
    settings: type[EngineSettings]
    meaning: str
    package: str | None = None
    follows_environment: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """All engines by name, ours first; and why the engines of some packages cannot be used, by their names."""

    kinds: Mapping[str, EngineKind]
    unusable: Mapping[str, str]


@cache
def _engines() -> Engines:
    kinds = dict(_shipped())
    unusable: dict[str, str] = {}
    for entry in offered():
        package = entry.dist.name if entry.dist is not None else entry.value
        if entry.name in kinds:
            owner = kinds[entry.name].package or "interlace"
            unusable.setdefault(entry.name, f"package {package} brings an engine of that name too; {owner}'s is used")
            continue
        try:
            kinds[entry.name] = kind_of(entry.name, f"{entry.module}.{entry.attr}", package=package)
        except Exception as error:  # noqa: BLE001 - another package's code, run as it is imported
            unusable[entry.name] = f"package {package}: {error}; update or uninstall the package"
    return Engines(kinds=MappingProxyType(kinds), unusable=MappingProxyType(unusable))


@cache
def _shipped() -> Mapping[str, EngineKind]:
    """Return our own engines. A process has one schema class of each, whatever packages come and go."""
    return MappingProxyType(
        {
            path.stem: kind_of(path.stem, target)
            for path in sorted((Path(conf.__file__).parent / "engine").glob("*.yaml"), key=_plain_first)
            for target in _TARGET.findall(path.read_text(encoding="utf-8"))  # none: settings of another engine
        }
    )


def _plain_first(path: Path) -> tuple[bool, str]:
    """mlx-lm's own engines first: what is suggested for a setting that many engines have."""
    return not path.stem.startswith("mlx_lm"), path.stem


def engine_kinds() -> Mapping[str, EngineKind]:
    """All engines by name: ours, then those of other packages that can be used."""
    return _engines().kinds


def unusable_engines() -> Mapping[str, str]:
    """The engines of other packages that cannot be used: name to reason."""
    return _engines().unusable


def kind_of(name: str, target: str, *, package: str | None = None) -> EngineKind:
    """The engine of a class.

    Raises:
        TypeError: the class is not an engine, or its settings are not a frozen dataclass of `EngineSettings`.
    """
    module, _, attribute = target.rpartition(".")
    engine = getattr(import_module(module), attribute)
    if not (isinstance(engine, type) and issubclass(engine, Engine)):
        raise TypeError(f"{target} is not a subclass of workers.engines.base.Engine")
    return EngineKind(
        name=name,
        target=target,
        schema=_schema(engine),
        settings=engine.settings_kind,
        meaning=_meaning(engine),
        package=package,
        follows_environment=engine.follows_environment,
    )


def _schema(engine: type[Engine]) -> type[EngineConfig]:
    """Hydra's mutable form of the declared settings, with what every engine has."""
    kind, hints = engine.settings_kind, get_type_hints(engine.settings_kind)
    own: list[tuple[str, Any, Field[Any]]] = [(each.name, hints[each.name], _field(each)) for each in fields(kind)]
    if engine.takes_draft:
        draft: Any = setting(None, "The checkpoint that drafts. null: the `draft` of the arm's checkpoint.")
        own.insert(0, ("draft", str | None, draft))
    namespace = {"settings_kind": kind, "__doc__": getdoc(engine)}
    return make_dataclass(f"{engine.__name__}Config", own, bases=(EngineConfig,), namespace=namespace)


def _field(declared: "Field[Any]") -> "Field[Any]":
    """Return a copy of the field without the frozen class's keyword-only flag."""
    made: Any
    if declared.default is not MISSING:
        made = field(default=declared.default, metadata=declared.metadata)
    elif declared.default_factory is not MISSING:
        made = field(default_factory=declared.default_factory, metadata=declared.metadata)
    else:
        made = field(default=omegaconf.MISSING, metadata=declared.metadata)
    return cast("Field[Any]", made)


def _meaning(engine: type[Engine]) -> str:
    """The first paragraph of the class's docstring, or of its module's if that describes the engine."""
    own = getdoc(engine) or ""
    text = own if not own.startswith("See the module") else getdoc(getmodule(engine)) or ""
    return " ".join(text.split("\n\n")[0].split())


def kind_by_target(target: str) -> EngineKind | None:
    """Return the engine with this dotted class path, or None if it is unknown."""
    return next((kind for kind in engine_kinds().values() if kind.target == target), None)


def is_simulated(schema: type[Any]) -> bool:
    """Return whether a schema belongs to the simulated engine, which measures nothing."""
    return any(kind.schema is schema for kind in engine_kinds().values() if kind.target == _SIMULATED)


def is_attached(schema: type[Any]) -> bool:
    """Return whether a schema belongs to the engine that speaks to a server which runs already."""
    return any(kind.schema is schema for kind in engine_kinds().values() if kind.target == _ATTACHED)


def presets() -> list[str]:
    """The shipped options that are another engine with settings of their own, such as a server's address."""
    files = sorted((Path(conf.__file__).parent / "engine").glob("*.yaml"))
    return [path.stem for path in files if path.stem not in engine_kinds()]


@cache
def register_engines() -> None:
    """Put the schemas into Hydra's ConfigStore, and an option for each engine that has no file; once per process."""
    store = ConfigStore.instance()
    for kind in engine_kinds().values():
        store.store(group="schema/engine", name=kind.name, node=kind.schema)
        if kind.package is not None:
            node = {"defaults": [f"/schema/engine/{kind.name}@_here_", "_self_"], "_target_": kind.target}
            store.store(group="engine", name=kind.name, node=node, provider=kind.package)


def without_file(kinds: Iterable[EngineKind]) -> Iterator[str]:
    """The names of engines that other packages bring."""
    return (kind.name for kind in kinds if kind.package is not None)
