"""MLX's description of this machine, read in a separate process because this one never loads MLX."""

import functools
import json
import subprocess
import sys
from typing import Any

DEVICE_TIMEOUT_S = 60.0


@functools.cache
def working_set_bytes() -> int | None:
    """Return Metal's recommended working set, or None if there is no Metal here or no answer."""
    if sys.platform != "darwin":
        return None
    found = read_device().get("working_set_bytes")
    return found if isinstance(found, int) else None


def read_device() -> dict[str, Any]:
    """Return the answer of `workers.machine.device`, or `error` with the reason."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "workers.machine.device"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=DEVICE_TIMEOUT_S,
            check=False,
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"mlx did not answer within {DEVICE_TIMEOUT_S:g} s"}
    except (ValueError, IndexError):
        words = done.stderr.strip().splitlines()
        return {"error": f"mlx ended with status {done.returncode}: {words[-1] if words else 'no words'}"}
    return found
