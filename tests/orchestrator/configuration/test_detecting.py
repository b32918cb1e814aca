import pytest

from orchestrator.configuration.compose import make_plan
from orchestrator.configuration.detecting import detects, effect_of, with_rounds_to_detect
from orchestrator.errors import InputError
from orchestrator.statistics.drift import Setting

QUIET = Setting(profile="linear", size=-0.02, noise=0.003)
NOISY = Setting(profile="linear", size=-0.3, noise=0.05)
BASE = ["engine=simulated", "workload=quick", "design.interleave_by=prompt", "engine.effect=1.0,1.1"]


def rounds(effect: str, noise: Setting | None) -> int:
    values, _ = with_rounds_to_detect(
        {"detect": effect, "rounds": None, "aa": True, "alpha": 0.05, "margin": 0.001}, arms=2, noise=lambda: noise
    )
    return int(values["rounds"])


@pytest.mark.parametrize(("text", "effect"), [("2%", 0.02), ("0.02", 0.02), ("100%", 1.0), ("0.5%", 0.005)])
def test_effects_as_people_write_them(text: str, effect: float) -> None:
    assert effect_of(text) == pytest.approx(effect)


@pytest.mark.parametrize("text", ["", "x", "0", "-2%", "200%", "nan"])
def test_what_is_no_effect_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"from 0\.1% to 100%"):
        effect_of(text)


def test_smaller_effects_and_noisier_machines_need_more_rounds() -> None:
    assert rounds("2%", QUIET) <= rounds("1%", QUIET)
    assert rounds("10%", QUIET) < rounds("10%", NOISY)


def test_detect_chooses_the_rounds_and_the_plan_reports_it() -> None:
    plan = make_plan([*BASE, "design.detect=3%"], noise_of=lambda url: QUIET).plan
    assert plan.design.rounds == rounds("3%", QUIET)
    (note,) = [note for note in plan.notes if "design.detect=3%" in note]
    assert f'{plan.design.rounds} rounds for the verdict "supported" in 80% of runs' in note
    assert "as in this host's last run" in note


def test_without_a_history_the_assumption_is_stated() -> None:
    plan = make_plan([*BASE, "design.detect=5%"]).plan
    assert any("assumed: no run on this host yet" in note for note in plan.notes)


def test_detect_and_rounds_exclude_each_other() -> None:
    with pytest.raises(InputError, match="set one of them"):
        make_plan([*BASE, "design.detect=5%", "design.rounds=8"])


def test_an_effect_out_of_reach_is_refused_before_the_night() -> None:
    with pytest.raises(InputError, match="more than 200 rounds"):
        make_plan([*BASE, "design.detect=0.1%"], noise_of=lambda url: NOISY)


def test_an_effect_within_the_margin_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r'"no difference"; set design\.margin=0\.005 or less'):
        make_plan([*BASE, "design.detect=1%"], noise_of=lambda url: QUIET)
    plan = make_plan([*BASE, "design.detect=1%", "design.margin=0.005"], noise_of=lambda url: QUIET).plan
    assert plan.design.rounds >= 6


def test_what_a_plan_can_find_in_words() -> None:
    few = detects(arms=3, aa=True, rounds=8, alpha=0.05, margin=0.02, noise=QUIET)
    assert few.startswith("effects of ")
    assert '(verdict "supported" in 80% of runs' in few
    assert detects(arms=3, aa=True, rounds=5, alpha=0.05, margin=0.02, noise=QUIET).startswith("no effect")
    assert detects(arms=1000, aa=True, rounds=100, alpha=0.05, margin=0.02, noise=None).startswith("not simulated")
