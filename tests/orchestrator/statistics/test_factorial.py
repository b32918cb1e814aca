"""Two factors: what each does, and whether both together give what the two promise."""

from collections.abc import Sequence

import numpy as np
import pytest

from orchestrator.statistics.drift import standard
from orchestrator.statistics.factorial import contrast_effect, factorial
from orchestrator.statistics.observations import ScopeTrials
from orchestrator.statistics.simulate import simulated_runs

LEVELS = {
    "8bit": ("plain", "8"),
    "8bit-draft": ("draft", "8"),
    "4bit": ("plain", "4"),
    "4bit-draft": ("draft", "4"),
}
NAMES = np.array(list(LEVELS), dtype=object)
INTERACTION = {"8bit": 1.0, "8bit-draft": -1.0, "4bit": -1.0, "4bit-draft": 1.0}
# Speculation 2.55x, four bits 1.28x, both 3.01x: 92 % of the product.
ARTICLE = (2.55, 1.28, 3.01)


def runs_of(profile: str, effects: Sequence[float], rounds: int, runs: int) -> list[ScopeTrials]:
    setting = standard(profile, len(NAMES) * rounds)
    return [
        ScopeTrials(y=run.y, rounds=run.rounds, labels=NAMES[run.arms], prompts=None)
        for run in simulated_runs(setting, arms=len(NAMES), rounds=rounds, effects=effects, runs=runs, seed=3)
    ]


def test_the_articles_composition() -> None:
    (trials,) = runs_of("linear", ARTICLE, 16, 1)
    found = factorial(trials, levels=LEVELS, base=("plain", "8"), alpha=0.05, seed=0)
    (one,) = found.compositions
    assert (one.first, one.second) == ("draft", "4")
    assert one.first_alone.ratio == pytest.approx(2.55, rel=0.02)
    assert one.second_alone.ratio == pytest.approx(1.28, rel=0.02)
    assert one.both.ratio == pytest.approx(3.01, rel=0.02)
    assert one.composition.ratio == pytest.approx(0.922, abs=0.015)
    assert one.composition.ci_high < 1
    assert found.main_first["draft"].ratio == pytest.approx((2.55 * 3.01 / 1.28) ** 0.5, rel=0.02)
    assert found.main_second["4"].ratio == pytest.approx((1.28 * 3.01 / 2.55) ** 0.5, rel=0.02)


@pytest.mark.nightly
@pytest.mark.parametrize("profile", ["none", "saturating", "step", "random_walk"])
def test_the_interval_of_a_composition_covers(profile: str) -> None:
    true = ARTICLE[2] / (ARTICLE[0] * ARTICLE[1])
    found = [contrast_effect(trials, INTERACTION, alpha=0.05, seed=0) for trials in runs_of(profile, ARTICLE, 8, 300)]
    assert np.mean([one.ci_low <= true <= one.ci_high for one in found]) >= 0.92


def test_drift_is_taken_out_without_touching_the_contrast() -> None:
    plain, drifting = (runs_of(profile, ARTICLE, 12, 1)[0] for profile in ("none", "linear"))
    widths = []
    for trials in (plain, drifting):
        effect = contrast_effect(trials, INTERACTION, alpha=0.05, seed=0)
        widths.append(effect.ci_high - effect.ci_low)
    assert widths[1] < 1.2 * widths[0]


def test_a_larger_table_has_a_composition_for_each_pair() -> None:
    levels = {f"{a}{b}": (a, b) for a in ("plain", "draft", "mtp") for b in ("8", "6", "4")}
    names = np.array(list(levels), dtype=object)
    setting = standard("none", len(names) * 8)
    (run,) = simulated_runs(setting, arms=len(names), rounds=8, effects=(), runs=1, seed=0)
    trials = ScopeTrials(y=run.y, rounds=run.rounds, labels=names[run.arms], prompts=None)
    found = factorial(trials, levels=levels, base=("plain", "8"), alpha=0.05, seed=0)
    assert {(one.first, one.second) for one in found.compositions} == {
        ("draft", "6"),
        ("draft", "4"),
        ("mtp", "6"),
        ("mtp", "4"),
    }
    assert set(found.main_first) == {"draft", "mtp"}


def test_rounds_that_lack_an_arm_are_left_out() -> None:
    (trials,) = runs_of("linear", ARTICLE, 8, 1)
    keep = ~((trials.labels == "4bit") & (trials.rounds == 3))
    fewer = ScopeTrials(y=trials.y[keep], rounds=trials.rounds[keep], labels=trials.labels[keep], prompts=None)
    assert contrast_effect(fewer, INTERACTION, alpha=0.05, seed=0).rounds == 7


LEVEL = {"8bit": 0.0, "8bit-draft": 0.9, "4bit": 0.25, "4bit-draft": 1.1}
TRUE = float(np.exp(LEVEL["4bit-draft"] + LEVEL["8bit"] - LEVEL["8bit-draft"] - LEVEL["4bit"]))


def exact(rounds: int, *, slope: float, prompts: Sequence[float] = (), missing: Sequence[int] = ()) -> ScopeTrials:
    """Trials without noise: the arms' levels in shuffled rounds, a drift per trial, and each round's prompt's level."""
    rng = np.random.default_rng(5)
    labels = np.delete(np.concatenate([rng.permutation(NAMES) for _ in range(rounds)]), missing)
    number = np.delete(np.repeat(np.arange(rounds), len(NAMES)), missing)
    y = np.array([LEVEL[label] for label in labels]) + slope * np.arange(len(labels))
    if not prompts:
        return ScopeTrials(y=y, rounds=number, labels=labels, prompts=None)
    prompt = number % len(prompts)
    return ScopeTrials(y=y + np.asarray(prompts)[prompt], rounds=number, labels=labels, prompts=prompt)


@pytest.mark.parametrize(
    ("trials", "rounds"),
    [
        (exact(8, slope=0.1), 8),
        (exact(8, slope=-0.3), 8),
        (exact(2, slope=0.1), 2),
        (exact(8, slope=0.1, missing=(13, 31)), 6),
        (exact(8, slope=0.0, prompts=(0.0, 2.0)), 8),
        (exact(9, slope=0.0, prompts=(0.0, -3.0, 2.0)), 9),
        (exact(1, slope=0.0), 1),
    ],
)
def test_linear_drift_and_prompts_of_any_size_leave_the_contrast_exact(trials: ScopeTrials, rounds: int) -> None:
    found = contrast_effect(trials, INTERACTION, alpha=0.05, seed=0)
    assert found.rounds == rounds
    assert found.ratio == pytest.approx(TRUE, rel=1e-6)
    if rounds > 5:  # fewer rounds have no interval
        assert (found.ci_low, found.ci_high) == pytest.approx((TRUE, TRUE), rel=1e-4)


def test_what_is_no_table_is_refused() -> None:
    (trials,) = runs_of("none", ARTICLE, 6, 1)
    three = {arm: cell for arm, cell in LEVELS.items() if arm != "4bit"}
    with pytest.raises(ValueError, match=r"no arm for \('plain', '4'\)"):
        factorial(trials, levels=three, base=("plain", "8"), alpha=0.05, seed=0)
    with pytest.raises(ValueError, match="same levels"):
        factorial(trials, levels=LEVELS | {"again": ("plain", "8")}, base=("plain", "8"), alpha=0.05, seed=0)
    with pytest.raises(ValueError, match="base"):
        factorial(trials, levels=LEVELS, base=("plain", "2"), alpha=0.05, seed=0)
    with pytest.raises(ValueError, match="no round holds all"):
        contrast_effect(trials, INTERACTION | {"absent": 1.0}, alpha=0.05, seed=0)


def test_a_round_that_lacks_an_arm_does_not_bend_the_drift() -> None:
    """Without its fastest arm a round has another mean, which is not the machine's."""
    (trials,) = runs_of("none", ARTICLE, 16, 1)
    keep = ~((trials.labels == "4bit-draft") & (trials.rounds % 4 == 1))
    fewer = ScopeTrials(y=trials.y[keep], rounds=trials.rounds[keep], labels=trials.labels[keep], prompts=None)
    whole, some = (contrast_effect(each, INTERACTION, alpha=0.05, seed=0) for each in (trials, fewer))
    assert some.rounds == 12
    assert some.ratio == pytest.approx(whole.ratio, rel=0.01)
    assert some.ci_high - some.ci_low < 2 * (whole.ci_high - whole.ci_low)
