"""Which arm for what: scopes of workloads, and no winner where the parts disagree."""

import pandas as pd
import pytest

from orchestrator.audit import AuditResult, audit
from orchestrator.statistics.comparability import Asked, Scope
from orchestrator.statistics.directions import best_everywhere, parts_of
from orchestrator.statistics.findings import SPLIT, BestSet, Comparison
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
        # A class that is the whole of one workload is told once; turns are those of their workload.
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
    assert one.ratio > 1.2  # on the average it is faster, and that is not said
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
    best = [
        BestSet(prompt_class=None, turn=None, arms=("a", "b")),
        BestSet(prompt_class="code", turn=None, arms=("a",)),
        BestSet(prompt_class="prose", turn=None, arms=("b", "a")),
    ]
    assert [each.arms for each in best_everywhere(best, parts)] == [("a",), ("a",), ("b", "a")]


def test_workloads_that_share_a_class_are_judged_apart() -> None:
    runs = []
    for name, effect in (("short", 1.4), ("long", 0.1)):
        run = FlatRun(effects={"plain": 1.0, "spec": effect}, prompts={f"{name}/0": "code"}, rounds=8, seed=3)
        runs.append(run.frame().assign(workload=name))
    long = runs[1].assign(round=runs[1]["round"] + 8, sequence=runs[1]["sequence"] + int(runs[0]["sequence"].max()) + 1)
    result = audit(pd.concat([runs[0], long], ignore_index=True), control="plain", metric="end_to_end_tps")
    directions = {one.scope.words: one.direction for one in result.comparisons}
    assert directions == {"over all": None, "short": "faster", "long": "slower"}
