"""From what an environment names to its lock: named packages are free, everything else keeps its version."""

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from orchestrator.environments.baseline import Baseline, roots
from orchestrator.environments.requirements import Named, read
from orchestrator.environments.tools import Tool, python_version
from orchestrator.errors import InputError, RefusedError
from orchestrator.plan import Lock, LockedPackage, sha256_of

_NOT_SOURCE = frozenset({".git", ".hg", "__pycache__", ".venv", "venv", "build", "dist", ".tox", ".mypy_cache"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The wanted content of one environment."""

    name: str
    named: tuple[Named, ...]
    python: str | None
    newest: bool
    needed: tuple[str, ...]  # distributions that the arms' engines run
    keep: Mapping[str, str]  # the version that everything else has if it can, by normalised name
    installed: Mapping[str, str]  # versions here, which `moved` is told against
    platform: str

    @property
    def sha256(self) -> str:
        """Identity of the request: equal ones have equal locks, as far as they are `exact`."""
        texts = [each.text for each in self.named]
        return sha256_of([texts, self.python, self.newest, self.needed, dict(self.keep), self.platform])

    @property
    def exact(self) -> bool:
        """Return whether resolving it again yields the same, whatever was published meanwhile."""
        return not self.newest and all(each.exact for each in self.named)


def request_of(
    environment: Mapping[str, Any], *, needed: Sequence[str], here: Baseline, keep: Mapping[str, str]
) -> Request:
    """The request of an arm's environment.

    Args:
        needed: see `Request`.
        keep: versions that go before those installed here: what an earlier environment of the plan had to move.

    Raises:
        InputError: see `requirements.read`.
    """
    named = tuple(read(each) for each in environment["packages"])
    return Request(
        name=environment["name"],
        named=named,
        python=environment.get("python"),
        newest=bool(environment.get("newest")),
        needed=tuple(dict.fromkeys(canonicalize_name(each) for each in needed)),
        keep={**here.versions, **keep},
        installed=here.versions,
        platform=here.platform,
    )


def resolve(request: Request, tool: Tool) -> Lock:
    """The exact lock of an environment.

    Raises:
        InputError: the packages cannot be had together, or do not exist; names the environment.
        RefusedError: no network, a full disk, or a build that failed.
    """
    try:
        python = tool.find_python(request.python)
        free = free_names(request)
        keep = {name: version for name, version in request.keep.items() if name not in free}
        own = {each.name for each in request.named if each.name is not None}
        base = [line for line in roots(request.needed) if canonicalize_name(_name(line)) not in own or "[" in line]
        packages = tool.resolve([*(each.line for each in request.named), *base], keep, python)
        others = {canonicalize_name(_name(line)) for line in base} - free
        found = [replace(each, named=each.name in free or _is_given(each, others)) for each in packages]
        packages = sorted((_hashed(each) for each in found), key=lambda each: each.name)
        full = python_version(python)
    except (InputError, RefusedError) as error:
        raise type(error)(f"environment {request.name}: {error}") from error
    return Lock(
        environment=request.name,
        python=full,
        interpreter=request.python,
        packages=tuple(packages),
        moved=tuple(
            _moved(packages, {name: version for name, version in request.installed.items() if name not in free})
        ),
    )


def free_names(request: Request) -> frozenset[str]:
    """The packages whose versions the request leaves open or sets."""
    newest = request.needed if request.newest else ()
    return frozenset([*(each.name for each in request.named if each.name is not None), *newest])


def _is_given(package: LockedPackage, others: Collection[str]) -> bool:
    """Return whether it is a source whose name was unknown before its build."""
    return package.source is not None and package.name not in others


def _name(line: str) -> str:
    return line.partition(" ")[0].partition("[")[0]


def _moved(packages: Sequence[LockedPackage], keep: Mapping[str, str]) -> Iterator[str]:
    for each in packages:
        before = keep.get(each.name)
        if before is not None and each.version is not None and before != each.version:
            yield f"{each.name} {before} -> {each.version}"


def _hashed(package: LockedPackage) -> LockedPackage:
    """A package whose source lies here with the hash of its content."""
    if package.source is None or not package.source.startswith("/"):
        return package
    return replace(package, sha256=content_sha256(Path(package.source)))


def content_sha256(path: Path) -> str:
    """SHA-256 of a file, or of a source tree: names and contents of its files, without what building leaves behind.

    Raises:
        RefusedError: it cannot be read.
    """
    try:
        if path.is_file():
            return hashlib.sha256(path.read_bytes()).hexdigest()
        listed = [(str(each.relative_to(path)), hashlib.sha256(each.read_bytes()).hexdigest()) for each in _files(path)]
    except OSError as error:
        raise RefusedError(f"{error.filename}: {error.strerror}") from error
    return sha256_of(sorted(listed))


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each not in _NOT_SOURCE and not each.endswith(".egg-info")]
        yield from (Path(place) / each for each in files if (Path(place) / each).is_file())
