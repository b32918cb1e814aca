"""A trial that changes the next one is noticed; one that does not is left in peace."""

import dataclasses

import numpy as np
import pytest

from orchestrator.statistics.carry_over import LEVEL, carry_over
from orchestrator.statistics.drift import standard
from orchestrator.statistics.lags import Ran
from orchestrator.statistics.observations import ScopeTrials
from orchestrator.statistics.simulate import simulated_runs

NAMES = np.array(["control", "A/A", "hot", "mild"], dtype=object)


def runs_of(runs: int, after_hot: float, rounds: int = 12) -> list[ScopeTrials]:
    setting = standard("linear", len(NAMES) * rounds)
    found = []
    effects = (1.0, 1.5, 1.1)
    for run in simulated_runs(setting, arms=len(NAMES), rounds=rounds, effects=effects, runs=runs, seed=5):
        labels = NAMES[run.arms]
        y = run.y.copy()
        y[1:] += np.log(after_hot) * (labels[:-1] == "hot")
        found.append(ScopeTrials(y=y, rounds=run.rounds, labels=labels, prompts=None))
    return found


def test_a_hot_arm_slows_its_successor() -> None:
    found = [carry_over(trials, control="control", seed=0) for trials in runs_of(20, 0.9)]
    noticed = [one for one in found if one is not None and one.matters]
    assert len(noticed) >= 17
    assert all(one.after == "hot" for one in noticed)
    assert np.median([one.ratio for one in noticed]) == pytest.approx(0.88, abs=0.04)


@pytest.mark.nightly
def test_without_carry_over_it_seldom_matters() -> None:
    found = [carry_over(trials, control="control", seed=0) for trials in runs_of(300, 1.0)]
    assert np.mean([one is not None and one.matters for one in found]) <= 0.03


def test_too_few_trials_show_nothing() -> None:
    (trials,) = runs_of(1, 0.9, rounds=2)
    assert carry_over(trials, control="control", seed=0) is None


def test_it_is_the_same_whatever_the_unit() -> None:
    (trials,) = runs_of(1, 0.95)
    scaled = dataclasses.replace(trials, y=trials.y + 3.0)
    first, second = (carry_over(one, control="control", seed=0) for one in (trials, scaled))
    assert first is not None
    assert second is not None
    assert (first.after, first.p_value) == (second.after, second.p_value)


def test_the_controls_second_entry_is_the_control() -> None:
    """Both leave the same heat: it is the control's, and its trials are those of both entries."""
    (trials,) = runs_of(1, 1.0)
    y = trials.y.copy()
    y[1:] += np.log(0.8) * np.isin(trials.labels[:-1], ["control", "A/A"])
    found = carry_over(dataclasses.replace(trials, y=y), control="control", seed=0)
    assert found is not None
    assert (found.after, found.trials, found.matters) == ("control", 24, True)


def test_four_trials_of_each_arm_are_enough_and_one_arm_alone_is_not() -> None:
    (trials,) = runs_of(1, 0.9, rounds=3)  # the control twice a round: 12 trials of three arms
    assert carry_over(trials, control="control", seed=0) is not None
    fewer = dataclasses.replace(trials, y=trials.y[1:], rounds=trials.rounds[1:], labels=trials.labels[1:])
    assert carry_over(fewer, control="control", seed=0) is None
    (many,) = runs_of(1, 0.9)

    def only(*names: str) -> ScopeTrials:
        kept = np.isin(many.labels, names)
        return dataclasses.replace(many, y=many.y[kept], rounds=many.rounds[kept], labels=many.labels[kept])

    assert carry_over(only("control", "A/A"), control="control", seed=0) is None
    assert carry_over(only("control", "hot"), control="control", seed=0) is not None
    assert carry_over(only(), control="control", seed=0) is None


def test_of_two_arms_the_mark_is_the_treatments() -> None:
    (trials,) = runs_of(1, 0.8)
    for name in ("hot", "aaa"):  # whatever the order of the names
        kept = np.isin(trials.labels, ["control", "hot"])
        labels = np.where(trials.labels[kept] == "hot", name, "control").astype(object)
        y = np.zeros(kept.sum())
        y[1:] = np.log(0.8) * (labels[:-1] == name)
        noise = np.random.default_rng(0).normal(0.0, 0.001, len(y))
        two = ScopeTrials(y=y + noise, rounds=trials.rounds[kept], labels=labels, prompts=None)
        found = carry_over(two, control="control", seed=0)
        assert found is not None
        assert (found.after, found.trials) == (name, 12)


def test_an_excluded_trial_leaves_its_heat_to_the_next_one() -> None:
    """A trial between two used ones counts, although its own value does not."""
    (trials,) = runs_of(1, 1.0)
    y = trials.y.copy()
    y[1:] += np.log(0.8) * (trials.labels[:-1] == "hot")
    used = trials.labels != "hot"
    rest = ScopeTrials(y=y[used], rounds=trials.rounds[used], labels=trials.labels[used], prompts=None)
    found = carry_over(rest, control="control", seed=0, ran=Ran.of(trials))
    assert found is not None
    assert (found.after, found.matters) == ("hot", True)
    unknown = carry_over(rest, control="control", seed=0)
    assert unknown is not None
    assert unknown.after != "hot"


def lasting(trials: ScopeTrials, *, size: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Each trial of the hot arm leaves heat to the next one, and half of that to the one after."""
    left, found = 0.0, np.zeros(len(trials.y))
    for place in range(1, len(found)):
        left = 0.5 * left + (size if trials.labels[place - 1] == "hot" else 0.0)
        found[place] = left
    return found


def test_many_trials_in_a_row_leave_the_sum_of_what_one_leaves() -> None:
    (trials,) = runs_of(1, 1.0, rounds=20)
    y = trials.y + lasting(trials, size=float(np.log(0.7)))
    found = carry_over(dataclasses.replace(trials, y=y), control="control", seed=0)
    assert found is not None
    assert 0.0 < found.decay < 1.0
    assert np.log(found.accumulated) == pytest.approx(np.log(found.ratio) / (1.0 - found.decay))
    assert dataclasses.replace(found, p_value=LEVEL).matters
    assert not dataclasses.replace(found, p_value=LEVEL * 1.01).matters


def test_prompts_of_unlike_speed_hide_no_carry_over() -> None:
    (trials,) = runs_of(1, 0.9, rounds=12)
    prompts = trials.rounds % 3
    unlike = dataclasses.replace(trials, y=trials.y + prompts * 2.0, prompts=prompts)
    found = carry_over(unlike, control="control", seed=0)
    assert found is not None
    assert (found.after, found.matters) == ("hot", True)
