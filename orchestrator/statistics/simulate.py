"""Judging a design: how often the method of `orchestrator.effects` errs, and how often it finds a true effect."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.effects import Effect, Integers, effect_of, exchanges, make_series, p_values
from orchestrator.schedule import draw_rounds
from orchestrator.statistics.drift import Floats, Setting, drift_rows, noise_rows
from orchestrator.statistics.verdicts import Case, decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Shares of the simulated runs."""

    runs: int
    rejected: float  # in which "no difference" was rejected: errors when there is none, power when there is one
    covered: float  # in which the interval held the true effect


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictShares:
    """Shares of the simulated runs that got each verdict, and how wide the interval was."""

    runs: int
    supported: float
    no_difference: float
    could_be_drift: float
    underpowered: float
    median_width: float  # of the interval of the ratio, high less low; inf when the rounds are too few for one


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """The trials of one run in time order."""

    y: Floats  # log speed
    rounds: Integers
    arms: Integers  # 0 control, 1 treatment, more for others


def simulated_runs(
    setting: Setting, *, arms: int, rounds: int, effects: Sequence[float], runs: int, seed: int
) -> Iterator[SimulatedRun]:
    """Runs whose arms 1, 2, ... are `effects` times as fast as arm 0; arms without an effect are equally fast."""
    trials = arms * rounds
    rng = np.random.Generator(np.random.PCG64(seed))
    logs = np.zeros(arms)
    logs[1 : 1 + len(effects)] = np.log(effects)
    drift = drift_rows(setting, trials, range(seed, seed + runs))
    noise = noise_rows(setting, trials, runs, rng)
    round_of = np.repeat(np.arange(rounds), arms)
    names = [str(arm) for arm in range(arms)]
    for run in range(runs):
        order = np.array(draw_rounds(names, rounds, seed + run)).astype(np.intp).ravel()
        yield SimulatedRun(y=drift[run] + noise[run] + logs[order], rounds=round_of, arms=order)


def judge(
    setting: Setting,
    *,
    arms: int = 2,
    rounds: int = 8,
    effect: float = 1.0,
    others: Sequence[float] = (),
    alpha: float = 0.05,
    runs: int = 1000,
    seed: int = 0,
) -> Judgement:
    """Judge the method on runs whose treatment is `effect` times as fast as the control.

    Args:
        others: the effects of further arms.
    """
    candidates = np.array([0.0, math.log(effect)])
    signs = exchanges(rounds, seed)
    p = np.array(
        [
            p_values(make_series(run.y, rounds=run.rounds, arms=run.arms), candidates, signs)
            for run in simulated_runs(
                setting, arms=arms, rounds=rounds, effects=(effect, *others), runs=runs, seed=seed
            )
        ]
    )
    rejected, missed = (p <= alpha).mean(axis=0)
    return Judgement(runs=runs, rejected=float(rejected), covered=1.0 - float(missed))


def judge_verdicts(
    setting: Setting,
    *,
    arms: int = 3,
    rounds: int = 8,
    effect: float = 1.0,
    alpha: float = 0.05,
    margin: float = 0.02,
    runs: int = 200,
    seed: int = 0,
) -> VerdictShares:
    """Simulate the audit's verdicts on one treatment, with the control entered twice among the `arms`.

    The family of several treatments and the evidence are left aside: these shares are about drift and noise alone.
    """
    verdicts, widths = Counter[str](), []
    for run in simulated_runs(setting, arms=arms, rounds=rounds, effects=(effect,), runs=runs, seed=seed):
        found = effect_of(make_series(run.y, rounds=run.rounds, arms=run.arms), alpha=alpha, seed=seed)
        # Arm 2 plays the control's second entry, so it takes the treatment's place, and the treatment another arm's.
        swapped = np.where(run.arms == 1, 2, np.where(run.arms == 2, 1, run.arms))
        floor = effect_of(make_series(run.y, rounds=run.rounds, arms=swapped), alpha=alpha, seed=seed)
        verdicts[decide(_case(found, floor, alpha, margin))[0]] += 1
        widths.append(found.ci_high - found.ci_low)
    return VerdictShares(
        runs=runs,
        supported=verdicts["supported"] / runs,
        no_difference=verdicts["no_difference"] / runs,
        could_be_drift=verdicts["could_be_drift"] / runs,
        underpowered=verdicts["underpowered"] / runs,
        median_width=float(np.median(widths)),
    )


def _case(effect: Effect, floor: Effect, alpha: float, margin: float) -> Case:
    return Case(
        effect=effect,
        floor=floor,
        idle=(),
        confounders=(),
        family_p=None,
        family_size=1,
        carry_over=None,
        alpha=alpha,
        margin=margin,
    )
