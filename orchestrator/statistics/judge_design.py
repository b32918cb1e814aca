"""Judging a planned design before it costs a night: its error rate, its power and the width of its intervals.

The same simulated runs as the tests of the method, with the plan's own number of arms, rounds and level.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from orchestrator.effects import Integers, effect_of, make_series
from orchestrator.estimation.inversion import Floats
from orchestrator.statistics.drift import Setting, standard
from orchestrator.statistics.simulate import judge, simulated_runs

WIDTH_RUNS = 60  # an interval costs more than a p-value, and its median settles sooner


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignJudgement:
    """A design under one drift profile."""

    setting: Setting
    false_positives: float  # share of runs without a difference in which one is found
    power: float  # share of runs with the true effect in which it is found
    coverage: float  # share of runs whose interval holds the true effect
    half_width: float | None  # median, relative; None: too few rounds for any bound


def judge_design(
    profiles: Iterable[str],
    *,
    entries: int,
    rounds: int,
    alpha: float,
    effect: float,
    noise: float,
    size: float | None,
    runs: int,
    seed: int,
) -> tuple[DesignJudgement, ...]:
    """The design under each profile.

    Args:
        entries: arms of a round, the control's second entry included.
        effect: the true relative effect of the treatment, as 0.05.
        noise: scale of the trials' own noise, relative.
        size: of the drift over the run, as -0.34; None: the size at which the method is judged.
    """
    found = []
    for profile in profiles:
        default = standard(profile, entries * rounds)
        setting = Setting(profile=profile, size=default.size if size is None else size, noise=noise)
        none = judge(setting, arms=entries, rounds=rounds, effect=1.0, alpha=alpha, runs=runs, seed=seed)
        some = judge(setting, arms=entries, rounds=rounds, effect=1 + effect, alpha=alpha, runs=runs, seed=seed + 1)
        found.append(
            DesignJudgement(
                setting=setting,
                false_positives=none.rejected,
                power=some.rejected,
                coverage=some.covered,
                half_width=_half_width(setting, entries, rounds, alpha, effect, seed),
            )
        )
    return tuple(found)


def _half_width(setting: Setting, entries: int, rounds: int, alpha: float, effect: float, seed: int) -> float | None:
    widths = [
        _log_width(run.y, run.rounds, run.arms, alpha, seed)
        for run in simulated_runs(
            setting, arms=entries, rounds=rounds, effects=(1 + effect,), runs=WIDTH_RUNS, seed=seed + 2
        )
    ]
    middle = float(np.median(widths))
    return math.expm1(middle / 2) if math.isfinite(middle) else None


def _log_width(y: Floats, rounds: Integers, arms: Integers, alpha: float, seed: int) -> float:
    effect = effect_of(make_series(y, rounds=rounds, arms=arms), alpha=alpha, seed=seed)
    return math.inf if effect.ci_low <= 0 else math.log(effect.ci_high / effect.ci_low)
