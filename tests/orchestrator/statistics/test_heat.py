"""Heat that stays for several trials: an arm without an effect of its own is not taken for a faster one."""

import math

import numpy as np
import pytest

from orchestrator.effects import Effect
from orchestrator.schedule import AA_LABEL, draw_rounds
from orchestrator.statistics.carry_over import CarryOver, carry_over
from orchestrator.statistics.heat import carry_over_reason, hides_a_difference, may_be_heat
from orchestrator.statistics.lags import GAIN, LagModel, Placed, Ran, exposures, innovations, student, whitened
from orchestrator.statistics.observations import ScopeTrials


def heated(*, rounds: int, heat: float, decay: float, effect: float = 0.0, seed: int = 0) -> ScopeTrials:
    """An arm "hot" leaves heat: many trials of it in a row would slow a trial by `heat`; logs, noise of 1 %."""
    rng = np.random.default_rng(seed)
    labels = np.array(draw_rounds(["plain", AA_LABEL, "hot"], rounds, seed), dtype=object).ravel()
    level, y = 0.0, np.zeros(len(labels))
    for place, label in enumerate(labels):
        y[place] = effect * (label == "hot") - level
        level = decay * level + (1 - decay) * heat * (label == "hot")
    noise = 0.01 * rng.standard_t(4, len(labels)) - 0.1 * np.arange(len(labels)) / len(labels)
    return ScopeTrials(y=y + noise, rounds=np.repeat(np.arange(rounds), 3), labels=labels, prompts=None)


def model(used: ScopeTrials) -> LagModel:
    found = LagModel.fit(Placed.find(used, Ran.of(used), control="plain"))
    assert found is not None
    return found


def test_an_exposure_decays_from_trial_to_trial() -> None:
    found = exposures(np.array([1, 0, 0, 1, 0]), 2, 0.5)
    assert found[:, 1].tolist() == [0.0, 1.0, 0.5, 0.25, 1.125]


def test_heat_of_many_trials_is_found_with_its_arm_and_what_accumulates() -> None:
    found = [
        carry_over(heated(rounds=20, heat=0.25, decay=0.8, seed=seed), control="plain", seed=0) for seed in range(12)
    ]
    noticed = [one for one in found if one is not None and one.matters]
    assert len(noticed) >= 11
    assert {one.after for one in noticed} == {"hot"}
    assert np.median([one.decay for one in noticed]) == pytest.approx(0.8, abs=0.11)
    assert np.median([one.accumulated for one in noticed]) == pytest.approx(np.exp(-0.25), abs=0.06)


@pytest.mark.parametrize(("heat", "decay"), [(0.12, 0.5), (0.12, 0.8), (0.25, 0.9)])
def test_an_effect_that_is_only_heat_does_not_stand(heat: float, decay: float) -> None:
    standing = 0
    for seed in range(20):
        found = model(heated(rounds=20, heat=heat, decay=decay, seed=seed)).adjusted("hot", "plain", alpha=0.05)
        standing += all(one.low > 0 for one in found)
    assert standing <= 1


def test_an_effect_of_its_own_stands_whatever_the_heat() -> None:
    for seed in range(10):
        used = heated(rounds=8, heat=0.12, decay=0.8, effect=0.06, seed=seed)
        adjusted = model(used).adjusted("hot", "plain", alpha=0.05)
        assert adjusted
        assert all(one.low > 0 for one in adjusted)


def test_the_reason_names_both_arms_and_the_remedy() -> None:
    used = heated(rounds=20, heat=0.25, decay=0.8)
    seems = Effect(ratio=1.015, ci_low=1.005, ci_high=1.025, p_value=0.001, rounds=20, wins=17, losses=3, typical=1.015)
    reason = may_be_heat(model(used), seems, treatment="hot", control="plain", alpha=0.05)
    assert reason is not None
    assert "if trials of hot and plain change the ones after them" in reason.text
    assert "gate.cooldown_s" in reason.text


def test_what_accumulates_counts_and_not_the_next_trial_alone() -> None:
    found = CarryOver(after="hot", ratio=0.99, decay=0.9, accumulated=0.90, p_value=0.001, trials=20)
    assert hides_a_difference(found, 0.02)
    assert "0.900 times after many trials" in carry_over_reason(found).text


def test_trials_that_are_left_out_heat_as_well() -> None:
    whole = heated(rounds=24, heat=0.25, decay=0.8, seed=3)
    rest = np.random.default_rng(0).random(len(whole.y)) > 0.2
    used = ScopeTrials(y=whole.y[rest], rounds=whole.rounds[rest], labels=whole.labels[rest], prompts=None)
    known = carry_over(used, control="plain", seed=0, ran=Ran.of(whole))
    assert known is not None
    assert known.accumulated == pytest.approx(np.exp(-0.25), abs=0.08)


def test_students_quantiles() -> None:
    assert student(0.975, 3) == pytest.approx(3.1824, rel=0.01)
    assert student(0.975, 30) == pytest.approx(2.0423, rel=1e-4)


def test_equal_noise_is_the_steady_state_of_the_filter() -> None:
    y = np.random.default_rng(0).standard_normal((40, 2)).cumsum(axis=0)
    same = whitened(y, np.ones(40)) * math.sqrt(1.0 + GAIN + 1.0)
    assert same[10:] == pytest.approx(innovations(y)[10:], abs=1e-3)


def test_noisy_third_arms_take_less_from_what_is_known_of_two_quiet_ones() -> None:
    names = np.array(["control", "A/A", "quiet", "noisy 1", "noisy 2", "noisy 3"], dtype=object)
    scale = dict(zip(names, (0.01, 0.01, 0.01, 0.05, 0.05, 0.05), strict=True))
    shares = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        labels = np.concatenate([rng.permutation(names) for _ in range(8)])
        y = rng.standard_t(4, 48) * [scale[label] for label in labels]
        used = ScopeTrials(y=y, rounds=np.repeat(np.arange(8), 6), labels=labels, prompts=None)
        placed = Placed.find(used, Ran.of(used), control="control")
        widths = []
        for fitted in (LagModel.fit_by_noise(placed), LagModel.fit(placed)):
            assert fitted is not None
            widths.append([one.high - one.low for one in fitted.adjusted("quiet", "control", alpha=0.05)])
        shares.append(np.divide(*widths))
    assert np.median(shares) < 0.95
