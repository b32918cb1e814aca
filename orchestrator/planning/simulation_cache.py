"""A cache of simulation results, keyed by all that they depend on: `plan` needs the same ones again and again.

The key is the hash of the inputs and of the code that computed the result, so no result outlives a change of the
method. A result that cannot be read or was not written is computed again.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from workers.files.atomic import write_file
from workers.files.private import UnsafeTargetError, make_private_folder
from workers.weights.folders import cache_dir

CODE = ("orchestrator/statistics", "orchestrator/estimation", "orchestrator/effects.py", "orchestrator/schedule.py")
MOST_RESULTS = 500


def folder() -> Path:
    """Return the folder of the cached results."""
    return cache_dir() / "simulations"


def simulated(name: str, inputs: Mapping[str, Any], simulate: Callable[[], float | None]) -> float | None:
    """Return a simulated number, from the cache if it was simulated before.

    Args:
        name: the name of the number.
        inputs: all that it depends on besides the code, as JSON values.
        simulate: computes it; None is a result too.
    """
    text = json.dumps([name, inputs, code_digest()], sort_keys=True)
    path = folder() / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
    try:
        found: float | None = json.loads(path.read_text(encoding="utf-8"))["result"]
        if found is None or type(found) in (int, float):
            return found
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass  # not there, or damaged
    result = simulate()
    with contextlib.suppress(OSError, UnsafeTargetError):
        make_private_folder(path.parent)
        write_file(path, json.dumps({"name": name, "inputs": inputs, "result": result}).encode())
        _forget_oldest(path.parent)
    return result


@cache
def code_digest() -> str:
    """Return the digest of the code that simulates and judges, and of the library that it computes with."""
    digest = hashlib.sha256(version("numpy").encode())
    root = Path(str(files("orchestrator"))).parent
    for place in (root / name for name in (*CODE, "workers/machine/drift.py")):
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _forget_oldest(place: Path) -> None:
    kept = sorted(place.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[MOST_RESULTS:]:
        path.unlink(missing_ok=True)
