import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.statistics.compare import RunSide, compare_runs, ratio_of_ratios
from orchestrator.statistics.evenings import Evenings
from tests.orchestrator.plans import arm, plan, prompt
from tests.orchestrator.statistics.comparisons import comparison

CONTROL, FAST = arm("a"), arm("b", effect=1.2)


def side(name: str = "run-1", **changes: Any) -> RunSide:
    base = RunSide(
        run_id=name,
        plan=plan(CONTROL, FAST),
        comparisons=[comparison()],
        checkpoints={"a": "digest"},
        facts={"mlx": "0.31", "host": "mac"},
    )
    return replace(base, **changes)


def test_one_arm_in_two_runs_through_the_control() -> None:
    slower = side("run-2", comparisons=[comparison(ratio=1.0, ci_low=0.99, ci_high=1.01)], facts={"mlx": "0.32"})
    found = compare_runs(side(), slower, evenings=Evenings(spread=0.005, freedom=10))
    (relation,) = found.relations
    assert relation.ratio == pytest.approx(1.2)
    assert relation.same_arm
    assert relation.clear
    assert relation.says == "differs"
    assert found.differences == ("host: mac against unknown", "mlx: 0.31 against 0.32")


def test_without_other_evenings_two_runs_show_that_the_evenings_differed_and_no_more() -> None:
    slower = side("run-2", comparisons=[comparison(ratio=1.1, ci_low=1.09, ci_high=1.11)])
    (relation,) = compare_runs(side(), slower).relations
    assert not relation.clear
    assert relation.says == "these evenings differed"
    (relation,) = compare_runs(side(), slower, evenings=Evenings(spread=0.02, freedom=2)).relations
    assert not relation.clear
    assert relation.says == "no clear difference"
    (relation,) = compare_runs(side(), slower, evenings=Evenings(spread=0.02, freedom=20)).relations
    assert relation.clear


def test_evenings_never_make_an_interval_narrower() -> None:
    bare = compare_runs(side(), side("run-2")).relations[0]
    calm = compare_runs(side(), side("run-2"), evenings=Evenings(spread=1e-6, freedom=5)).relations[0]
    assert (calm.ci_low, calm.ci_high) == (bare.ci_low, bare.ci_high)


def test_another_control_is_refused_and_named() -> None:
    other = side("run-2", plan=plan(arm("a", noise=0.5), FAST))
    with pytest.raises(InputError, match="missing: a shared control: a and a are configured differently"):
        compare_runs(side(), other)


def test_other_weights_prompts_and_metrics_are_refused() -> None:
    with pytest.raises(InputError, match="the same weights in the control"):
        compare_runs(side(), side("run-2", checkpoints={"a": "other"}))
    with pytest.raises(InputError, match="the same prompts"):
        compare_runs(side(), side("run-2", plan=plan(CONTROL, FAST, prompts=(prompt(7),))))
    with pytest.raises(InputError, match="the same metric"):
        compare_runs(side(), side("run-2", plan=plan(CONTROL, FAST, metric="ttft_s")))


@pytest.mark.parametrize("verdict", ["not_engaged", "confounded", "underpowered"])
def test_numbers_that_mean_nothing_are_not_related(verdict: str) -> None:
    with pytest.raises(InputError, match="no treatment has an interval in both"):
        compare_runs(side(), side("run-2", comparisons=[comparison(verdict=verdict)]))


def test_classes_are_related_to_their_own() -> None:
    both = [comparison(), comparison(prompt_class="code", ratio=2.0, ci_low=1.9, ci_high=2.1)]
    found = compare_runs(side(comparisons=both), side("run-2", comparisons=both))
    assert [(one.prompt_class, round(one.ratio, 6)) for one in found.relations] == [(None, 1.0), ("code", 1.0)]


ratios = st.floats(0.2, 5.0)


@given(ratios, st.floats(0.001, 0.3), ratios, st.floats(0.001, 0.3))
def test_swapping_the_runs_inverts_the_ratio(a: float, da: float, b: float, db: float) -> None:
    first, second = (a, a * (1 - da), a * (1 + da)), (b, b * (1 - db), b * (1 + db))
    ratio, low, high = ratio_of_ratios(first, second)
    back, back_low, back_high = ratio_of_ratios(second, first)
    assert low <= ratio <= high
    assert (ratio * back, low * back_high, high * back_low) == pytest.approx((1, 1, 1))


def test_the_interval_covers_the_true_ratio_as_often_as_it_says() -> None:
    draw = np.random.default_rng(1)
    half, runs, held = 1.96 * 0.02, 4000, 0
    for _ in range(runs):
        estimates = draw.normal([math.log(1.3), math.log(1.1)], 0.02)
        intervals = [tuple(np.exp([e, e - half, e + half])) for e in estimates]
        _, low, high = ratio_of_ratios(*intervals)
        held += low <= 1.3 / 1.1 <= high
    assert 0.94 <= held / runs <= 0.96
