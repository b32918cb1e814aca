"""Many arms at once: rarely a false finding anywhere, real ones kept, the best arm kept."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.effects import MOST_EXCHANGED, Exchanged, Series, exchanges, make_series
from orchestrator.statistics.drift import standard
from orchestrator.statistics.family import adjusted, family_p_values, standing, step_down
from orchestrator.statistics.observations import ScopeTrials
from orchestrator.statistics.simulate import simulated_runs

ARMS = 5
ROUNDS = 8
NAMES = ["control", *(f"t{arm}" for arm in range(1, ARMS))]


def runs_of(effects: Sequence[float], runs: int, profile: str = "linear") -> list[ScopeTrials]:
    setting = standard(profile, ARMS * ROUNDS)
    return [
        ScopeTrials(y=run.y, rounds=run.rounds, labels=np.array(NAMES, dtype=object)[run.arms], prompts=None)
        for run in simulated_runs(setting, arms=ARMS, rounds=ROUNDS, effects=effects, runs=runs, seed=11)
    ]


def p_of(trials: ScopeTrials) -> dict[str, float]:
    return family_p_values(trials, treatments=NAMES[1:], control="control", alpha=0.05, seed=0)


def best_of(trials: ScopeTrials, ratios: dict[str, float], *, lower_is_better: bool) -> tuple[str, ...]:
    own = standing(trials, ratios=ratios, lower_is_better=lower_is_better)
    worse = {arm for arm, p in step_down(own.series, alpha=0.05, seed=0).items() if p <= 0.05}
    return tuple(arm for arm in (own.best, *own.others) if arm not in worse)


@pytest.mark.nightly
@pytest.mark.parametrize(("effects", "equal"), [((), NAMES[1:]), ((1.3,), NAMES[2:]), ((1.05, 1.1, 0.9), NAMES[4:])])
def test_any_false_finding_is_rare(effects: tuple[float, ...], equal: list[str]) -> None:
    found = [p_of(trials) for trials in runs_of(effects, 400)]
    assert np.mean([min(p[name] for name in equal) <= 0.05 for p in found]) <= 0.075


def test_a_large_effect_is_found_and_hides_no_small_one() -> None:
    found = [p_of(trials) for trials in runs_of((1.5, 1.06), 60)]
    assert all(p["t1"] <= 0.05 for p in found)
    assert np.mean([p["t2"] <= 0.05 for p in found]) > 0.85


def test_p_values_of_a_family_are_no_smaller_down_the_steps() -> None:
    for trials in runs_of((1.5, 1.06, 1.02), 20):
        p = p_of(trials)
        assert p["t1"] <= p["t2"] <= max(p["t3"], p["t4"])


def test_an_arm_that_misses_rounds_is_judged_on_the_others() -> None:
    (trials,) = runs_of((1.3,), 1)
    keep = ~((trials.labels == "t1") & (trials.rounds < 2))
    fewer = ScopeTrials(y=trials.y[keep], rounds=trials.rounds[keep], labels=trials.labels[keep], prompts=None)
    assert p_of(fewer)["t1"] <= 0.05
    gone = trials.labels != "t4"
    absent = ScopeTrials(y=trials.y[gone], rounds=trials.rounds[gone], labels=trials.labels[gone], prompts=None)
    assert set(p_of(absent)) == {"t1", "t2", "t3"}


def test_the_best_arm_is_kept_and_the_clearly_worse_left_out() -> None:
    ratios = {"control": 1.0, "t1": 1.3, "t2": 1.29, "t3": 1.1, "t4": 0.9}
    sets = [best_of(trials, ratios, lower_is_better=False) for trials in runs_of((1.3, 1.3, 1.1, 0.9), 40)]
    assert all(found[0] == "t1" for found in sets)
    assert np.mean(["t2" in found for found in sets]) > 0.9
    assert all(not {"control", "t4"} & set(found) for found in sets)


def test_the_best_of_times_is_the_shortest() -> None:
    (trials,) = runs_of((1.3, 1.3, 1.1, 0.9), 1)
    ratios = {"control": 1.0, "t1": 1.3, "t2": 1.3, "t3": 1.1, "t4": 0.9}
    assert best_of(trials, ratios, lower_is_better=True) == ("t4",)


def test_holm() -> None:
    assert adjusted({"a": 0.04, "b": 0.01, "c": 0.03}) == pytest.approx({"b": 0.03, "c": 0.06, "a": 0.06})
    assert adjusted({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}


def test_a_smaller_statistic_never_has_a_smaller_p() -> None:
    """Down the steps as within one: what is decided first has the smallest p-value."""
    for trials in runs_of((1.5, 1.035, 1.03, 1.02), 40):
        p = p_of(trials)
        sizes = {}
        for name in p:
            series = trials.pair(name, "control")
            assert series is not None
            sizes[name] = Exchanged.of(series, exchanges(ROUNDS, 0)[:1], studentised=True).sizes(0.0)[0]
        ranked = [p[name] for name in sorted(sizes, key=lambda name: -sizes[name])]
        assert ranked == sorted(ranked)


def series_of(contrasts: Sequence[float], *, together: int = 1) -> Series:
    """Rounds of two trials whose differences are these."""
    rounds = len(contrasts)
    made = make_series(
        np.stack([np.zeros(rounds), np.array(contrasts)], axis=1).ravel(),
        rounds=np.repeat(np.arange(rounds), 2),
        arms=np.tile([0, 1], rounds),
        prompts=None,
    )
    return replace(made, contrasts=np.array(contrasts, dtype=float), together=together)


CLEAR = [0.5, 0.52, 0.48, 0.51, 0.49, 0.5]


def test_the_observed_order_is_one_of_those_that_are_counted() -> None:
    """If six rounds all agree, one exchange of 32 is as far out: the observed one."""
    assert step_down({"a": series_of(CLEAR)}, alpha=0.05, seed=0) == {"a": 1 / 32}


def test_an_arm_with_as_many_rounds_as_the_level_needs_is_judged_and_one_with_fewer_is_not() -> None:
    found = step_down({"whole": series_of(CLEAR), "short": series_of(CLEAR[:5])}, alpha=0.05, seed=0)
    assert set(found) == {"whole"}
    assert step_down({"short": series_of(CLEAR[:5])}, alpha=0.05, seed=0) == {}


def test_the_rounds_of_a_square_turn_together() -> None:
    """Twelve rounds in squares of two are six that can be exchanged."""
    assert step_down({"a": series_of(CLEAR * 2, together=2)}, alpha=0.05, seed=0) == {"a": 1 / 32}
    assert step_down({"a": series_of(CLEAR * 2)}, alpha=0.05, seed=0)["a"] < 1 / 32


def test_what_is_decided_leaves_the_others_to_themselves() -> None:
    """A clear effect is no rival of the next one: that has the p-value that it would have without the clear one."""
    less = [0.3, -0.2, 0.25, 0.2, -0.1, 0.1]
    both = step_down({"clear": series_of(CLEAR), "less": series_of(less)}, alpha=0.05, seed=0)
    alone = step_down({"less": series_of(less)}, alpha=0.05, seed=0)["less"]
    assert both["clear"] <= 0.05 < alone
    assert both["less"] == alone


def test_of_more_rounds_than_are_exchanged_singly_a_clear_effect_is_found() -> None:
    contrasts = np.tile(CLEAR, 50).tolist()
    assert len(contrasts) > MOST_EXCHANGED
    assert step_down({"a": series_of(contrasts)}, alpha=0.05, seed=0)["a"] <= 1 / 1000
