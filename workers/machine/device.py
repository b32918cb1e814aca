"""`python -m workers.machine.device` prints MLX's description of the device as JSON.

It is a process of its own, so that the caller never loads MLX.
"""

import json
import sys
from typing import Any


def main() -> int:
    """Print the default device and its facts, or why MLX cannot be used."""
    sys.stdout.write(json.dumps(read_device()) + "\n")
    return 0


def read_device() -> dict[str, Any]:
    """`device`, `metal`, `working_set_bytes`; or `error`."""
    try:
        import mlx.core as mx
    except ImportError as error:
        return {"error": f"mlx cannot be imported: {error}"}
    info: dict[str, Any] = dict(mx.device_info())
    return {
        "device": str(mx.default_device()),
        "metal": bool(mx.metal.is_available()),
        "name": info.get("device_name"),
        "working_set_bytes": info.get("max_recommended_working_set_size"),
    }


if __name__ == "__main__":
    sys.exit(main())
