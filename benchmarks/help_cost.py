"""What `interlace --help` costs, relative to importing its command-line library alone. Paired, ratios.

    python benchmarks/help_cost.py [PAIRS]

Each pair runs both as whole processes in a random order; printed are the median ratio and its quartiles. The limit that
the project sets itself is 1.3.
"""

import random
import statistics
import subprocess
import sys
import time

LIBRARY = [sys.executable, "-c", "import click"]
HELP = [
    sys.executable,
    "-c",
    "import sys; sys.argv = ['interlace', '--help']; from orchestrator.cli import main; main()",
]


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    draw = random.Random(0)
    ratios = []
    for _ in range(pairs):
        took = {}
        for name in draw.sample(["library", "help"], 2):
            took[name] = seconds(LIBRARY if name == "library" else HELP)
        ratios.append(took["help"] / took["library"])
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"interlace --help over importing click: {middle:.3f} (quartiles {low:.3f} to {high:.3f}, {pairs} pairs)")


if __name__ == "__main__":
    main()
