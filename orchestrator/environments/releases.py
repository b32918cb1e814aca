"""The releases of a package that the user's package index holds: pip lists them, by its own configuration."""

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from orchestrator.environments.tools import UV_VARIABLE, failure, run
from orchestrator.errors import InputError, RefusedError


def releases_between(package: str, good: str, bad: str) -> list[str]:
    """The releases from `good` to `bad`, both included, in order. Pre-releases only if one of the ends is one.

    Raises:
        InputError: not a package's name, versions in the wrong order, or a package that the index does not hold.
        RefusedError: the index does not answer, or nothing here can list it.
    """
    first, last = _version(good), _version(bad)
    if first >= last:
        raise InputError(
            f"bisect {package} {good} {bad}: name the older release first; the order does not depend on speed"
        )
    return ordered(_listed(package), first, last)


def ordered(listed: Iterable[str], first: Version, last: Version) -> list[str]:
    """The releases between two of them, both ends included, whether or not the list holds the ends. Pure."""
    with_previews = first.is_prerelease or last.is_prerelease
    found = {first: str(first), last: str(last)}
    for text in listed:
        try:
            version = Version(text)
        except InvalidVersion:
            continue  # an old release with a version that no tool installs any more
        if first < version < last and (with_previews or not version.is_prerelease):
            found[version] = text
    return [found[version] for version in sorted(found)]


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise InputError(f"{text!r} is not a version; write one such as 0.31.0") from error


def _listed(package: str) -> Sequence[str]:
    name = canonicalize_name(package)
    if not name.replace("-", "").isalnum():
        raise InputError(f"{package!r} is not a package's name")
    said = run([*_pip(), "index", "versions", name, "--json"], what="list the releases for")
    try:
        found: list[str] = json.loads(said[said.index("{") :])["versions"]
    except (ValueError, KeyError) as error:
        raise RefusedError(f"pip does not list the releases of {name}: {' '.join(said.split())[:200]}") from error
    if not found:
        raise failure(f"No matching distribution found for {name}", what="list the releases for")
    return found


def _pip() -> list[str]:
    """pip of this interpreter; if it has none, one that uv runs by itself."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    uv = shutil.which(os.environ.get(UV_VARIABLE) or "uv")
    if uv is None:
        raise RefusedError(f"neither uv nor pip is here to list releases; run: {sys.executable} -m ensurepip")
    return [uv, "tool", "run", "--quiet", "pip", "--disable-pip-version-check", "--no-input"]
