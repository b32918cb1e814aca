"""Check verdicts against a known truth, on simulated runs that an audit has judged wrongly before.

    python benchmarks/truth.py [RUNS] [CHECK ...]

Each check prints one line per figure: the measured value, its bound, and whether it holds. The exit status is 1 when a
bound is missed. About four minutes for 200 runs. `tests/orchestrator/statistics/test_truth.py` runs the same checks at
small size.

    mixed   prompts with unlike effects, by prompt and by workload: the interval holds the mean over prompts
    stalls  trials of one arm at half speed: never "no difference"
    noise   one arm noisier than the other: rare errors, and no power lost to noisy third arms
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from orchestrator.effects import Effect, Integers, effect_of, exchanges, p_values
from orchestrator.schedule import AA_LABEL, draw_rounds
from orchestrator.statistics.comparability import Asked, Scope
from orchestrator.statistics.drift import Floats
from orchestrator.statistics.family import step_down
from orchestrator.statistics.observations import ScopeTrials, Usable
from orchestrator.statistics.resolution import steps_of
from orchestrator.statistics.variation import unlike_tails, variation_of
from orchestrator.statistics.verdicts import Case, decide, lies_inside

ALPHA, MARGIN, NOISE = 0.05, 0.02, 0.01
TESTS = 4  # times as many runs where only the test is asked for, not the verdict
CONTROL, TREATMENT = "control", "treatment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured share or size with the bound that it must keep."""

    check: str
    case: str
    measured: str
    value: float
    least: float = -math.inf
    most: float = math.inf

    @property
    def holds(self) -> bool:
        return self.least <= self.value <= self.most

    def __str__(self) -> str:
        bound = f">= {self.least:g}" if math.isfinite(self.least) else f"<= {self.most:g}"
        bound = bound if math.isfinite(self.least) or math.isfinite(self.most) else "shown"
        state = "holds" if self.holds else "MISSED"
        return f"| {self.check} | {self.case} | {self.measured} | {self.value:.3f} | {bound} | {state} |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A run to simulate: the arms, their effects, and what disturbs them. Logs throughout."""

    rounds: int = 40
    prompts: int = 5
    by_prompt: bool = False  # one prompt per round; else all of them
    effects: Sequence[float] = (0.0,)  # of the treatment: one for all prompts, or one each
    noise: Mapping[str, float] = field(default_factory=dict)  # scale of an arm's noise where it is not NOISE
    others: Sequence[str] = ()  # further arms, equal to the control
    stalled: float = 0.0  # share of the treatment's rounds at half speed
    drift: float = -0.2


def simulate(design: Design, seed: int) -> ScopeTrials:
    """The trials of one run, as the audit reads them."""
    rng = np.random.default_rng(seed)
    labels = [CONTROL, AA_LABEL, TREATMENT, *design.others]
    order = np.array(draw_rounds(labels, design.rounds, seed), dtype=object)
    trials = order.size
    level = np.log1p(design.drift * np.arange(trials) / trials) + rng.standard_t(4, trials) * np.array(
        [design.noise.get(label, NOISE) for label in order.ravel()]
    )
    slow = np.zeros(design.rounds)
    slow[rng.permutation(design.rounds)[: round(design.stalled * design.rounds)]] = math.log(0.5)
    asked = _prompts(design, rng)  # (rounds, prompts per round)
    effects = np.resize(np.asarray(design.effects, dtype=np.float64), design.prompts)
    round_of, label_of = np.repeat(np.arange(design.rounds), len(labels)), order.ravel()
    prompt = asked[round_of]
    treated = np.where(label_of == TREATMENT, 1.0, 0.0)[:, None] * (effects[prompt] + slow[round_of][:, None])
    y = level[:, None] + 0.3 * prompt + treated
    return _usable(y, round_of, label_of, prompt).trials(Scope())


def _prompts(design: Design, rng: np.random.Generator) -> Integers:
    if not design.by_prompt:
        return np.tile(np.arange(design.prompts), (design.rounds, 1))
    passes = [rng.permutation(design.prompts) for _ in range(-(-design.rounds // design.prompts))]
    return np.concatenate(passes)[: design.rounds, None]


def _usable(y: Floats, rounds: Integers, labels: object, prompt: object) -> Usable:
    width = y.shape[1]
    none = np.full(y.size, None, dtype=object)
    names = np.array([f"prompt {number + 1}" for number in np.asarray(prompt).ravel()], dtype=object)
    return Usable(
        y=y.ravel(),
        rounds=np.repeat(rounds, width),
        labels=np.repeat(np.asarray(labels, dtype=object), width),
        prompt_id=names,
        asked=Asked(workload=none, prompt_class=none, turn=np.zeros(y.size, dtype=object)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One run's verdict on the treatment, evidence and carry-over left aside."""

    verdict: str
    codes: tuple[str, ...]
    effect: Effect
    family_p: float | None

    def covers(self, effect: float) -> bool:
        return self.effect.ci_low <= math.exp(effect) <= self.effect.ci_high


def judged(used: ScopeTrials, others: Sequence[str] = ()) -> Judged:
    """The audit's decision."""
    series = used.pair(TREATMENT, CONTROL)
    floor = used.pair(AA_LABEL, CONTROL)
    assert series is not None
    assert floor is not None
    effect = effect_of(series, alpha=ALPHA, seed=0)
    varied = variation_of(series, alpha=ALPHA, margin=MARGIN, seed=0)
    unlike = list(varied.notes)
    if lies_inside(effect, MARGIN):
        tails = unlike_tails(
            series, alpha=ALPHA, margin=MARGIN, seed=0, lower_is_faster=False, arms=(TREATMENT, CONTROL)
        )
        unlike += [] if tails is None else [tails]
    steps = steps_of(used, treatment=TREATMENT, control=CONTROL, margin=MARGIN)
    equality = None if steps is None else steps.against_equality()
    step = None if steps is None else steps.against_effect(series.mean)
    unlike += [] if equality is None else [equality]
    family_p = None
    if others:
        pairs = {name: pair for name in (TREATMENT, *others) if (pair := used.pair(name, CONTROL)) is not None}
        family_p = step_down(pairs, alpha=ALPHA, seed=0)[TREATMENT]
    verdict, reasons = decide(
        Case(
            effect=effect,
            floor=effect_of(floor, alpha=ALPHA, seed=0),
            idle=(),
            confounders=(),
            family_p=family_p,
            family_size=1 + len(others),
            carry_over=None,
            alpha=ALPHA,
            margin=MARGIN,
            doubts=() if step is None else (step,),
            unlike=tuple(unlike),
        )
    )
    codes = tuple(reason.code for reason in (*varied.varies, *reasons))
    return Judged(verdict=verdict, codes=codes, effect=effect, family_p=family_p)


def mixed(runs: int) -> Iterator[Figure]:
    """One of five prompts at 2.0, four at 0.95: a geometric mean of 1.103."""
    effects = [math.log(2.0), *[math.log(0.95)] * 4]
    truth = float(np.mean(effects))
    for by_prompt in (True, False):
        case = "2.0 and 4 x 0.95, by " + ("prompt" if by_prompt else "workload")
        found = [judged(simulate(Design(effects=effects, by_prompt=by_prompt), seed)) for seed in range(runs)]
        figure = partial(Figure, check="mixed", case=case)
        ratio = float(np.median([one.effect.ratio for one in found]))
        yield figure(measured="error of the median ratio", value=abs(ratio / math.exp(truth) - 1), most=0.01)
        yield figure(measured="coverage", value=float(np.mean([one.covers(truth) for one in found])), least=0.93)
        said = float(np.mean([one.codes[0] == "depends_on_prompt" for one in found]))
        yield figure(measured="said to depend on the prompt", value=said, least=0.95)
        wrong = np.mean([one.verdict == "supported" and one.effect.ratio < 1 for one in found])
        yield figure(measured="supported in the wrong direction", value=float(wrong), most=0.0)
    for by_prompt in (True, False):
        found = [judged(simulate(Design(by_prompt=by_prompt), seed)) for seed in range(runs)]
        case = "equal prompts, by " + ("prompt" if by_prompt else "workload")
        figure = partial(Figure, check="mixed", case=case)
        yield figure(measured="coverage", value=float(np.mean([one.covers(0.0) for one in found])), least=0.92)
        same = float(np.mean([one.verdict == "no_difference" for one in found]))
        yield figure(measured="no difference", value=same, least=0.85)


def stalls(runs: int) -> Iterator[Figure]:
    """A share of the treatment's rounds at half speed."""
    for share in (0.1, 0.2, 0.3):
        found = [judged(simulate(Design(stalled=share), seed)) for seed in range(runs)]
        figure = partial(Figure, check="stalls", case=f"{share:.0%} of 40 rounds at half speed")
        same = float(np.mean([one.verdict == "no_difference" for one in found]))
        yield figure(measured="no difference", value=same, most=0.0)
        truth = share * math.log(0.5)
        yield figure(measured="coverage", value=float(np.mean([one.covers(truth) for one in found])), least=0.93)


def noise(runs: int) -> Iterator[Figure]:
    """One arm noisier: errors of the pair's test; then what three noisy arms take from a quiet one."""
    zero = np.zeros(1)
    for rounds in (8, 20, 40):
        for factor in (1, 5, 10):
            for noisy in (CONTROL, TREATMENT):
                design = Design(rounds=rounds, prompts=1, noise={noisy: factor * NOISE})
                pairs = (simulate(design, seed).pair(TREATMENT, CONTROL) for seed in range(TESTS * runs))
                found = [p_values(pair, zero, exchanges(rounds, 0))[0] <= ALPHA for pair in pairs if pair is not None]
                case = f"{rounds} rounds, noise of the {noisy} x {factor}"
                yield Figure(check="noise", case=case, measured="errors", value=float(np.mean(found)), most=0.07)
    for rounds in (8, 20):
        power = {}
        for factor in (1, 3, 5):
            others = ("other 1", "other 2", "other 3")
            design = Design(
                rounds=rounds,
                prompts=1,
                effects=[math.log(1.05)],
                others=others,
                noise=dict.fromkeys(others, factor * NOISE),
            )
            found = [judged(simulate(design, seed), others).verdict == "supported" for seed in range(runs)]
            power[factor] = float(np.mean(found))
            case = f"{rounds} rounds, a quiet 5 %, three null arms x {factor}"
            figure = partial(Figure, check="noise", case=case)
            yield figure(measured="supported", value=power[factor])
            yield figure(measured="lost against x 1", value=power[1] - power[factor], most=0.1)


CHECKS: dict[str, Callable[[int], Iterator[Figure]]] = {"mixed": mixed, "stalls": stalls, "noise": noise}


def main(arguments: Sequence[str]) -> int:
    """Print the figures of the named checks, of all when none is named."""
    runs = int(arguments[0]) if arguments else 200
    if unknown := [name for name in arguments[1:] if name not in CHECKS]:
        sys.exit(f"{unknown[0]}: no such check; choose of {', '.join(CHECKS)}")
    print("| check | case | measured | value | bound | |\n|---|---|---|---|---|---|")
    missed = False
    for name in arguments[1:] or CHECKS:
        for figure in CHECKS[name](runs):
            print(figure, flush=True)
            missed |= not figure.holds
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
