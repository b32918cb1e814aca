"""Values in steps, as of a slow clock, neither hide an effect as "no difference" nor make one."""

import numpy as np
import pandas as pd
import pytest

from orchestrator.audit import audit
from orchestrator.statistics.findings import Comparison
from orchestrator.statistics.resolution import Steps
from tests.orchestrator.flat import FlatRun

TICK_S = 0.016


def ticking(
    faster: float, *, rounds: int = 8, drift: float = 0.0, noise: float = 0.001, wait_s: float = 0.1
) -> Comparison:
    """The comparison of two arms' waits that a clock of 16 ms has timed; the treatment's are shorter by `faster`."""
    prompts = {"p": "x"}
    effects = {"plain": 1.0, "other": faster}
    frame = FlatRun(effects=effects, rounds=rounds, drift=drift, noise=noise, prompts=prompts, seed=3).frame()
    return judged(frame.assign(ttft_s=np.ceil(frame["ttft_s"] * (wait_s / 0.1) / TICK_S) * TICK_S))


def judged(frame: pd.DataFrame, metric: str = "ttft_s") -> Comparison:
    return audit(frame, control="plain", metric=metric).comparisons[0]


def texts(one: Comparison) -> list[str]:
    return [reason.text for reason in one.reasons if reason.code == "coarse_values"]


def test_waits_within_one_tick_are_not_called_equal() -> None:
    """107 and 104 ms: both are shown as 112, in every trial."""
    found = ticking(1.03, wait_s=0.107)
    assert (found.verdict, found.ratio) == ("could_be_drift", 1.0)
    (text,) = texts(found)
    assert text == "all values are equal: their clock or rounding hides effects of up to any size"


def test_steps_that_are_visited_by_chance_hide_an_effect_in_few_rounds() -> None:
    """Under drift the values pass several ticks, at places that a few rounds do not tell apart."""
    for rounds in (8, 12):
        found = ticking(1.01, rounds=rounds, drift=-0.2)
        assert found.verdict not in ("no_difference", "supported")


def test_an_effect_inside_the_margin_that_crosses_a_tick_is_not_supported() -> None:
    """113 and 111 ms are 1.8 % apart, and shown as 128 and 112."""
    found = ticking(113 / 111, wait_s=0.113)
    assert found.ratio == pytest.approx(112 / 128)
    assert found.verdict == "could_be_drift"
    (text,) = texts(found)
    assert text.startswith("the values recur in steps of 14.3%: their clock or rounding can make such an effect")


@pytest.mark.parametrize(("values", "hides"), [(8, True), (23, True), (24, False), (200, False)])
def test_spread_values_hide_what_too_few_of_them_would_show(values: int, *, hides: bool) -> None:
    """An effect of 2 % moves one in eight values by a step of 16 %: it may well move none of 23."""
    steps = Steps(step=0.16, spread=0.6, values=values, margin=0.0202)
    assert (steps.against_equality() is not None) == hides
    assert steps.against_effect(0.03) is None


def test_an_effect_of_several_ticks_is_supported() -> None:
    found = ticking(2.0, wait_s=0.2, noise=0.03)
    assert (found.verdict, found.direction) == ("supported", "faster")
    assert not texts(found)


def test_steps_finer_than_the_margin_do_no_harm() -> None:
    """Rates that a tool has rounded to a tenth recur, in steps of 0.5 %."""
    frame = FlatRun(effects={"plain": 1.0, "other": 1.0}, rounds=20, noise=0.003, drift=0.0).frame()
    rounded = frame.assign(end_to_end_tps=frame["end_to_end_tps"].round(1))
    assert len(set(rounded["end_to_end_tps"])) < len(rounded) / 2
    assert judged(rounded, "end_to_end_tps").verdict == "no_difference"


def test_noise_of_several_steps_makes_the_mean_of_rounded_values_right() -> None:
    """Steps of 3 % under noise of 3 %: after many rounds the arms are known to be equal all the same."""
    frame = FlatRun(
        effects={"plain": 1.0, "other": 1.0}, rounds=200, noise=0.025, drift=0.0, prompts={"p": "x"}
    ).frame()
    rounded = frame.assign(end_to_end_tps=np.exp(np.round(np.log(frame["end_to_end_tps"]) / 0.03) * 0.03))
    found = judged(rounded, "end_to_end_tps")
    assert not texts(found)
    assert found.verdict == "no_difference"
