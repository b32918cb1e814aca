from dataclasses import replace
from typing import Any

from orchestrator.configuration.compose import make_plan
from orchestrator.plan import Arm
from orchestrator.statistics.factors import two_factors
from tests.orchestrator.plans import arm


def cells(*arms: Arm) -> dict[str, tuple[str, str]] | None:
    table = two_factors(arms, control=arms[0].name)
    return None if table is None else dict(table.levels)


def grid(**sides: list[Any]) -> list[Arm]:
    (first, firsts), (second, seconds) = sides.items()
    return [arm(f"{a}/{b}", **{first: a, second: b}) for a in firsts for b in seconds]


def test_a_full_table_of_two_settings() -> None:
    assert cells(*grid(effect=[1, 2], noise=[0.1, 0.2, 0.3])) == {
        f"{a}/{b}": (str(a), str(b)) for a in (1, 2) for b in (0.1, 0.2, 0.3)
    }


def test_the_base_is_the_controls_cell() -> None:
    arms = grid(effect=[1, 2], noise=[0.1, 0.2])
    table = two_factors(arms, control="2/0.1")
    assert table is not None
    assert (table.first, table.second, table.base) == ("engine.effect", "engine.noise", ("2", "0.1"))


def test_one_factor_three_factors_and_holes_are_no_table() -> None:
    assert cells(arm("a", effect=1), arm("b", effect=2)) is None
    assert cells(*grid(effect=[1, 2], noise=[0.1, 0.2])[:3]) is None
    three = [arm(f"{a}{b}{c}", effect=a, noise=b, drift_size=c) for a in (1, 2) for b in (0.1, 0.2) for c in (0.3, 0.4)]
    assert cells(*three) is None


def test_settings_that_go_together_are_one_factor() -> None:
    """An engine brings its settings: they are not factors of their own."""
    plain, draft = arm("p"), arm("d", block_size=4, acceptance=0.5)
    arms = [
        replace(each, name=f"{each.name}{bits}", checkpoint=each.checkpoint | {"name": f"m-{bits}", "bits": bits})
        for each in (plain, draft)
        for bits in (8, 4)
    ]
    table = two_factors(arms, control="p8")
    assert table is not None
    assert table.first == "checkpoint"
    assert table.base[0] == "m-8"


def test_the_shipped_sweep_is_a_table() -> None:
    plan = make_plan(["sweep=quantisation_x_speculation"]).plan
    table = two_factors(plan.arms, control=plan.control)
    assert table is not None
    assert (table.first, table.second) == ("checkpoint", "engine")
    assert table.base == ("smollm2-8bit", "mlx_lm")
