"""Judging a planned design before it costs a night: its error rate, its power and the width of its intervals.

The same simulated runs as the tests of the method, with the plan's own number of arms, rounds and level. One treatment
has the effect and the others have none. An effect only shifts a treatment's contrasts (`planned.py`), so each run
without any effect shows the errors of the design and its power.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from orchestrator.effects import effect_of, exchanges, make_series
from orchestrator.statistics.drift import Setting, standard
from orchestrator.statistics.planned import NO_CARRY_OVER, Layout, Tried, some, tried_of
from orchestrator.statistics.simulate import SimulatedRun, simulated_runs

WIDTH_RUNS = 60  # an interval costs more than a p-value, and its median settles sooner
VERDICT_RUNS = 200  # of a profile, at most, whose whole verdict is simulated: carry-over takes most of the time
MOST_SERIES = 3_000  # of a profile: designs of many arms are simulated less often


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignJudgement:
    """A design under one drift profile."""

    setting: Setting
    runs: int  # simulated
    false_positives: float  # share of runs without a difference in which one is found, for any treatment
    power: float  # share of runs with the true effect of one treatment in which it is found
    supported: float  # share of runs with the true effect whose verdict is "supported", of the first 200
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
    aa: bool = True,
    margin: float = 0.02,
) -> tuple[DesignJudgement, ...]:
    """The design under each profile.

    Args:
        entries: arms of a round, the control's second entry included.
        effect: the true relative effect of one treatment, as 0.05; the others have none.
        noise: scale of the trials' own noise, relative.
        size: of the drift over the run, as -0.34; None: the size at which the method is judged.
        runs: simulated per profile, at most; fewer if there are many treatments.
        aa: whether one of the entries is the control's second one.
    """
    found = []
    for profile in profiles:
        default = standard(profile, entries * rounds)
        setting = Setting(profile=profile, size=default.size if size is None else size, noise=noise)
        layout = Layout(setting=setting, arms=entries, aa=aa, alpha=alpha)
        found.append(_judge(layout, rounds, math.log1p(effect), -math.log1p(-margin), runs, seed))
    return tuple(found)


def _judge(layout: Layout, rounds: int, effect: float, margin: float, most: int, seed: int) -> DesignJudgement:
    runs = min(most, max(MOST_SERIES // (layout.shown + layout.has_floor), VERDICT_RUNS))
    signs, alpha, none = some(exchanges(rounds, seed)), layout.alpha, np.zeros(1)
    wrong, found, covered, supported = [], [], [], []
    simulated = list(simulated_runs(layout.setting, arms=layout.arms, rounds=rounds, effects=(), runs=runs, seed=seed))
    for number, run in enumerate(simulated):
        whole = number < VERDICT_RUNS
        treatments: Sequence[Tried] = list(tried_of(layout, run, signs, layout.shown, heat=whole))
        first = treatments[0]
        wrong.append(any(one.is_found(0.0, alpha=alpha) for one in treatments))
        found.append(first.is_found(effect, alpha=alpha))
        covered.append(bool(first.own.p(none)[0] > alpha))
        if whole:
            supported.append(first.is_supported(effect, alpha=alpha, margin=margin))
    return DesignJudgement(
        setting=layout.setting,
        runs=runs,
        false_positives=float(np.mean(wrong)),
        power=float(np.mean(found)),
        supported=NO_CARRY_OVER * float(np.mean(supported)),
        coverage=float(np.mean(covered)),
        half_width=_half_width(simulated, alpha, seed),
    )


def _half_width(runs: Sequence[SimulatedRun], alpha: float, seed: int) -> float | None:
    middle = float(np.median([_log_width(run, alpha, seed) for run in islice(runs, WIDTH_RUNS)]))
    return math.expm1(middle / 2) if math.isfinite(middle) else None


def _log_width(run: SimulatedRun, alpha: float, seed: int) -> float:
    effect = effect_of(make_series(run.y, rounds=run.rounds, arms=run.arms), alpha=alpha, seed=seed)
    return math.inf if effect.ci_low <= 0 else math.log(effect.ci_high / effect.ci_low)
