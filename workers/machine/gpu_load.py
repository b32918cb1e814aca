"""`python -m workers.machine.gpu_load SECONDS` multiplies matrices with MLX for so long and prints what it did as JSON.

A process of its own, so that the caller never loads MLX, and so that its work is another's to the readings.
"""

import json
import sys
import time

_SIDE = 1024


def main() -> int:
    """`{"device", "products", "busy_s"}`, or `{"error"}`."""
    seconds = float(sys.argv[1])
    try:
        import mlx.core as mx
    except ImportError as error:
        sys.stdout.write(json.dumps({"error": f"mlx cannot be imported: {error}"}) + "\n")
        return 0
    matrix = mx.random.normal((_SIDE, _SIDE))
    mx.eval(matrix @ matrix)
    products, started_s = 0, time.monotonic()
    while time.monotonic() - started_s < seconds:
        mx.eval(matrix @ matrix)
        products += 1
    found = {"device": str(mx.default_device()), "products": products, "busy_s": time.monotonic() - started_s}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
