"""The planned power is that of the verdict: the simulation's shortcuts agree with `decide` on the same runs."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.effects import effect_of, exchanges
from orchestrator.schedule import AA_LABEL
from orchestrator.statistics.drift import ASSUMED
from orchestrator.statistics.family import step_down
from orchestrator.statistics.heat import may_be_heat
from orchestrator.statistics.lags import LagModel, Placed, Ran
from orchestrator.statistics.observations import ScopeTrials
from orchestrator.statistics.planned import NO_CARRY_OVER, Layout, tried_of
from orchestrator.statistics.power import rounds_for, smallest_effect
from orchestrator.statistics.simulate import SimulatedRun, simulated_runs
from orchestrator.statistics.verdicts import Case, decide

ALPHA, MARGIN = 0.05, 0.02


def decided(run: SimulatedRun, treatments: int, margin: float) -> bool:
    """Return whether the first treatment's verdict is "supported", by the functions that the audit calls."""
    names = ["c", *(f"t{number}" for number in range(1, treatments + 1)), AA_LABEL]
    used = ScopeTrials(y=run.y, rounds=run.rounds, labels=np.array(names, dtype=object)[run.arms], prompts=None)
    pairs = {name: used.pair(name, "c") for name in names[1:]}
    series = {name: one for name, one in pairs.items() if one is not None}
    effect, floor = (effect_of(series[name], alpha=ALPHA, seed=0) for name in ("t1", AA_LABEL))
    family = step_down({name: series[name] for name in names[1:-1]}, alpha=ALPHA, seed=0)
    model = LagModel.fit_by_noise(Placed.find(used, Ran.of(used), control="c"))
    heat = may_be_heat(model, effect, treatment="t1", control="c", alpha=ALPHA)
    verdict, _ = decide(
        Case(
            effect=effect,
            floor=floor,
            idle=(),
            confounders=(),
            family_p=family["t1"] if treatments > 1 else None,
            family_size=treatments,
            carry_over=None,
            alpha=ALPHA,
            margin=margin,
            doubts=() if heat is None else (heat,),
        )
    )
    return verdict == "supported"


def share_decided(*, treatments: int, rounds: int, effect: float, runs: int) -> float:
    def each() -> Iterator[bool]:
        for run in simulated_runs(
            ASSUMED, arms=treatments + 2, rounds=rounds, effects=(1 + effect,), runs=runs, seed=9_000
        ):
            yield decided(run, treatments, MARGIN)

    return float(np.mean(list(each())))


@pytest.mark.parametrize(
    ("treatments", "rounds", "effect", "margin"),
    [(1, 8, 0.03, 0.02), (1, 8, 0.03, 0.04), (4, 8, 0.03, 0.02), (1, 8, -0.03, 0.02), (1, 16, 0.012, 0.02)],
)
def test_each_run_is_planned_as_it_is_decided(treatments: int, rounds: int, effect: float, margin: float) -> None:
    layout = Layout(setting=ASSUMED, arms=treatments + 2, aa=True, alpha=ALPHA)
    signs, log = exchanges(rounds, 0), float(np.log1p(effect))
    planned, real, by_test_alone = [], [], []
    for run in simulated_runs(ASSUMED, arms=layout.arms, rounds=rounds, effects=(), runs=40, seed=9_000):
        tried = next(tried_of(layout, run, signs, treatments))
        planned.append(tried.is_supported(log, alpha=ALPHA, margin=-float(np.log1p(-margin))))
        real.append(decided(replace(run, y=run.y + log * (run.arms == 1)), treatments, margin))
        by_test_alone.append(bool(tried.own.p(np.array([-log]))[0] <= ALPHA))
    assert sum(one != other for one, other in zip(planned, real, strict=True)) <= 1
    assert 0 < sum(real) < sum(by_test_alone)  # the test alone would plan too little


@pytest.mark.parametrize("treatments", [1, 3])
def test_planned_rounds_get_the_verdict(treatments: int) -> None:
    rounds = rounds_for(ASSUMED, arms=treatments + 2, effect=0.03)
    assert rounds is not None
    assert share_decided(treatments=treatments, rounds=rounds, effect=0.03, runs=60) >= 0.7


@pytest.mark.nightly
@pytest.mark.parametrize("treatments", [1, 3, 6])
@pytest.mark.parametrize("effect", [0.02, 0.03, 0.05])
def test_planned_rounds_get_the_verdict_at_scale(treatments: int, effect: float) -> None:
    rounds = rounds_for(ASSUMED, arms=treatments + 2, effect=effect)
    assert rounds is not None
    assert NO_CARRY_OVER * share_decided(treatments=treatments, rounds=rounds, effect=effect, runs=300) >= 0.76


def test_effects_that_the_margin_hides_are_not_planned() -> None:
    assert rounds_for(ASSUMED, arms=3, effect=0.01, margin=0.02) is None
    found = rounds_for(ASSUMED, arms=3, effect=0.01, margin=0.005)
    assert found is not None
    many = smallest_effect(ASSUMED, arms=3, rounds=200, margin=0.05).effect
    assert many is not None
    assert many > 0.04
