"""A cooldown is planned by simulating the heat that arms leave behind."""

import pytest

from orchestrator.statistics.drift import Setting
from orchestrator.statistics.heat_design import HeatJudgement, judge_heat
from tests.orchestrator.shells import ENGINE, Shell, one_line

RUNS = 20
LINEAR = Setting(profile="linear", size=-0.2, noise=0.01)


def judged(heat: float, *, decay: float, rounds: int = 20, order: str = "random") -> tuple[HeatJudgement, ...]:
    return judge_heat(
        LINEAR,
        heat={"plain": 0.0, "hot": heat},
        control="plain",
        aa=True,
        decay=decay,
        order=order,
        rounds=rounds,
        alpha=0.05,
        margin=0.02,
        runs=RUNS,
        seed=0,
        effect=0.05,
    )


def test_heat_makes_an_arm_seem_faster_and_a_cooldown_mends_it() -> None:
    first, *_, last = judged(0.2, decay=0.5)
    assert first.cooldown == 0
    assert first.bias > 0.008
    assert first.wrong > 0.5
    assert first.flagged > 0.8
    assert first.supported <= 0.05
    assert last.cooldown >= 1
    assert abs(last.bias) <= 0.005
    assert last.is_enough(alpha=0.05, margin=0.02, runs=RUNS)
    assert first.power <= 0.2  # heat that is found forbids every verdict
    assert last.power >= 0.6  # a true 5 % of the same arm


def test_without_heat_no_cooldown_is_asked_for() -> None:
    (only,) = judged(0.0, decay=0.8)
    assert only.cooldown == 0


def test_two_hot_arms_and_a_cold_one_are_judged_as_one_family() -> None:
    (first,) = judge_heat(
        LINEAR,
        heat={"plain": 0.0, "warm": 0.05, "hot": 0.1, "cold": 0.0},
        control="plain",
        aa=True,
        decay=0.8,
        order="random",
        rounds=12,
        alpha=0.05,
        margin=0.02,
        runs=30,
        seed=0,
        effect=0.05,
        cooldowns=(0.0,),
    )
    assert first.treatment == "hot"
    assert first.supported <= 0.1


@pytest.mark.parametrize("order", ["random", "williams"])
def test_a_run_too_short_for_any_verdict_supports_none(order: str) -> None:
    first, *_ = judged(0.0, decay=0.8, rounds=5 if order == "random" else 12, order=order)
    assert (first.supported, first.power, first.wrong) == (0.0, 0.0, 0.0)


def test_the_command_names_the_cooldown(shell: Shell) -> None:
    plan = (*ENGINE, "workload=quick", "engine.effect=1,1.1", "design.rounds=8")
    done = " ".join(shell("simulate", *plan, "--heat", "B=20%", "--decay", "0.3", "--runs", "50").stdout.split())
    assert "a cooldown of" in done
    assert "gate.cooldown_s" in done
    assert "finds +5.0%" in done
    assert "SIMULATED" in done
    assert "type ARM=SIZE" in one_line(shell("simulate", *plan, "--heat", "C=5%", code=2))
    assert "--heat B=x" in one_line(shell("simulate", *plan, "--heat", "B=x", code=2))
    assert "--decay=1" in one_line(shell("simulate", *plan, "--heat", "B=5%", "--decay", "1", code=2))
    two = one_line(shell("simulate", *plan, "--heat", "B=5%", "--profile", "step", "--profile", "none", code=2))
    assert "--heat takes one --profile" in two
