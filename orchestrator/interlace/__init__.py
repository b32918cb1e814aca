"""Stored runs in Python: `import interlace`, then `interlace.audit("last")`.

The wheel installs this folder as the package `interlace`, beside the packages that the source tree names: see
docs/design/packaging.md. The functions themselves are in `orchestrator.notebook`.
"""

from importlib.util import find_spec
from pathlib import Path

_OWN = ("conf", "db", "orchestrator", "workers")


def _in_the_way() -> str | None:
    """Another project's module of the same name, such as a `db.py` beside the notebook, and the remedy."""
    files = {name: "" if (spec := find_spec(name)) is None else spec.origin or "" for name in _OWN}
    places = [Path(file).parent.parent for file in files.values()]
    ours = max(places, key=places.count)
    for (name, file), place in zip(files.items(), places, strict=True):
        if place != ours or Path(file).name != "__init__.py":
            return (
                f"interlace needs its own package `{name}`, and Python finds {file or 'none'} instead: "
                "rename that file or folder, or start Python in another folder"
            )
    return None


if (_problem := _in_the_way()) is not None:
    raise ImportError(_problem)

from orchestrator.notebook import Audit, audit, runs, trials, verdicts  # noqa: E402 - only once the packages are ours

__all__ = ["Audit", "audit", "runs", "trials", "verdicts"]
