"""Measure how often each way to compare two arms errs, and finds a true 5 %: the table of docs/method.md.

    python benchmarks/false_positives.py [RUNS]

Eight rounds of two arms, noise of scale 1 % (t, 4 degrees of freedom), level 5 %. Needs SciPy (a development
dependency) for the t tests that it compares with. The last table asks for the whole verdict, the control entered twice
in every round, in a tenth as many runs. About two minutes for 2,000 runs.
"""

import sys
from collections.abc import Callable

import numpy as np
from scipy import stats

from orchestrator.effects import exchanges
from orchestrator.statistics.drift import PROFILES, Floats, Setting, drift_rows, noise_rows, standard
from orchestrator.statistics.simulate import judge, judge_verdicts, simulated_runs

ROUNDS = 8
TRIALS = 2 * ROUNDS
EFFECT = 1.05
ALPHA = 0.05

BLOCKED = [0] * ROUNDS + [1] * ROUNDS
ABAB = [0, 1] * ROUNDS
ABBA = [0, 1, 1, 0] * (ROUNDS // 2)


def fixed_order(order: list[int], *, paired: bool) -> Callable[[Setting, float, int], float]:
    """Share of rejections of a t test over a fixed order."""
    is_treatment = np.array(order) == 1

    def share(setting: Setting, effect: float, runs: int) -> float:
        rng = np.random.Generator(np.random.PCG64(0))
        y = drift_rows(setting, TRIALS, range(runs)) + noise_rows(setting, TRIALS, runs, rng)
        y = y + np.log(effect) * is_treatment
        treated, control = y[:, is_treatment], y[:, ~is_treatment]
        if paired:
            p = stats.ttest_rel(treated, control, axis=1).pvalue
        else:
            p = stats.ttest_ind(treated, control, axis=1, equal_var=False).pvalue
        return float(np.mean(p <= ALPHA))

    return share


def random_order_paired_mean(setting: Setting, effect: float, runs: int) -> float:
    """Share of rejections of the randomisation test on the mean within-round difference."""
    signs = exchanges(ROUNDS, 0)
    rejected = 0
    for run in simulated_runs(setting, arms=2, rounds=ROUNDS, effects=(effect,), runs=runs, seed=0):
        contrasts: Floats = (run.y * (2 * run.arms - 1)).reshape(ROUNDS, 2).sum(axis=1)
        sizes = np.abs(signs @ contrasts)
        rejected += bool(np.mean(sizes >= sizes[0] - 1e-12) <= ALPHA)
    return rejected / runs


def interlace(setting: Setting, effect: float, runs: int) -> float:
    """Share of rejections of this project's method."""
    return judge(setting, rounds=ROUNDS, effect=effect, alpha=ALPHA, runs=runs).rejected


METHODS: dict[str, Callable[[Setting, float, int], float]] = {
    "AAAA BBBB, Welch t": fixed_order(BLOCKED, paired=False),
    "ABAB, paired t": fixed_order(ABAB, paired=True),
    "ABBA, paired t": fixed_order(ABBA, paired=True),
    "random order, paired mean": random_order_paired_mean,
    "random order, interlace": interlace,
}


def table(effect: float, runs: int) -> str:
    """A Markdown table: methods by profiles."""
    lines = ["| method | " + " | ".join(PROFILES) + " |", "|---" * (len(PROFILES) + 1) + "|"]
    for name, method in METHODS.items():
        shares = [method(standard(profile, TRIALS), effect, runs) for profile in PROFILES]
        lines.append(f"| {name} | " + " | ".join(f"{share:.3f}" for share in shares) + " |")
    return "\n".join(lines)


def verdict_table(runs: int) -> str:
    """A Markdown table: the share of `supported` by true effect and profile."""
    lines = ["| true effect | " + " | ".join(PROFILES) + " |", "|---" * (len(PROFILES) + 1) + "|"]
    for effect in (1.0, 1.03, EFFECT, 1.1):
        settings = [standard(profile, 3 * ROUNDS) for profile in PROFILES]
        shares = [judge_verdicts(setting, rounds=ROUNDS, effect=effect, runs=runs).supported for setting in settings]
        lines.append(f"| {effect - 1:.0%} | " + " | ".join(f"{share:.3f}" for share in shares) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    print(f"No difference: share of {count} runs in which one was found\n\n{table(1.0, count)}\n")
    print(f"A true {EFFECT - 1:.0%}: share of {count} runs in which a difference was found\n\n{table(EFFECT, count)}\n")
    print(f"The verdict: share of {count // 10} runs in which an effect is supported\n\n{verdict_table(count // 10)}")
