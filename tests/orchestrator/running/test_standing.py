"""Rates and ratios while a run goes on: by round, against the control and its A/A entry."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.running import standing
from orchestrator.running.standing import SHOWN, Standing
from orchestrator.schedule import AA_LABEL, ScheduledTrial

RATES = st.floats(0.1, 1e4)


@pytest.fixture(autouse=True, scope="module")
def figures() -> Any:
    """A generation is its own figures here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standing, "measure", lambda generation: generation)
        yield


def add(to: Standing, label: str, rate: float | None, *, kind: Any = "measured", round_: int | None = 0) -> None:
    trial = ScheduledTrial(
        sequence=0, kind=kind, round=round_, position=0, label=label, arm=label, is_aa=False, prompt_ids=(), seed=0
    )
    generations = [("prompt", SimpleNamespace(end_to_end_tps=rate, ttft_s=rate))]
    to.add(trial, SimpleNamespace(generations=generations))  # type: ignore[arg-type]


def test_a_ratio_is_taken_within_each_round_and_drift_cancels() -> None:
    found = Standing(control="a", arms=("a", "b"), metric="end_to_end_tps")
    for drift in (1.0, 0.5, 0.1):
        for label, rate in (("b", 12.0), ("a", 8.0), (AA_LABEL, 12.5)):
            add(found, label, rate * drift)
        assert found.end()
    assert found.ratios == {"b": pytest.approx(1.2)}
    assert found.words() == "a 2.95 tokens/s, b 4.42 (1.20\u00d7); 3 rounds, no verdict yet"


def test_what_does_not_count_has_no_part() -> None:
    found = Standing(control="a", arms=("a", "b", "c"), metric="ttft_s")
    add(found, "a", 1.0, kind="bracket", round_=None)
    assert not found.end()
    add(found, "b", 2.0)  # the control of this round is missing
    assert not found.end()
    add(found, "a", 9.0)
    add(found, "b", 9.0)
    found.begin()  # replayed
    add(found, "a", 1.0)
    add(found, "b", 2.0)
    add(found, "c", None)
    assert found.end()
    assert found.words() == "a 1 s, b 2 (2.00\u00d7); 1 round, no verdict yet"


@settings(max_examples=30)
@given(st.lists(RATES, min_size=1, max_size=20), RATES)
def test_ratios_follow_the_order_of_the_arms_and_many_are_counted(rates: list[float], control: float) -> None:
    arms = [f"arm{number}" for number in range(len(rates))]
    found = Standing(control="a", arms=["a", *arms], metric="end_to_end_tps")
    for label, rate in [*reversed(list(zip(arms, rates, strict=True))), ("a", control)]:
        add(found, label, rate)
    assert found.end()
    assert list(found.ratios) == arms
    assert all(math.isclose(found.ratios[arm], rate / control) for arm, rate in zip(arms, rates, strict=True))
    assert (f"and {len(arms) - SHOWN} more" in found.words()) == (len(arms) > SHOWN)
