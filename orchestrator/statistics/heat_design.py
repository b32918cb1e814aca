"""Planning a cooldown: the effect of remaining heat on a design, by simulation. Pure.

An arm without an effect of its own leaves heat behind; many of its trials in a row would slow a trial by `heat`. Of
that heat a share `decay` is left one trial's length later. A cooldown of c trials' lengths leaves decay**c of it before
the next trial begins. The verdict is the audit's: carry-over that is found, the A/A floor, the family of all
treatments, and the effect with both arms' possible carry-over removed.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.effects import Effect, effect_of, exchanges_of
from orchestrator.estimation.inversion import Floats
from orchestrator.schedule import AA_LABEL, draw_rounds, draw_williams, square_rounds
from orchestrator.statistics.carry_over import carry_over
from orchestrator.statistics.drift import Setting, drift_rows, noise_rows
from orchestrator.statistics.observations import ScopeTrials
from orchestrator.statistics.planned import MOST_TREATMENTS, some, tried_in

COOLDOWNS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # in trials' lengths
BIAS_OF_MARGIN = 0.25  # share of the margin that heat may move an estimate by


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatJudgement:
    """A design with a cooldown, of runs in which no arm has an effect of its own."""

    cooldown: float  # between trials, in trials' lengths
    treatment: str  # whose heat differs the most from the control's
    bias: float  # median ratio of the treatment to the control, less 1
    wrong: float  # share of the runs whose interval leaves 1 out
    flagged: float  # share in which the audit finds the carry-over
    supported: float  # share in which the audit would call any treatment's difference supported
    power: float  # share in which it would support a true effect of the treatment

    def is_enough(self, *, alpha: float, margin: float, runs: int) -> bool:
        """Return whether errors are as rare as the level, within the accuracy of the runs, and the bias is small."""
        noise = math.sqrt(alpha * (1.0 - alpha) / runs)
        return self.wrong <= alpha + 2.0 * noise and abs(self.bias) <= BIAS_OF_MARGIN * margin


def judge_heat(
    setting: Setting,
    *,
    heat: Mapping[str, float],
    control: str,
    aa: bool,
    decay: float,
    order: str,
    rounds: int,
    alpha: float,
    margin: float,
    runs: int,
    seed: int,
    effect: float = 0.0,
    cooldowns: Sequence[float] = COOLDOWNS,
) -> tuple[HeatJudgement, ...]:
    """The design with longer and longer cooldowns, up to the first that is enough.

    Args:
        heat: for each arm, the control included, the share by which many of its trials in a row slow a trial.
        decay: the share of the heat that is left one trial's length later.
        order: random | williams.
        effect: the treatment's true relative effect, for the power; 0: the power is of no use.
        cooldowns: in trials' lengths, growing.
    """
    treatment = max((arm for arm in heat if arm != control), key=lambda arm: abs(heat[arm] - heat[control]))
    others = tuple(arm for arm in heat if arm not in (control, treatment))
    judged = _Judged(
        treatments=(treatment, *others),
        control=control,
        alpha=alpha,
        margin=-math.log1p(-margin),
        effect=math.log1p(effect),
        seed=seed,
    )
    found: list[HeatJudgement] = []
    for cooldown in cooldowns:
        used = _runs(setting, heat, control, aa, decay, cooldown, order, rounds, runs, seed)
        found.append(_judge(used, judged, cooldown, treatment))
        if found[-1].is_enough(alpha=alpha, margin=margin, runs=runs):
            break
    return tuple(found)


def _runs(
    setting: Setting,
    heat: Mapping[str, float],
    control: str,
    aa: bool,
    decay: float,
    cooldown: float,
    order: str,
    rounds: int,
    runs: int,
    seed: int,
) -> Iterator[ScopeTrials]:
    entries = [*heat, AA_LABEL] if aa else list(heat)
    trials, draw = len(entries) * rounds, draw_williams if order == "williams" else draw_rounds
    rng = np.random.Generator(np.random.PCG64(seed))
    noise = drift_rows(setting, trials, range(seed, seed + runs)) + noise_rows(setting, trials, runs, rng)
    each = {name: -math.log1p(-heat[control if name == AA_LABEL else name]) for name in entries}
    for run in range(runs):
        labels = [label for one in draw(entries, rounds, seed + run) for label in one]
        left = heat_of([each[label] for label in labels], decay, cooldown)
        yield ScopeTrials(
            y=noise[run] - left,
            rounds=np.repeat(np.arange(rounds), len(entries)),
            labels=np.array(labels, dtype=object),
            prompts=None,
            together=square_rounds(len(entries)) if order == "williams" else 1,
        )


def heat_of(heats: Sequence[float], decay: float, cooldown: float) -> Floats:
    """Return the slowdown of each trial, on the log scale, by the heat of the trials before it."""
    left, found = 0.0, np.zeros(len(heats))
    for place, heat in enumerate(heats):
        left *= decay**cooldown
        found[place] = left
        left = decay * left + (1.0 - decay) * heat
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """How each run is judged. The effect and the margin are on the log scale."""

    treatments: tuple[str, ...]  # the one with most heat first
    control: str
    alpha: float
    margin: float
    effect: float
    seed: int


def _judge(runs: Iterator[ScopeTrials], judged: _Judged, cooldown: float, treatment: str) -> HeatJudgement:
    found = [_verdicts(used, judged) for used in runs]
    effects, flagged, wrongly, rightly = zip(*found, strict=True)
    return HeatJudgement(
        cooldown=cooldown,
        treatment=treatment,
        bias=float(np.median([effect.ratio for effect in effects])) - 1.0,
        wrong=float(np.mean([_outside(effect) for effect in effects])),
        flagged=float(np.mean(flagged)),
        supported=float(np.mean(wrongly)),
        power=float(np.mean(rightly)),
    )


def _verdicts(used: ScopeTrials, judged: _Judged) -> tuple[Effect, bool, bool, bool]:
    """The estimate; whether carry-over is found; whether "supported" is said of any treatment, and of a true effect."""
    alpha, control, seed = judged.alpha, judged.control, judged.seed
    series = used.pair(judged.treatments[0], control)
    assert series is not None  # each round holds both
    effect = effect_of(series, alpha=alpha, seed=seed)
    mark = carry_over(used, control=control, seed=seed)
    if mark is not None and mark.matters:
        return effect, True, False, False
    signs, family = some(exchanges_of(series, seed)), len(judged.treatments)
    tried = list(tried_in(used, judged.treatments[:MOST_TREATMENTS], control, signs, alpha, family=family))
    wrongly = any(one.is_supported(0.0, alpha=alpha, margin=judged.margin) for one in tried)
    rightly = tried[0].is_supported(judged.effect, alpha=alpha, margin=judged.margin)
    return effect, False, wrongly, rightly


def _outside(effect: Effect) -> bool:
    return not effect.ci_low <= 1 <= effect.ci_high
