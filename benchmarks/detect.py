"""Does a plan for an effect get its verdict? The share of runs planned by `design.detect` that are "supported".

    python -m benchmarks.detect [RUNS]

For 1, 3 and 6 treatments and 2, 3 and 5 %: the rounds that the plan chooses, and the verdicts of `audit` on fresh
simulated runs in which one treatment has the effect and the others have none. Goal: supported in 0.78 or more. With it
the share in which the pair's own interval is clear of 1, which is all that a plan by the test alone would see, and the
CPU seconds of planning. Drift and noise are those assumed without a history. About five minutes for 200 runs.
"""

import sys
import time
from dataclasses import replace

from orchestrator.audit import audit
from orchestrator.statistics.drift import ASSUMED
from orchestrator.statistics.power import rounds_for
from tests.orchestrator.flat import FlatRun

EFFECTS = (0.02, 0.03, 0.05)
TREATMENTS = (1, 3, 6)
GOAL = 0.78
SEED = 9_000


def measure(effect: float, treatments: int, runs: int) -> str:
    arms = treatments + 2
    started = time.process_time()
    rounds = rounds_for(ASSUMED, arms=arms, effect=effect)
    cpu_s = time.process_time() - started
    assert rounds is not None
    effects = {"control": 1.0, "t1": 1.0 + effect} | {f"t{number}": 1.0 for number in range(2, treatments + 1)}
    machine = FlatRun(
        effects=effects, rounds=rounds, prompts={"p": "all"}, drift=ASSUMED.size, noise=ASSUMED.noise, bracket=False
    )
    supported = clear = 0
    for seed in range(SEED, SEED + runs):
        trials = replace(machine, seed=seed).frame()
        comparisons = audit(trials, control="control", metric="decode_tps").comparisons
        found = next(one for one in comparisons if one.treatment == "t1" and one.prompt_class is None)
        supported += found.verdict == "supported" and found.direction == "faster"
        clear += found.ci_low is not None and found.ci_low > 1
    mark = "" if supported >= GOAL * runs else "  below the goal"
    share, test = supported / runs, clear / runs
    return f"{effect:>6.0%} {treatments:>10} {rounds:>6} {share:>9.3f} {test:>9.3f} {cpu_s:>10.2f}{mark}"


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{'effect':>6} {'treatments':>10} {'rounds':>6} {'supported':>9} {'test only':>9} {'plan cpu s':>10}")
    for effect in EFFECTS:
        for treatments in TREATMENTS:
            print(measure(effect, treatments, runs), flush=True)


if __name__ == "__main__":
    main()
