"""The effect: exact, invariant where it must be, honest about what it cannot know."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.effects import (
    DRAWS,
    HUBER,
    MOST_EXCHANGED,
    NORMAL_MAD,
    Effect,
    Exchanged,
    Series,
    equal_weights,
    estimate_effect,
    exchanges,
    make_series,
    p_values,
    typical_of,
)
from orchestrator.schedule import draw_rounds

few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 10_000)


def make_frame(
    arms: int = 2,
    rounds: int = 8,
    *,
    effect: float = 1.05,
    drift: float = -0.34,
    noise: float = 0.01,
    seed: int = 0,
) -> pd.DataFrame:
    """Arms a0, a1, ...; a1 is `effect` times as fast as the others under a linear drift."""
    rng = np.random.default_rng(seed)
    rows = []
    for index, order in enumerate(draw_rounds([f"a{arm}" for arm in range(arms)], rounds, seed)):
        for position, arm in enumerate(order):
            fraction = (index * arms + position) / (arms * rounds)
            speed = 100 * (1 + drift * fraction) * (effect if arm == "a1" else 1.0)
            rows.append((index, position, arm, speed * math.exp(noise * rng.standard_t(4))))
    return pd.DataFrame(rows, columns=["round", "position", "arm", "value"])


def effect_in(frame: pd.DataFrame, treatment: str = "a1", control: str = "a0", **options: float) -> Effect:
    return estimate_effect(frame, treatment=treatment, control=control, **options)  # type: ignore[arg-type]


def test_a_true_effect_is_found_under_drift() -> None:
    effect = effect_in(make_frame(rounds=20))
    assert effect.ci_low < 1.05 < effect.ci_high
    assert 1.04 < effect.ratio < 1.06
    assert effect.p_value < 0.001
    assert effect.rounds == 20
    assert effect.wins >= 15


def test_other_arms_effects_do_not_leak_in() -> None:
    frame = make_frame(arms=4, rounds=10, noise=0.003)
    fast = frame["arm"] == "a2"
    strong = frame.assign(value=frame["value"].where(~fast, frame["value"] * 3.0))
    effect = effect_in(strong)
    assert effect.ratio == pytest.approx(1.05, rel=0.01)
    # Only rounding separates the two: a level is taken out whatever its size.
    assert effect.ratio == pytest.approx(effect_in(frame).ratio, rel=1e-6)


def test_differences_between_prompts_are_taken_out() -> None:
    frame = make_frame(arms=3, rounds=20, noise=0.003)
    prompt = frame["round"] % 5
    mixed = frame.assign(value=frame["value"] * 2.0 ** (prompt % 3), prompt=prompt.map("prompt {}".format))
    by_name = effect_in(mixed)
    assert by_name.ratio == pytest.approx(1.05, rel=0.005)
    assert by_name.ci_high - by_name.ci_low < 0.02


def test_other_arms_may_differ_by_prompt() -> None:
    frame = make_frame(arms=3, rounds=20, noise=0.003)
    prompt = frame["round"] % 5
    by_prompt = np.where(frame["arm"] == "a2", 1.0 + 0.4 * prompt, 1.0)
    effect = effect_in(frame.assign(value=frame["value"] * by_prompt, prompt=prompt))
    assert effect.ratio == pytest.approx(1.05, rel=0.005)
    assert effect.ci_high - effect.ci_low < 0.02


def test_one_spike_counts_in_its_own_round_alone_and_moves_no_typical_round() -> None:
    frame = make_frame(rounds=12, noise=0.003)
    row = 9
    factor = 10.0 if frame["arm"].iloc[row] == "a0" else 0.1
    spoiled = frame.assign(value=frame["value"] / np.where(np.arange(len(frame)) == row, factor, 1.0))
    effect = effect_in(spoiled)
    assert effect.ratio == pytest.approx(1.05 * 10 ** (1 / 12), rel=0.01)
    assert effect.ci_low < 1.05 < effect.ci_high
    assert effect.typical == pytest.approx(1.05, rel=0.01)


def plain_series(contrasts: npt.NDArray[np.float64], strata: list[int] | None = None) -> Series:
    """Rounds without drift."""
    about = np.array(strata or [0] * len(contrasts), dtype=np.intp)
    return Series(
        contrasts=contrasts,
        raw=contrasts,
        weights=equal_weights(about),
        strata=about,
        numbers=np.arange(len(contrasts), dtype=np.intp),
    )


def mixed_frame(rounds: int, ratios: list[float], *, noise: float = 0.01, seed: int = 0) -> pd.DataFrame:
    """Rounds of one prompt each, dealt in passes; a1 is as many times as fast as a0 as the prompt's ratio says."""
    frame = make_frame(3, rounds, effect=1.0, drift=-0.2, noise=noise, seed=seed)
    prompt = np.concatenate([np.random.default_rng((seed, p)).permutation(len(ratios)) for p in range(rounds)])
    prompt = prompt[frame["round"]]
    factor = np.where(frame["arm"] == "a1", np.array(ratios)[prompt], 1.0) * 1.5**prompt
    return frame.assign(value=frame["value"] * factor, prompt=prompt)


MIXED = [2.0, 0.95, 0.95, 0.95, 0.95]  # geometric mean 1.103


def test_prompts_weigh_the_same_in_a_geometric_mean() -> None:
    truth = float(np.exp(np.log(MIXED).mean()))
    effect = effect_in(mixed_frame(40, MIXED, noise=0.003))
    assert effect.ratio == pytest.approx(truth, rel=0.005)
    assert effect.typical == pytest.approx(0.95, rel=0.02)
    assert effect.ci_low > 1.08
    assert effect.ci_high < 1.13
    # The prompt that gains has two rounds more than the others, and counts no more for that.
    assert effect_in(mixed_frame(42, MIXED, noise=0.003)).ratio == pytest.approx(truth, rel=0.005)


def test_the_interval_holds_the_mean_of_unlike_prompts() -> None:
    truth = float(np.exp(np.log(MIXED).mean()))
    found = [effect_in(mixed_frame(40, MIXED, seed=seed)) for seed in range(60)]
    assert np.mean([one.ci_low <= truth <= one.ci_high for one in found]) >= 0.9
    assert all(one.ci_low > 1 for one in found)


def test_a_statistic_with_strata_is_the_mean_over_its_standard_error_within_them() -> None:
    rng = np.random.default_rng(5)
    strata = [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]
    contrasts = rng.standard_normal(10) + 3.0 * np.array(strata)
    series = plain_series(contrasts, strata)
    sizes = Exchanged.of(series, exchanges(10, 0)).sizes(1.2)
    for signs, size in list(zip(exchanges(10, 0), sizes, strict=True))[::37]:
        flipped = (contrasts - 1.2) * signs
        groups = [flipped[np.array(strata) == stratum] for stratum in (0, 1)]
        mean = np.mean([group.mean() for group in groups])
        error = math.sqrt(sum(group.var(ddof=1) / len(group) for group in groups)) / 2
        assert size == pytest.approx(abs(mean) / error)


@few
@given(seeds, st.integers(2, 4), st.integers(6, 9), st.floats(1e-6, 1e6))
def test_the_unit_does_not_matter(seed: int, arms: int, rounds: int, unit: float) -> None:
    frame = make_frame(arms, rounds, seed=seed)
    scaled = effect_in(frame.assign(value=frame["value"] * unit))
    plain = effect_in(frame)
    assert scaled.ratio == pytest.approx(plain.ratio, rel=1e-8)
    assert scaled.ci_low == pytest.approx(plain.ci_low, rel=1e-4)
    assert scaled.p_value == plain.p_value


@few
@given(seeds, st.integers(2, 4), st.sampled_from([6, 8, 16]), st.floats(0.9, 1.1))
def test_swapping_the_arms_inverts_the_ratio(seed: int, arms: int, rounds: int, effect: float) -> None:
    frame = make_frame(arms, rounds, effect=effect, seed=seed)
    forth, back = effect_in(frame), effect_in(frame, "a0", "a1")
    assert back.ratio == pytest.approx(1 / forth.ratio, rel=1e-8)
    assert back.ci_low == pytest.approx(1 / forth.ci_high, rel=1e-6)
    assert back.ci_high == pytest.approx(1 / forth.ci_low, rel=1e-6)
    assert back.p_value == forth.p_value
    assert back.wins == forth.rounds - forth.wins


@few
@given(seeds, st.integers(2, 4), st.floats(-0.05, 0.05))
def test_a_constant_drift_cancels(seed: int, arms: int, per_trial: float) -> None:
    frame = make_frame(arms, 8, seed=seed)
    drifting = frame.assign(value=frame["value"] * np.exp(per_trial * np.arange(len(frame))))
    assert effect_in(drifting).ratio == pytest.approx(effect_in(frame).ratio, rel=1e-8)
    assert effect_in(drifting).p_value == effect_in(frame).p_value


@few
@given(seeds, st.integers(2, 4))
def test_names_do_not_matter(seed: int, arms: int) -> None:
    frame = make_frame(arms, 8, seed=seed)
    names = {"a0": "z", "a1": "c", "a2": "b", "a3": "a"}
    renamed = effect_in(frame.assign(arm=frame["arm"].map(names)), "c", "z")
    plain = effect_in(frame)
    assert renamed.p_value == plain.p_value
    assert renamed.ratio == pytest.approx(plain.ratio, rel=1e-8)


@few
@given(seeds, st.integers(2, 4), st.integers(1, 16), st.floats(0.9, 1.1), st.sampled_from([0.01, 0.05, 0.2]))
def test_interval_and_p_value_agree(seed: int, arms: int, rounds: int, effect: float, alpha: float) -> None:
    found = effect_in(make_frame(arms, rounds, effect=effect, seed=seed), alpha=alpha)
    assert found.ci_low <= found.ratio <= found.ci_high
    assert (found.p_value <= alpha) == (not found.ci_low <= 1.0 <= found.ci_high)
    assert found.p_value >= min(2.0 / 2**rounds, 1.0 / DRAWS)


@few
@given(seeds, st.integers(2, 3))
def test_a_shift_by_the_true_effect_moves_the_interval_with_it(seed: int, arms: int) -> None:
    plain = effect_in(make_frame(arms, 8, effect=1.0, seed=seed))
    shifted = effect_in(make_frame(arms, 8, effect=1.5, seed=seed))
    assert shifted.ratio == pytest.approx(1.5 * plain.ratio, rel=1e-8)
    # The interval's ends are searched on another grid.
    assert shifted.ci_low == pytest.approx(1.5 * plain.ci_low, rel=1e-3)


@pytest.mark.parametrize("arms", [2, 5])
def test_five_rounds_never_reach_five_percent(arms: int) -> None:
    effect = effect_in(make_frame(arms, 5, effect=3.0))
    assert effect.p_value == 2 / 2**5
    assert (effect.ci_low, effect.ci_high) == (0.0, math.inf)


def test_exactness_over_all_exchanges() -> None:
    # Whatever the values: over all 2**6 ways to deal the labels, at most a share alpha of p-values is below alpha.
    y = np.random.default_rng(3).standard_t(2, size=18)
    rounds = np.repeat(np.arange(6), 3)
    signs = exchanges(6, 0)
    found = []
    for ways in range(2**6):
        flip = ways >> np.arange(6) & 1
        arms = np.stack([flip, 1 - flip, np.full(6, 2)], axis=1).ravel()
        found.append(p_values(make_series(y, rounds=rounds, arms=arms), np.zeros(1), signs)[0])
    for alpha in (0.04, 0.1, 0.25, 0.5):
        assert np.mean(np.array(found) <= alpha) <= alpha


def test_the_fit_does_not_see_how_the_labels_are_dealt() -> None:
    y = np.random.default_rng(4).standard_t(3, size=24)
    rounds = np.repeat(np.arange(8), 3)
    arms = np.tile([0, 1, 2], 8)
    dealt = make_series(y, rounds=rounds, arms=arms)
    exchanged = make_series(y, rounds=rounds, arms=np.where(rounds == 5, np.array([1, 0, 2])[arms], arms))
    sign = np.where(np.arange(8) == 5, -1.0, 1.0)
    assert exchanged.contrasts == pytest.approx(dealt.contrasts * sign)


def test_exchanges_hold_each_pair_of_mirrored_ways_once() -> None:
    signs = exchanges(6, 0)
    assert (signs[0] == 1).all()
    assert len(np.unique(np.concatenate([signs, -signs]), axis=0)) == 2**6
    drawn = exchanges(20, 1)
    assert drawn.shape == (DRAWS, 20)
    assert (drawn[0] == 1).all()
    assert abs(drawn.mean()) < 0.01


def test_of_many_rounds_neighbours_are_exchanged_together() -> None:
    rounds = 2 * MOST_EXCHANGED + 1
    signs = exchanges(rounds, 1)
    assert signs.shape == (DRAWS, MOST_EXCHANGED)
    contrasts = np.random.default_rng(7).standard_normal(rounds) + 0.05
    of_round = (
        np.searchsorted(np.arange(MOST_EXCHANGED) * rounds // MOST_EXCHANGED, np.arange(rounds), side="right") - 1
    )
    sums = np.abs(signs[:, of_round] @ contrasts)
    assert p_values(plain_series(contrasts), np.zeros(1), signs)[0] == np.mean(sums >= sums[0] - 1e-9)


def test_many_rounds_see_what_few_cannot_and_invent_nothing() -> None:
    seen = effect_in(make_frame(2, 600, effect=1.002, seed=1))
    assert seen.p_value < 0.05
    assert seen.ci_low < 1.002 < seen.ci_high
    p_values = [effect_in(make_frame(2, 400, effect=1.0, seed=seed)).p_value for seed in range(40)]
    assert (
        np.mean(np.array(p_values) <= 0.25) < 0.5
    )  # 40 draws of a share of 0.25: more than 0.5 has a chance of 0.0004


def test_the_seed_decides_what_is_drawn() -> None:
    frame = make_frame(rounds=16, effect=1.006)
    first = effect_in(frame, seed=5)
    np.random.seed(7)  # another's generator is none of ours
    assert effect_in(frame.copy(), seed=5) == first
    assert effect_in(frame, seed=5).p_value != effect_in(frame, seed=6).p_value
    assert effect_in(frame, seed=5).p_value == pytest.approx(effect_in(frame, seed=6).p_value, abs=0.03)


def test_incomplete_rounds_are_not_counted() -> None:
    frame = make_frame(arms=3, rounds=9)
    without = frame[~((frame["round"] == 4) & (frame["arm"] == "a1"))]
    assert effect_in(without).rounds == 8
    others_gone = frame[~((frame["round"] == 4) & (frame["arm"] == "a2"))]
    assert effect_in(others_gone).rounds == 9


def test_equal_values_are_no_effect() -> None:
    effect = effect_in(make_frame(rounds=8).assign(value=50.0))
    assert (effect.ratio, effect.ci_low, effect.ci_high) == pytest.approx((1.0, 1.0, 1.0), abs=1e-6)
    assert effect.p_value == 1.0
    assert effect.wins == 0


def test_the_input_is_left_alone_and_its_index_ignored() -> None:
    frame = make_frame()
    shuffled_index = frame.set_axis(np.arange(len(frame))[::-1], axis=0)
    before = shuffled_index.copy()
    assert effect_in(shuffled_index) == effect_in(frame)
    pd.testing.assert_frame_equal(shuffled_index, before)


def _set(column: str, row: int, value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        values = frame[column].astype(object)
        values.iloc[row] = value
        return frame.assign(**{column: values})

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.drop(columns="position"), r"columns missing: \['position'\]"),
        (_set("value", 3, math.nan), "value nan in row 3"),
        (_set("value", 3, 0.0), "value 0.0 in row 3"),
        (_set("value", 3, -1.0), "value -1.0 in row 3"),
        (_set("value", 3, math.inf), "value inf in row 3"),
        (_set("value", 3, "fast"), "value 'fast' in row 3"),
        (_set("round", 3, None), "round or position is missing"),
        (lambda f: f.assign(arm=f["arm"].replace("a1", "b")), "unknown arm 'a1'"),
        (lambda f: pd.concat([f, f.iloc[-1:]]), "twice in round 7"),
        (lambda f: f.iloc[::-1], "not in time order"),
        (lambda f: f[f["arm"].eq("a0") == f["round"].lt(4)], "no round holds both"),
        (lambda f: f.iloc[:0], "unknown arm"),
    ],
)
def test_what_cannot_be_compared_is_refused(change: Callable[[pd.DataFrame], pd.DataFrame], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        effect_in(change(make_frame()))


def test_arms_and_level_are_checked() -> None:
    with pytest.raises(ValueError, match="are both 'a0'"):
        effect_in(make_frame(), "a0", "a0")
    with pytest.raises(ValueError, match="alpha=0"):
        effect_in(make_frame(), alpha=0.0)


@few
@given(contrasts=st.lists(st.floats(-2, 2), min_size=3, max_size=12))
def test_the_typical_round_is_hubers(contrasts: list[float]) -> None:
    """It balances the rounds' distances, each counted up to the bound."""
    values = np.array(contrasts)
    bound = HUBER * np.median(np.abs(values - np.median(values))) / NORMAL_MAD
    middle = typical_of(values)
    assert abs(np.clip(values - middle, -bound, bound).mean()) <= 0.01 * max(bound, 1e-12)


def test_the_typical_round_is_the_mean_of_rounds_without_a_spike() -> None:
    assert typical_of(np.array([0.98, 0.99, 1.01, 1.025])) == pytest.approx(1.00125)


def test_a_candidate_effect_is_one_that_is_taken_off_every_round() -> None:
    rng = np.random.default_rng(3)
    prompts = np.repeat([0, 1, 2], 8)
    one = make_series(
        rng.normal(0.1, 0.05, 24), rounds=np.repeat(np.arange(12), 2), arms=np.tile([0, 1], 12), prompts=prompts
    )
    signs = exchanges(12, 0)
    for effect in (-0.2, 0.03, 0.5):
        less = replace(one, contrasts=one.contrasts - effect)
        shifted, straight = Exchanged.of(less, signs), Exchanged.of(one, signs)
        assert straight.sizes(effect) == pytest.approx(shifted.sizes(0.0))
        assert straight.standard_error(effect) == pytest.approx(shifted.standard_error(0.0))
