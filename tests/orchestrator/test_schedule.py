"""The orders are those of this file on every machine, uniform, and the schedule holds what the plan asks for."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.plan import Arm, Design, Gate, Plan, Prompt
from orchestrator.schedule import (
    AA_LABEL,
    ORDER_DISTRIBUTION,
    attempt_order,
    build_schedule,
    draw_rounds,
    minimum_rounds,
    prompt_rounds,
    replay_seed,
    rounds_by_class,
)

PROMPTS = (("m1", "maths"), ("m2", "maths"), ("c1", "code"), ("c2", "code"), ("p1", "prose"))


def make_plan(arms: tuple[str, ...] = ("plain", "draft"), **design: Any) -> Plan:
    fields: dict[str, Any] = {
        "rounds": 8,
        "seed": 0,
        "metric": "end_to_end_tps",
        "alpha": 0.05,
        "margin": 0.02,
        "aa": True,
        "bracket": True,
        "interleave_by": "workload",
        "residency": "resident",
        "warmups": 1,
        "evidence": "require",
        "on_preflight_failure": "stop",
    }
    turn = ({"role": "user", "content": "Say something."},)
    return Plan(
        interlace_version="0",
        experiment="test",
        command=(),
        arms=tuple(Arm(name=name, checkpoint={}, engine={}, sampling={}, draft=None) for name in arms),
        control=arms[0],
        prompts=tuple(
            Prompt(id=id_, workload="five", prompt_class=class_, turns=(turn,), max_tokens=8) for id_, class_ in PROMPTS
        ),
        design=Design(**(fields | design)),
        gate=Gate(),
    )


def test_golden_orders() -> None:
    assert ORDER_DISTRIBUTION == "uniform-permutation/sha256-ctr-v1"
    assert draw_rounds(["A", "B", "C", "D"], 3, 0) == [list("ACDB"), list("CADB"), list("DCAB")]
    assert draw_rounds(["A", "B", "C", "D"], 3, 12345678901234567890) == [list("ABDC"), list("CBAD"), list("DBCA")]


def test_another_process_with_another_hash_seed_draws_the_same() -> None:
    code = "from orchestrator.schedule import draw_rounds; print(draw_rounds(['A','B','C','D'], 3, 0))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str([list("ACDB"), list("CADB"), list("DCAB")])


@given(st.lists(st.text(max_size=4), min_size=1, max_size=12, unique=True), st.integers(0, 20), st.integers())
def test_every_round_holds_every_arm_once_and_fewer_rounds_are_a_prefix(
    arms: list[str], rounds: int, seed: int
) -> None:
    drawn = draw_rounds(arms, rounds, seed)
    assert all(sorted(order) == sorted(arms) for order in drawn)
    assert draw_rounds(arms, rounds + 3, seed)[:rounds] == drawn


@pytest.mark.parametrize("arms", [2, 3, 4])
def test_orders_are_uniform(arms: int) -> None:
    names = [f"a{i}" for i in range(arms)]
    counts = Counter(tuple(order) for order in draw_rounds(names, 12_000, 5))
    possible = list(permutations(names))
    expected = 12_000 / len(possible)
    chi_squared = sum((counts[order] - expected) ** 2 / expected for order in possible)
    degrees = len(possible) - 1
    assert chi_squared < degrees + 4 * (2 * degrees) ** 0.5


def test_no_remainder_is_favoured(monkeypatch: pytest.MonkeyPatch) -> None:
    # 2**32 = 1 modulo 3, so the topmost word must be thrown away or 0 would be favoured.
    monkeypatch.setattr("orchestrator.schedule._words", lambda purpose, seed: iter([2**32 - 1, 2, 1]))
    assert draw_rounds(["A", "B", "C"], 1, 0) == [["A", "B", "C"]]


def test_rounds_differ_between_seeds_and_between_rounds() -> None:
    names = [f"a{i}" for i in range(8)]
    drawn = draw_rounds(names, 20, 1)
    assert len({tuple(order) for order in drawn}) == 20
    assert drawn != draw_rounds(names, 20, 2)


@pytest.mark.parametrize(("arms", "rounds", "words"), [([], 3, "no arms"), (["A", "A"], 3, "twice"), (["A"], -1, "-1")])
def test_impossible_requests_are_refused(arms: list[str], rounds: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        draw_rounds(arms, rounds, 0)


@pytest.mark.parametrize(("alpha", "rounds"), [(0.05, 6), (0.01, 8), (0.0625, 5), (0.5, 2), (0.001, 11)])
def test_minimum_rounds(alpha: float, rounds: int) -> None:
    assert minimum_rounds(alpha) == rounds


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, float("nan")])
def test_minimum_rounds_refuses_what_is_no_level(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha"):
        minimum_rounds(alpha)


def test_a_run_is_warm_ups_then_control_then_rounds_then_control() -> None:
    trials = build_schedule(make_plan(("plain", "draft", "other"), rounds=6, warmups=2))
    assert [t.sequence for t in trials] == list(range(len(trials)))
    kinds = [t.kind for t in trials]
    assert kinds == ["warmup"] * 6 + ["bracket"] + ["measured"] * 24 + ["bracket"]
    assert [t.arm for t in trials[:6]] == ["plain", "plain", "draft", "draft", "other", "other"]
    assert {t.prompt_ids for t in trials[:6]} == {("m1",)}
    first, last = trials[6], trials[-1]
    assert first.arm == last.arm == "plain"
    assert first.prompt_ids == last.prompt_ids == ("m1", "m2", "c1", "c2", "p1")
    assert first.seed == last.seed


def test_warm_ups_are_per_workload() -> None:
    plan = make_plan()
    plan = replace(plan, prompts=(*plan.prompts, replace(plan.prompts[0], id="long", workload="two_turns")))
    warmups = [t for t in build_schedule(plan) if t.kind == "warmup"]
    assert [(t.arm, t.prompt_ids) for t in warmups] == [
        ("plain", ("m1",)),
        ("plain", ("long",)),
        ("draft", ("m1",)),
        ("draft", ("long",)),
    ]


@given(
    arms=st.integers(1, 5),
    rounds=st.integers(0, 13),
    seed=st.integers(),
    aa=st.booleans(),
    by=st.sampled_from(["prompt", "workload"]),
)
def test_rounds_hold_the_control_twice_and_one_sampling_seed(
    arms: int, rounds: int, seed: int, aa: bool, by: str
) -> None:
    names = tuple(f"arm{i}" for i in range(arms))
    plan = make_plan(names, rounds=rounds, seed=seed, aa=aa, interleave_by=by)
    measured = [t for t in build_schedule(plan) if t.kind == "measured"]
    expected = sorted(names + ((AA_LABEL,) if aa else ()))
    for index in range(rounds):
        entries = [t for t in measured if t.round == index]
        assert sorted(t.label for t in entries) == expected
        assert [t.position for t in entries] == list(range(len(expected)))
        assert len({t.seed for t in entries}) == 1
        assert 0 <= entries[0].seed < 2**31
        assert len({t.prompt_ids for t in entries}) == 1
        assert all(t.is_aa == (t.label == AA_LABEL) for t in entries)
        assert all(t.arm == ("arm0" if t.is_aa else t.label) for t in entries)
    assert len(measured) == rounds * len(expected)


def test_by_prompt_deals_whole_passes_in_random_order() -> None:
    plan = make_plan(rounds=23, interleave_by="prompt")
    dealt = [prompt for (prompt,) in prompt_rounds(plan)]
    passes = [dealt[i : i + 5] for i in range(0, 23, 5)]
    assert all(sorted(p) == sorted(id_ for id_, _ in PROMPTS) for p in passes[:4])
    assert len(set(passes[4])) == 3
    assert len({tuple(p) for p in passes[:4]}) > 1


def test_rounds_by_class() -> None:
    assert rounds_by_class(make_plan(rounds=20, interleave_by="prompt")) == {"maths": 8, "code": 8, "prose": 4}
    assert rounds_by_class(make_plan(rounds=8)) == {"maths": 8, "code": 8, "prose": 8}


def test_only_rounds_run_when_the_design_demands_it() -> None:
    trials = build_schedule(make_plan(aa=False, bracket=False, warmups=0, rounds=6))
    assert [t.kind for t in trials] == ["measured"] * 12
    assert not any(t.is_aa for t in trials)


def test_a_plan_that_cannot_be_scheduled_is_refused() -> None:
    plan = make_plan()
    with pytest.raises(InputError, match="control=absent: no such arm"):
        build_schedule(replace(plan, control="absent"))
    with pytest.raises(InputError, match="rename it"):
        build_schedule(make_plan(("plain", AA_LABEL)))
    with pytest.raises(InputError, match="no prompts"):
        build_schedule(replace(plan, prompts=()))


def test_a_thousand_arms_and_a_hundred_rounds() -> None:
    plan = make_plan(tuple(f"arm{i}" for i in range(1000)), rounds=100)
    trials = build_schedule(plan)
    assert len(trials) == 1000 + 2 + 100 * 1001


def test_prompts_are_dealt_independently_of_the_arms_orders() -> None:
    """From a stream of their own: else the first prompt would always meet the arm that comes first."""
    same = 0
    for seed in range(120):
        plan = make_plan(seed=seed, interleave_by="prompt")
        plan = replace(plan, prompts=plan.prompts[:3])
        dealt = [plan.prompts.index(p) for (name,) in prompt_rounds(plan)[:3] for p in plan.prompts if p.id == name]
        order = draw_rounds(["plain", "draft", AA_LABEL], 1, seed)[0]
        same += dealt == [["plain", "draft", AA_LABEL].index(label) for label in order]
    assert 8 <= same <= 34  # a sixth of 120, give or take 3.4 standard errors


def test_a_first_attempt_keeps_its_order_and_each_later_one_has_an_order_of_its_own() -> None:
    plan = make_plan(tuple(f"arm{number}" for number in range(7)))
    trials = build_schedule(plan)
    first, second = ([trial for trial in trials if trial.round == number] for number in (0, 1))
    assert attempt_order(first, attempt=0, seed=0) == tuple(first)
    again = [attempt_order(first, attempt=attempt, seed=0) for attempt in (1, 2)]
    for each in again:
        assert [trial.position for trial in each] == list(range(8))
        assert sorted(trial.label for trial in each) == sorted(trial.label for trial in first)
    orders = [[trial.label for trial in each] for each in (first, *again)]
    assert len({tuple(order) for order in orders}) == 3
    # Neither another round nor another run is dealt alike.
    named = [replace(one, label=other.label) for one, other in zip(second, first, strict=True)]
    assert [trial.label for trial in attempt_order(named, attempt=1, seed=0)] != orders[1]
    assert [trial.label for trial in attempt_order(first, attempt=1, seed=1)] != orders[1]
    assert attempt_order(first, attempt=1, seed=0) == again[0]


def test_trials_outside_the_rounds_keep_their_place_in_every_attempt() -> None:
    warmups = [trial for trial in build_schedule(make_plan()) if trial.kind == "warmup"]
    assert attempt_order(warmups, attempt=3, seed=0) == tuple(warmups)


def test_replays_are_dealt_anew_but_in_squares() -> None:
    assert replay_seed(make_plan(seed=7)) == 7
    assert replay_seed(make_plan(seed=7, order="williams")) is None


def test_golden_order_of_more_arms_than_one_block_of_the_stream_has_words_for() -> None:
    (order,) = draw_rounds([f"{number:02}" for number in range(20)], 1, 0)
    assert " ".join(order) == "18 07 16 13 04 12 11 14 00 01 08 10 02 17 06 15 19 05 03 09"
