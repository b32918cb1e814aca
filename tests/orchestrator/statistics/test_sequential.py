"""Looking after every round errs no more often than it says, and large effects end soon."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from orchestrator.estimation.inversion import Floats
from orchestrator.statistics import sequential
from orchestrator.statistics.drift import PROFILES, standard
from orchestrator.statistics.sequential import largest_wealth, look, sequential_effect, whole_passes
from orchestrator.statistics.simulate import simulated_runs

ARMS = 3


def contrasts_of(profile: str, effect: float, rounds: int, runs: int) -> list[Floats]:
    found = []
    setting = standard(profile, ARMS * rounds)
    for run in simulated_runs(setting, arms=ARMS, rounds=rounds, effects=(effect,), runs=runs, seed=3):
        coding = np.where(run.arms == 1, 1.0, np.where(run.arms == 0, -1.0, 0.0))
        found.append((run.y * coding).reshape(rounds, ARMS).sum(axis=1))
    return found


def first_decision(contrasts: Floats) -> int | None:
    for rounds in range(1, len(contrasts) + 1):
        if look(contrasts[:rounds], alpha=0.05, margin=0.0).decision == "supported":
            return rounds
    return None


@pytest.mark.nightly
@pytest.mark.parametrize("profile", PROFILES)
def test_at_any_look_an_error_is_rare(profile: str) -> None:
    errors = [largest_wealth(c, np.zeros(1))[0] >= 20 for c in contrasts_of(profile, 1.0, 40, 400)]
    assert np.mean(errors) <= 0.06


def test_a_twofold_effect_is_decided_in_six_rounds_and_never_before_five() -> None:
    decided = [first_decision(c) for c in contrasts_of("linear", 2.0, 8, 20)]
    assert all(rounds is not None and 5 <= rounds <= 6 for rounds in decided)


def test_a_small_effect_is_decided_in_time() -> None:
    decided = [first_decision(c) or math.inf for c in contrasts_of("saturating", 1.05, 20, 20)]
    assert np.median(decided) <= 9


def test_equal_arms_are_called_so_in_the_end() -> None:
    (contrasts,) = contrasts_of("none", 1.0, 60, 1)
    assert look(contrasts, alpha=0.05, margin=0.03).decision == "no_difference"
    assert look(contrasts[:4], alpha=0.05, margin=0.03).decision is None


@settings(max_examples=30, deadline=None)
@example(np.array([-0.375, 0.0, -0.25, -0.25, -0.25, -0.25, -0.25, -0.25]))
@example(np.array([1e-212, 2**-6, 2**-4, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]))  # a median that rounds to 1
@given(arrays(np.float64, st.integers(1, 12), elements=st.floats(-0.5, 0.5)))
def test_interval_p_value_and_mirror_agree(contrasts: Floats) -> None:
    effect = sequential_effect(contrasts, alpha=0.05)
    assert effect.ci_low <= effect.ratio <= effect.ci_high
    assert (effect.p_value <= 0.05) == (not effect.ci_low <= 1 <= effect.ci_high)
    mirrored = sequential_effect(-contrasts, alpha=0.05)
    assert mirrored.p_value == pytest.approx(effect.p_value)
    assert (mirrored.wins, mirrored.losses) == (effect.losses, effect.wins)


@settings(max_examples=30, deadline=None)
@given(arrays(np.float64, 8, elements=st.floats(-0.5, 0.5)), st.floats(-0.1, 0.1))
def test_more_rounds_never_take_a_finding_back(contrasts: Floats, effect: float) -> None:
    wealth = [largest_wealth(contrasts[:rounds], np.array([effect]))[0] for rounds in range(1, 9)]
    assert wealth == sorted(wealth)
    assert wealth[0] >= 1.0


def test_in_a_fair_game_a_wealth_is_reached_no_more_often_than_its_inverse() -> None:
    # Over all 2**10 ways the coins can fall, betting neither gains nor loses: Ville's inequality, at each wealth.
    sizes = np.array([0.03, 0.01, 0.02, 0.05, 0.01, 0.04, 0.02, 0.03, 0.06, 0.02])
    ways = 1.0 - 2.0 * (np.arange(2**10)[:, None] >> np.arange(10) & 1)
    reached = np.sort([largest_wealth(signs * sizes, np.zeros(1))[0] for signs in ways])[::-1]
    assert reached[0] > 20  # all coins alike: the bound is about wealths that are there
    assert np.all(np.arange(1, len(reached) + 1) / len(reached) <= 1 / reached)


def test_no_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="no complete round yet"):
        look(np.array([]), alpha=0.05, margin=0.02)


@pytest.mark.parametrize(
    ("gains", "mean_sign"),
    [([0.08] * 9 + [math.log(0.5)] * 3, -1), ([0.05] * 15 + [math.log(0.5)] * 5, -1), ([0.0] * 16 + [-0.5] * 4, -1)],
)
def test_with_unlike_prompts_no_look_decides_for_the_direction_of_most_of_them(
    gains: list[float], mean_sign: int
) -> None:
    effects = np.array(gains)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        prompts = np.concatenate([rng.permutation(len(effects)) for _ in range(8)])
        rounds = effects[prompts] + 0.014 * rng.standard_t(4, len(prompts))
        for looked in range(1, len(rounds) + 1):
            seen = np.unique(prompts[:looked], return_inverse=True)
            if len(seen[0]) < len(effects):
                continue
            found = sequential_effect(rounds[:looked], alpha=0.05, prompts=prompts[:looked])
            if found.p_value <= 0.05:
                assert np.sign(math.log(found.ratio)) == mean_sign
                assert found.rounds % len(effects) == 0
                break
        else:
            pytest.fail("never decided")


def test_a_pass_that_has_not_ended_does_not_count() -> None:
    rounds, prompts = np.array([0.1, 0.2, 0.3, 0.4, 0.5]), np.array([0, 1, 1, 0, 1])
    assert whole_passes(rounds, prompts).tolist() == [[0.1, 0.2], [0.4, 0.3]]
    assert sequential_effect(rounds, alpha=0.05, prompts=prompts).rounds == 4
    begun = sequential_effect(rounds[:1], alpha=0.05, prompts=np.array([1]))
    assert (begun.p_value, begun.ci_low, begun.ci_high) == (1.0, 0.0, math.inf)


@pytest.mark.parametrize(
    ("ratio", "decision"), [(1.22, "no_difference"), (1 / 1.22, "no_difference"), (1.27, "supported")]
)
def test_the_margin_reaches_as_far_above_1_as_below_it(ratio: float, decision: str) -> None:
    """A margin of 20 %: from 0.8 to 1.25."""
    contrasts = math.log(ratio) + 1e-4 * np.resize([1.0, -1.0, 0.5, -0.5], 40)
    assert look(contrasts, alpha=0.05, margin=0.2).decision == decision


def test_an_interval_that_ends_at_1_or_at_the_margin_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def decision(low: float, high: float) -> str | None:
        effect = replace(sequential_effect(np.full(8, 0.1), alpha=0.05), ci_low=low, ci_high=high)
        monkeypatch.setattr(sequential, "sequential_effect", lambda contrasts, alpha: effect)
        return look(np.zeros(8), alpha=0.05, margin=0.02).decision

    assert decision(1.0, 1.3) is None
    assert decision(0.7, 1.0) is None
    assert decision(1.001, 1.3) == "supported"
    assert decision(0.7, 0.999) == "supported"
    assert decision(0.98, 1.01) is None
    assert decision(0.99, 1 / 0.98) is None
    assert decision(0.981, 1.02) == "no_difference"


def test_a_wealth_once_reached_stays_reached() -> None:
    """The p-value holds at any time of stopping: it is the inverse of the largest wealth so far, not of today's."""
    rounds = np.array([0.1] * 8 + [-0.1] * 8)
    assert sequential_effect(rounds, alpha=0.05).p_value == sequential_effect(rounds[:8], alpha=0.05).p_value
