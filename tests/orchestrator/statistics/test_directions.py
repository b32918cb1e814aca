"""Best arm by use: scopes of workloads, and no winner where the parts disagree."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from orchestrator.audit import AuditResult, audit
from orchestrator.effects import Series
from orchestrator.estimation.inversion import Floats
from orchestrator.statistics.comparability import Asked, Scope
from orchestrator.statistics.directions import Compared, best_everywhere, parts_of
from orchestrator.statistics.family import Standing, step_down
from orchestrator.statistics.findings import SPLIT, Comparison
from orchestrator.statistics.observations import scopes_of
from tests.orchestrator.flat import FlatRun


def frame_of(*cells: tuple[str, str, int]) -> pd.DataFrame:
    return pd.DataFrame(cells, columns=["workload", "prompt_class", "turn"]).astype(
        {"workload": "string", "prompt_class": "string", "turn": "Int64"}
    )


QUICK = [("quick", name, 0) for name in ("code", "maths", "prose")]
LONG = [("two_turns", "long", turn) for turn in (0, 1)]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (QUICK, ["over all", "code", "maths", "prose"]),
        (LONG, ["over all", "turn 1", "turn 2"]),
        # A class that is the whole of one workload is reported once; turns are those of their workload.
        (
            [*QUICK, *LONG],
            ["over all", "quick", "two_turns", "code", "maths", "prose", "two_turns, turn 1", "two_turns, turn 2"],
        ),
        # A class that two workloads share is no workload.
        ([*QUICK, ("five", "code", 0)], ["over all", "quick", "five", "code", "maths", "prose"]),
        ([("a", "x", 0), ("b", "x", 0)], ["over all", "a", "b"]),
        ([("a", "x", 0)], ["over all"]),
    ],
)
def test_scopes(cells: list[tuple[str, str, int]], expected: list[str]) -> None:
    assert [scope.words for scope in scopes_of(frame_of(*cells))] == expected


def test_parts_are_the_scopes_that_lie_within() -> None:
    rows = frame_of(*QUICK, *LONG)
    parts = parts_of(scopes_of(rows), Asked.read(rows))
    assert len(parts[Scope()]) == 7
    assert parts[Scope(workload="quick")] == tuple(Scope(prompt_class=name) for name in ("code", "maths", "prose"))
    assert parts[Scope(workload="two_turns")] == tuple(Scope(workload="two_turns", turn=turn) for turn in (0, 1))
    assert parts[Scope(prompt_class="code")] == ()


def judged(code: float, prose: float) -> AuditResult:
    run = FlatRun(
        effects={"plain": 1.0, "spec": {"code": code, "prose": prose, "maths": 1.0}},
        prompts={"c1": "code", "p1": "prose"},
        rounds=8,
    )
    return audit(run.frame(), control="plain", metric="end_to_end_tps")


def over_all(result: AuditResult) -> Comparison:
    (one,) = (one for one in result.comparisons if one.over_all)
    return one


def test_an_arm_that_wins_one_class_and_loses_another_is_no_winner() -> None:
    result = judged(code=2.4, prose=0.7)
    one = over_all(result)
    assert one.verdict == "supported"
    assert one.ratio is not None
    assert one.ratio > 1.2  # on average it is faster, and that is not said
    assert one.direction is None
    assert one.split is not None
    assert one.split.text.startswith("no overall winner: faster for code (2.39")
    assert "slower for prose (0.69" in one.split.text
    assert result.summary.startswith("spec against plain: no overall winner: faster for code")
    assert ", faster" not in result.summary
    by_class = {each.prompt_class: each.direction for each in result.comparisons}
    assert by_class == {None: None, "code": "faster", "prose": "slower"}
    assert {each.prompt_class: each.arms for each in result.best} == {None: (), "code": ("spec",), "prose": ("plain",)}


def test_arms_that_agree_everywhere_keep_their_winner() -> None:
    result = judged(code=2.4, prose=1.3)
    assert over_all(result).direction == "faster"
    assert over_all(result).split is None
    assert result.best[0].arms == ("spec",)


def test_a_small_part_that_goes_the_other_way_is_enough() -> None:
    one = over_all(judged(code=1.1, prose=0.4))
    assert one.split is not None
    assert SPLIT in {reason.code for reason in one.reasons}


def test_the_best_on_the_average_alone_is_not_the_best() -> None:
    scopes = [Scope(), Scope(prompt_class="code"), Scope(prompt_class="prose")]
    parts = {scopes[0]: (scopes[1], scopes[2]), scopes[1]: (), scopes[2]: ()}
    standings = {
        scopes[0]: Standing(best="a", others=("b",), series=against("a", b=-0.001)),
        scopes[1]: Standing(best="a", others=("b",), series=against("a", b=-0.5)),
        scopes[2]: Standing(best="b", others=("a",), series=against("b", a=-0.001)),
    }
    found = best_everywhere(standings, parts, alpha=0.05, family=family)
    assert [each.arms for each in found] == [("a",), ("a",), ("b", "a")]


@pytest.mark.parametrize("rounds", [8, 20])
def test_the_parts_of_a_whole_share_its_level(rounds: int) -> None:
    """Over six classes two equal arms both stay among the best; an arm that is slower in one of them does not."""
    whole, *classes = [Scope(), *(Scope(prompt_class=str(number)) for number in range(6))]
    parts = {whole: tuple(classes)} | {scope: () for scope in classes}
    kept, worse_kept = 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        standings = {}
        for scope in (whole, *classes):
            gap = rng.normal(0.0, 0.01, rounds)
            best, other = ("a", "b") if gap.mean() < 0 else ("b", "a")
            standings[scope] = Standing(best=best, others=(other,), series={other: series(-abs_signed(gap))})
        kept += len(best_everywhere(standings, parts, alpha=0.05, family=family)[0].arms) == 2
        slow = Standing(best="a", others=("b",), series={"b": series(rng.normal(-0.2, 0.01, rounds))})
        worse = best_everywhere(standings | {classes[3]: slow}, parts, alpha=0.05, family=family)[0].arms
        worse_kept += "b" in worse
    assert kept >= 54
    assert worse_kept == 0


def abs_signed(gap: Floats) -> Floats:
    """The gaps turned so that their mean is above 0."""
    return gap if gap.mean() > 0 else -gap


def series(contrasts: Floats) -> Series:
    rounds = len(contrasts)
    return Series(
        contrasts=contrasts,
        raw=contrasts,
        weights=np.full(rounds, 1 / rounds),
        strata=np.zeros(rounds, dtype=np.intp),
        numbers=np.arange(rounds),
    )


def against(best: str, **others: float) -> dict[str, Series]:
    """Each arm's contrasts with the best, of ten rounds with a little noise."""
    noise = 0.01 * np.array([1, -1, 0.5, -0.5, 0.2, -0.2, 0.8, -0.8, 0.1, -0.1])
    assert best not in others
    return {arm: series(mean + noise) for arm, mean in others.items()}


def family(compared: Mapping[Compared, Series]) -> Mapping[Compared, float]:
    return step_down(compared, alpha=0.05, seed=0)


def test_workloads_that_share_a_class_are_judged_apart() -> None:
    runs = []
    for seed, (name, effect) in enumerate((("short", 1.4), ("long", 0.1))):
        run = FlatRun(effects={"plain": 1.0, "spec": effect}, prompts={f"{name}/0": "code"}, rounds=8, seed=seed)
        runs.append(run.frame().assign(workload=name))
    long = runs[1].assign(round=runs[1]["round"] + 8, sequence=runs[1]["sequence"] + int(runs[0]["sequence"].max()) + 1)
    result = audit(pd.concat([runs[0], long], ignore_index=True), control="plain", metric="end_to_end_tps")
    directions = {one.scope.words: one.direction for one in result.comparisons}
    assert directions == {"over all": None, "short": "faster", "long": "slower"}
