import pytest

from orchestrator.statistics.judge_design import DesignJudgement, judge_design
from tests.orchestrator.shells import ENGINE, Shell, one_line


def test_a_design_is_judged_by_its_errors_power_coverage_and_width() -> None:
    steady, drifting = judge_design(
        ["none", "linear"], entries=3, rounds=8, alpha=0.05, effect=0.05, noise=0.01, size=-0.34, runs=600, seed=1
    )
    for one in (steady, drifting):
        assert 0.02 <= one.false_positives <= 0.07
        assert one.power >= 0.95
        assert 0.85 <= one.supported <= one.power
        assert 0.93 <= one.coverage <= 0.97
        assert one.half_width is not None
        assert 0.005 < one.half_width < 0.05


def test_several_treatments_are_judged_as_one_family() -> None:
    """Six null treatments at 5 % each would err in a quarter of the runs; the correction costs one of them power."""

    def judged(entries: int) -> DesignJudgement:
        (one,) = judge_design(
            ["linear"], entries=entries, rounds=8, alpha=0.05, effect=0.03, noise=0.01, size=-0.2, runs=250, seed=1
        )
        return one

    alone, of_six = judged(3), judged(8)
    assert of_six.false_positives <= 0.1
    assert of_six.power < alone.power - 0.03
    assert of_six.supported < alone.supported
    assert of_six.coverage == pytest.approx(alone.coverage, abs=0.05)  # of the pair's own interval


def test_a_margin_that_holds_the_effect_leaves_nothing_to_support() -> None:
    (one,) = judge_design(
        ["none"], entries=3, rounds=20, alpha=0.05, effect=0.03, noise=0.01, size=None, runs=60, seed=1, margin=0.1
    )
    assert one.power >= 0.95
    assert one.supported == 0.0


def test_too_few_rounds_find_nothing_and_leave_the_interval_open() -> None:
    (one,) = judge_design(["none"], entries=2, rounds=5, alpha=0.05, effect=0.5, noise=0.01, size=None, runs=60, seed=1)
    assert (one.false_positives, one.power, one.supported, one.half_width) == (0.0, 0.0, 0.0, None)


def test_the_command_judges_the_plans_own_design(shell: Shell) -> None:
    done = shell(
        "simulate",
        *ENGINE,
        "workload=quick",
        "engine.effect=1,1.1",
        "design.rounds=8",
        "--profile",
        "step",
        "--runs",
        "100",
    )
    assert "8 rounds of 3 entries" in done.stdout
    assert "step" in done.stdout
    assert "SIMULATED" in done.stdout
    assert "--effect=x" in one_line(shell("simulate", *ENGINE, "workload=quick", "--effect", "x", code=2))
