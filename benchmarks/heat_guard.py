"""How often the check for carry-over, and the guard against heat, stop a verdict rightly and wrongly.

    python -m benchmarks.heat_guard [RUNS]

The first table holds random walks of 0 to 4 % per trial. Without heat, a true 5 % whose interval is clear of 1 is
stopped wrongly; with an arm that leaves heat (decay 0.8) and has no effect, an interval clear of 1 is stopped rightly.
The second asks whether the order of prompts looks like carry-over: rounds of one prompt each, prompts far apart, with
effects that differ by prompt, and no carry-over at all. The third is the guard's cost under each drift profile, with 8
rounds and no heat. In the last both arms leave heat, which decays unlike. About five minutes for 100 runs.
"""

import math
import sys
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.truth import ALPHA, CONTROL, TREATMENT, Design, simulate
from orchestrator.effects import effect_of
from orchestrator.schedule import AA_LABEL, draw_rounds
from orchestrator.statistics.carry_over import carry_over
from orchestrator.statistics.drift import PROFILES, Setting, drift_rows, noise_rows, standard
from orchestrator.statistics.heat import may_be_heat
from orchestrator.statistics.heat_design import heat_of
from orchestrator.statistics.lags import LagModel, Placed, Ran
from orchestrator.statistics.observations import ScopeTrials
from orchestrator.statistics.simulate import simulated_runs

WALKS = (0.0, 0.01, 0.02, 0.04)  # per trial
HEATS = (0.12, 0.25)
ENTRIES = (CONTROL, AA_LABEL, TREATMENT)
UNLIKE = (  # heats and decays of the treatment and the control
    ((0.12, 0.25), (0.9, 0.0)),
    ((0.25, 0.12), (0.9, 0.5)),
    ((0.05, 0.1), (0.9, 0.0)),
    ((0.12, 0.12), (0.0, 0.9)),
)
EFFECT, DECAY, NOISE = 0.05, 0.8, 0.01


def walks(walk: float, heat: float, effect: float, rounds: int, runs: int) -> Iterator[ScopeTrials]:
    """Runs of three entries on a random walk."""
    trials = len(ENTRIES) * rounds
    setting = Setting(profile="random_walk", size=walk * trials**0.5, noise=NOISE)
    rng = np.random.Generator(np.random.PCG64(0))
    machine = drift_rows(setting, trials, range(runs)) + noise_rows(setting, trials, runs, rng)
    for run in range(runs):
        labels = np.array([label for one in draw_rounds(ENTRIES, rounds, run) for label in one], dtype=object)
        treated = labels == TREATMENT
        left = heat_of([-math.log1p(-heat) * one for one in treated], DECAY, 0.0)
        yield ScopeTrials(
            y=machine[run] - left + math.log1p(effect) * treated,
            rounds=np.repeat(np.arange(rounds), len(ENTRIES)),
            labels=labels,
            prompts=None,
        )


def profile_runs(profile: str, effect: float, rounds: int, runs: int) -> Iterator[ScopeTrials]:
    """Runs of three entries under a drift profile at the size that the method is judged at."""
    names = np.array(ENTRIES, dtype=object)
    setting = standard(profile, len(ENTRIES) * rounds)
    for run in simulated_runs(setting, arms=len(ENTRIES), rounds=rounds, effects=(), runs=runs, seed=0):
        labels = names[run.arms]
        y = run.y + math.log1p(effect) * (labels == TREATMENT)
        yield ScopeTrials(y=y, rounds=run.rounds, labels=labels, prompts=None)


def unlike_heats(heats: Sequence[float], decays: Sequence[float], rounds: int, runs: int) -> Iterator[ScopeTrials]:
    """Runs without drift and without an effect; the treatment and the control each leave their own heat."""
    for run in range(runs):
        rng = np.random.default_rng(run)
        labels = np.array([label for one in draw_rounds(ENTRIES, rounds, run) for label in one], dtype=object)
        y = NOISE * rng.standard_t(4, len(labels))
        for own, heat, decay in zip((labels == TREATMENT, labels != TREATMENT), heats, decays, strict=True):
            y = y - heat_of([-math.log1p(-heat) * one for one in own], decay, 0.0)
        yield ScopeTrials(y=y, rounds=np.repeat(np.arange(rounds), len(ENTRIES)), labels=labels, prompts=None)


def stopped(runs: Iterator[ScopeTrials]) -> Sequence[float]:
    """Shares: interval clear of 1; carry-over found; clear and stopped by either; clear and not stopped."""
    found = []
    for used in runs:
        series = used.pair(TREATMENT, CONTROL)
        assert series is not None
        effect = effect_of(series, alpha=ALPHA, seed=0)
        clear = not effect.ci_low <= 1 <= effect.ci_high
        mark = carry_over(used, control=CONTROL, seed=0)
        flagged = mark is not None and mark.matters
        model = LagModel.fit_by_noise(Placed.find(used, Ran.of(used), control=CONTROL))
        heat = may_be_heat(model, effect, treatment=TREATMENT, control=CONTROL, alpha=ALPHA) is not None
        found.append((clear, flagged, clear and (flagged or heat), clear and not flagged and not heat))
    return [float(each) for each in np.mean(found, axis=0)]


def prompts(rounds: int, effects: Sequence[float], runs: int) -> tuple[float, float]:
    """Shares of runs of one prompt per round in which carry-over is found, and in which p is at most 0.05."""
    design = Design(rounds=rounds, by_prompt=True, effects=effects, drift=-0.1)
    marks = [carry_over(simulate(design, seed), control=CONTROL, seed=0) for seed in range(runs)]
    p = np.array([1.0 if mark is None else mark.p_value for mark in marks])
    return float(np.mean(p <= 0.01)), float(np.mean(p <= 0.05))


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print("| walk per trial | rounds | true effect | heat | clear of 1 | carry-over found | stopped | stands |")
    print("|---|---|---|---|---|---|---|---|")
    for rounds in (8, 20):
        for walk in WALKS:
            for heat, effect in ((0.0, EFFECT), *((each, 0.0) for each in HEATS)):
                shares = stopped(walks(walk, heat, effect, rounds, runs))
                cells = " | ".join(f"{share:.2f}" for share in shares)
                print(f"| {walk:.0%} | {rounds} | {effect:.0%} | {heat:.0%} | {cells} |", flush=True)
    print("\n| prompts, one per round | rounds | p <= .01 | p <= .05 |\n|---|---|---|---|")
    unlike = [math.log(2.0), *[math.log(0.95)] * 4]
    for name, effects in (("equal effects", [0.0]), ("effects 2.0x and 4 x 0.95x", unlike)):
        for rounds in (10, 15, 40):
            strict, lenient = prompts(rounds, effects, 2 * runs)
            print(f"| {name} | {rounds} | {strict:.3f} | {lenient:.3f} |", flush=True)

    print("\n| drift profile | true effect | clear of 1 | stands |\n|---|---|---|---|")
    for profile in PROFILES:
        for effect in (EFFECT, 2 * EFFECT):
            clear, _, _, stands = stopped(profile_runs(profile, effect, 8, runs))
            print(f"| {profile} | {effect:.0%} | {clear:.2f} | {stands:.2f} |", flush=True)

    print("\n| heat (decay) of the treatment | of the control | rounds | clear of 1 | stands |\n|---|---|---|---|---|")
    for heats, decays in UNLIKE:
        for rounds in (8, 20):
            clear, _, _, stands = stopped(unlike_heats(heats, decays, rounds, runs))
            shown = " | ".join(f"{heat:.0%} ({decay:g})" for heat, decay in zip(heats, decays, strict=True))
            print(f"| {shown} | {rounds} | {clear:.2f} | {stands:.2f} |", flush=True)


if __name__ == "__main__":
    main()
