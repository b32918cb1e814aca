"""How often a crossing of two arms by depth is stated wrongly, and how often a true one is found.

    python -m benchmarks.depth_crossing [RUNS]

Two arms at depths of 0, 4,096, 16,384 and 32,768 tokens, in passes in which each depth comes once in a random order, on
a machine that slows by 34 % over the run, with noise of 1 % per trial: normal, or heavy-tailed (t with 3 degrees of
freedom, of the same interquartile range). Wrong: a crossing is stated where there is none, or its interval does not
hold the true one. About 20 seconds for 2,000 runs.
"""

import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from orchestrator.findings.depth_costs import crossing

Floats = npt.NDArray[np.float64]

DEPTHS = np.array([0.02, 4.1, 16.4, 32.8])  # thousands of tokens
CONTROL_A, CONTROL_B = 10.0, 0.1  # ms, ms per 1,000 tokens
ALPHA, NOISE, DRIFT = 0.05, 0.01, -0.34
CASES: dict[str, tuple[float, float, float | None]] = {  # a, b, and the true crossing in thousands of tokens
    "equal arms": (10.0, 0.1, None),
    "5 % faster everywhere": (9.5, 0.095, None),
    "faster, least at the far end": (9.0, 0.125, None),
    "crosses at 2 000": (9.9, 0.15, 2.0),
    "crosses at 9 000": (9.1, 0.2, 9.0),
    "crosses at 25 000": (9.0, 0.14, 25.0),
}


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    heavy = np.quantile(np.random.default_rng(0).standard_t(3, 10**6), 0.75) / 0.6745
    noises: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Floats]] = {
        "normal": lambda rng, shape: rng.standard_normal(shape),
        "heavy": lambda rng, shape: rng.standard_t(3, shape) / heavy,
    }
    print(f"{'case':30} {'noise':7} passes  wrong  point  two depths")
    for case, (a, b, truth) in CASES.items():
        for name, draw in noises.items():
            for passes in (6, 12):
                wrong, points, brackets = tally(a, b, truth, draw, passes=passes, runs=runs)
                print(f"{case:30} {name:7} {passes:6} {wrong:6.1%} {points:6.1%} {brackets:6.1%}")


def tally(
    a: float,
    b: float,
    truth: float | None,
    draw: Callable[[np.random.Generator, tuple[int, ...]], Floats],
    *,
    passes: int,
    runs: int,
) -> tuple[float, float, float]:
    """Return the shares of runs with a wrong statement, with a crossing as a point, and between two depths."""
    rng = np.random.default_rng(1)
    wrong = points = brackets = 0
    for _ in range(runs):
        control, arm = (simulated(rng, *line, draw, passes) for line in ((CONTROL_A, CONTROL_B), (a, b)))
        slow = slowness(rng, passes)
        found = crossing((arm - control) * slow, DEPTHS, scale=float((control * slow).mean()), alpha=ALPHA)
        if found is not None:
            points += found.at_tokens is not None
            brackets += found.at_tokens is None
            wrong += truth is None or not found.low <= 1000 * truth <= found.high
    return wrong / runs, points / runs, brackets / runs


def simulated(
    rng: np.random.Generator,
    a: float,
    b: float,
    draw: Callable[[np.random.Generator, tuple[int, ...]], Floats],
    passes: int,
) -> Floats:
    """Times per token without drift, (passes, depths)."""
    times: Floats = (a + b * DEPTHS) * np.exp(NOISE * draw(rng, (passes, len(DEPTHS))))
    return times


def slowness(rng: np.random.Generator, passes: int) -> Floats:
    """The machine's factor in each round: both arms run in it, at nearly the same time."""
    order = np.array([rng.permutation(len(DEPTHS)) for _ in range(passes)])
    place = order + len(DEPTHS) * np.arange(passes)[:, None]
    factor: Floats = 1 / (1 + DRIFT * place / (place.size - 1))
    return factor


if __name__ == "__main__":
    main()
