"""Orders with balanced neighbours: squares, their draw, and a test that exchanges arms over whole squares only."""

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from orchestrator.audit import AuditResult, audit
from orchestrator.configuration.compose import make_plan
from orchestrator.effects import exchanges_of
from orchestrator.errors import InputError
from orchestrator.judging import judge
from orchestrator.schedule import (
    AA_LABEL,
    WILLIAMS_DISTRIBUTION,
    build_schedule,
    draw_williams,
    order_distribution,
    replay_seed,
    rounds_together,
    square_rounds,
)
from orchestrator.statistics.findings import Comparison
from orchestrator.statistics.observations import ALL, Usable, measured_rows
from tests.orchestrator.flat import FlatRun
from tests.orchestrator.plans import arm, plan


@pytest.mark.parametrize("entries", [2, 3, 4, 5, 6, 7])
def test_every_arm_follows_every_other_equally_often_and_has_every_place_equally_often(entries: int) -> None:
    arms = [f"a{number}" for number in range(entries)]
    rounds = square_rounds(entries)
    for square in range(3):
        orders = draw_williams(arms, 3 * rounds, seed=5)[square * rounds : (square + 1) * rounds]
        assert all(sorted(order) == sorted(arms) for order in orders)
        neighbours = Counter(pair for order in orders for pair in pairwise(order))
        assert len(neighbours) == entries * (entries - 1)
        assert len(set(neighbours.values())) == 1
        places = Counter((place, name) for order in orders for place, name in enumerate(order))
        assert len(set(places.values())) == 1


def test_the_draw_is_the_same_everywhere_and_fewer_rounds_are_a_prefix() -> None:
    assert draw_williams(["A", "B", "C", "D"], 4, 0) == draw_williams(["A", "B", "C", "D"], 9, 0)[:4]
    assert draw_williams(list("ABCDE"), 9, 1) != draw_williams(list("ABCDE"), 9, 2)
    with pytest.raises(ValueError, match="named twice"):
        draw_williams(["A", "A"], 2, 0)


def test_each_relabelling_of_a_square_is_as_likely() -> None:
    firsts = Counter(tuple(draw_williams(["A", "B", "C"], 1, seed)[0]) for seed in range(1200))
    assert len(firsts) == 6
    assert min(firsts.values()) > 150


def judged(frame: pd.DataFrame) -> AuditResult:
    return audit(frame, control="plain", metric="end_to_end_tps", together=square_rounds(3))


def run(effect: float, rounds: int, seed: int = 0) -> pd.DataFrame:
    prompts = {"p": "x"}
    effects = {"plain": 1.0, "other": effect}
    return FlatRun(effects=effects, rounds=rounds, prompts=prompts, noise=0.01, seed=seed, williams=True).frame()


def first(result: AuditResult) -> Comparison:
    return result.comparisons[0]


def test_six_squares_are_the_least() -> None:
    enough, few = first(judged(run(1.1, 36))), first(judged(run(1.1, 30)))
    assert (enough.verdict, enough.direction) == ("supported", "faster")
    assert enough.p_value == 2 / 2**6
    assert few.verdict == "underpowered"
    assert few.reasons[0].text == "5 Williams squares; a level of 0.05 needs 6"


def test_an_exchange_turns_all_rounds_of_a_square() -> None:
    frame = run(1.0, 36)
    used = Usable.read(measured_rows(frame, "end_to_end_tps")).trials(ALL)
    series = replace(used, together=6).pair("other", "plain")
    assert series is not None
    signs = exchanges_of(series, 0)
    assert signs.shape == (2**5, 36)
    assert (signs.reshape(-1, 6, 6) == signs.reshape(-1, 6, 6)[:, :, :1]).all()


@pytest.mark.nightly
def test_errors_are_as_rare_as_the_level() -> None:
    p = [first(judged(run(1.0, 36, seed))).p_value for seed in range(150)]
    assert np.mean([each is not None and each <= 0.05 for each in p]) <= 0.09


def test_a_plan_says_what_its_orders_were_drawn_from_and_is_judged_by_it() -> None:
    asked = plan(arm("plain"), arm("other"), rounds=36, order="williams")
    assert order_distribution(asked) == WILLIAMS_DISTRIBUTION
    assert rounds_together(asked) == 6
    assert replay_seed(asked) is None
    trials = [trial for trial in build_schedule(asked) if trial.round is not None]
    orders = draw_williams(["plain", "other", AA_LABEL], 36, asked.design.seed)
    assert [trial.label for trial in trials] == [label for order in orders for label in order]
    assert judge(run(1.1, 30), asked).comparisons[0].verdict == "underpowered"


BASE = ["checkpoint=simulated", "engine=simulated", "engine.effect=1,1.1", "workload=quick", "db.url=sqlite:///none.db"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["design.rounds=8"], "set design.rounds=36"),
        (["design.rounds=37"], "set design.rounds=42"),
        (["design.stop=early"], "set design.stop=full or design.order=random"),
    ],
)
def test_a_plan_of_broken_squares_is_refused_with_what_to_type(more: list[str], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        make_plan([*BASE, "design.order=williams", *more])


def test_without_a_number_of_rounds_a_plan_has_whole_squares() -> None:
    made = make_plan([*BASE, "design.order=williams"]).plan
    assert made.design.rounds % 6 == 0
    assert made.design.rounds >= 36
    assert any("squares of 6 rounds" in note for note in made.notes)


def test_the_square_of_one_entry_is_that_entry_in_every_round() -> None:
    assert draw_williams(["alone"], 3, 0) == [["alone"]] * 3
