"""The packages installed here: their versions are kept unless an environment names the package."""

import json
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from workers.environment import WORKER_PACKAGES

# Of these the extras in use are kept: an extra chooses the backend that computes.
_WITH_EXTRAS = frozenset({"mlx"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The environment that interlace runs in."""

    python: str  # the version in full
    versions: Mapping[str, str]  # of every distribution, by normalised name
    platform: str


def current() -> Baseline:
    """Read the versions of all distributions of this interpreter."""
    found = {str(canonicalize_name(each.name)): each.version for each in distributions() if each.name}
    where = f"{sys.platform} {platform.machine()} {platform.mac_ver()[0]}".strip()
    return Baseline(python=platform.python_version(), versions=found, platform=where)


def roots(needed: Iterable[str]) -> tuple[str, ...]:
    """The requirements that make an environment able to run a worker: its engine's packages and the worker's own.

    A package that is not installed here is left out: the arm names it, or a load says that it is missing.
    """
    names = dict.fromkeys(canonicalize_name(each) for each in [*needed, *WORKER_PACKAGES])
    return tuple(line for name in names if (line := _root(name)) is not None)


def _root(name: str) -> str | None:
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return None
    if (address := _repository(found)) is not None:
        return f"{name} @ {address}"
    extras = [extra for extra in _extras(found) if name in _WITH_EXTRAS]
    return f"{name}[{','.join(extras)}]" if extras else name


def _repository(found: Distribution) -> str | None:
    """The repository and commit that a distribution was installed from; None: it was not."""
    try:
        origin: Any = json.loads(found.read_text("direct_url.json") or "{}")
        vcs = origin["vcs_info"]
        return f"{vcs['vcs']}+{origin['url']}@{vcs['commit_id']}"
    except (ValueError, KeyError, TypeError):
        return None


def _extras(found: Distribution) -> Iterable[str]:
    """The extras whose own requirements are all installed."""
    requirements = [Requirement(each) for each in found.requires or ()]
    for extra in found.metadata.get_all("Provides-Extra") or ():
        own = [
            each
            for each in requirements
            if each.marker is not None
            and each.marker.evaluate({"extra": extra})
            and not each.marker.evaluate({"extra": ""})
        ]
        if own and all(_is_installed(each.name) for each in own):
            yield extra


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
