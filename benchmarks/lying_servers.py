"""Count the wrong counts and unmeasured rates that pass: generations of a server that lies in all known ways.

    python benchmarks/lying_servers.py [--generations 1000] [--seed 0] [--at-once 4]

Each generation goes through the worker's own code, over a real socket, with a lie and a length drawn from the seed.
Prints, for each lie, what became of its generations: invalid (as the trial would be), flagged (named by the audit),
without a decode rate, without evidence of the mechanism that was asked for, or right. `admitted` is a wrong count or
rate that nothing names; there must be none. Honest answers are right, or without a rate where this machine was too busy
to read them one by one. Exit code 1 unless all is as expected.
"""

import argparse
import random
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

from tests.workers.lied_to import answers_to, become_of
from tests.workers.lying_server import LIES, LyingServer

OUTCOMES = ("right", "invalid", "flagged", "no_rate", "unknown", "admitted")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--generations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=4)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    names = [list(LIES)[place % len(LIES)] for place in range(asked.generations)]
    lengths = [rng.randrange(32, 129) for _ in names]
    with LyingServer(gap_s=0.008) as server, ThreadPoolExecutor(asked.at_once) as pool:
        found = list(pool.map(lambda name, length: become_of(server.url, name, max_tokens=length), names, lengths))
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for name, one in zip(names, found, strict=True):
        table[name][one.outcome] += 1
    print(f"{'lie':28}" + "".join(f"{outcome:>10}" for outcome in OUTCOMES))
    for name, counts in table.items():
        print(f"{name:28}" + "".join(f"{counts[outcome] or '':>10}" for outcome in OUTCOMES))
    totals = sum(table.values(), Counter[str]())
    print(f"{f'{len(table)} ways':28}" + "".join(f"{totals[outcome]:>10}" for outcome in OUTCOMES))
    wrong = [(name, one) for name, one in zip(names, found, strict=True) if one.outcome not in answers_to(name)]
    for name, one in wrong:
        print(f"{name}: {one.outcome}, not {LIES[name].expected}: {one.words}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
