"""The cost of a commit by its durability: a trial's rows in one transaction, compared side by side in rounds.

    .venv/bin/python benchmarks/commit_cost.py [FOLDER]

The folder decides which disk is measured. Prints milliseconds per commit, median and 95th percentile.
"""

import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

SETTINGS = {
    "NORMAL": ("synchronous=NORMAL",),
    "FULL": ("synchronous=FULL",),
    "FULL, fullfsync": ("synchronous=FULL", "fullfsync=ON", "checkpoint_fullfsync=ON"),
}
ROUNDS, ROWS, ROW_BYTES = 300, 5, 4000  # a trial with four generations, as `interlace` stores one


def main(folder: str | None) -> None:
    """Measure and print."""
    taken_ms: dict[str, list[float]] = {name: [] for name in SETTINGS}
    with tempfile.TemporaryDirectory(dir=folder) as place, ExitStack() as stack:
        connections = {name: stack.enter_context(closing(_open(Path(place), name))) for name in SETTINGS}
        for _ in range(ROUNDS):
            for name, connection in connections.items():
                began_s = time.perf_counter()
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("INSERT INTO row (body) VALUES (randomblob(?))", [(ROW_BYTES,)] * ROWS)
                connection.execute("COMMIT")
                taken_ms[name].append(1000 * (time.perf_counter() - began_s))
    print(f"{ROUNDS} commits of {ROWS} rows of {ROW_BYTES} bytes in {folder or tempfile.gettempdir()}")
    print(f"{'synchronous':<18}{'median ms':>10}{'95 % ms':>10}")
    for name, values in taken_ms.items():
        print(f"{name:<18}{statistics.median(values):>10.3f}{statistics.quantiles(values, n=20)[-1]:>10.3f}")


def _open(folder: Path, name: str) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / f"{name}.db", isolation_level=None)
    for pragma in ("journal_mode=WAL", *SETTINGS[name]):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, body BLOB)")
    return connection


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
