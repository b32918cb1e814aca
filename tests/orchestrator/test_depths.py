"""A run of `workload=depths` on the simulated engine: from the plan to the terminal and the pictures."""

import pytest

from db.query import run_query
from db.stored_queries import find_query
from orchestrator.configuration.workload import read_workload
from orchestrator.report.charts.theme import NARROW, WIDE, Layout
from orchestrator.report.drawing import svg_alone
from orchestrator.report.sections.depth import depth_sections
from tests.orchestrator.meanings import Told, run
from tests.orchestrator.plans import arm, plan

DEPTHS = [0, 2000, 8000, 16000]
WORKLOAD = {"name": "depths", "kind": "depths", "file": None, "max_tokens": 16, "depths": DEPTHS, "seed": 0}
HOT = {"drift": "linear", "drift_size": -0.34, "noise": 0.01}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The draft saves 2 ms per token, and costs 400 us more per 1,000 tokens: it pays up to 5,000 tokens."""
    arms = (arm("plain", depth_us=100.0, **HOT), arm("draft", decode_tps=125.0, depth_us=500.0, **HOT))
    prompts = read_workload(WORKLOAD).prompts
    planned = plan(*arms, prompts=prompts, rounds=32, bracket=False, metric="decode_tps")
    return run(planned, tmp_path_factory.mktemp("depths"))


def test_each_depth_is_judged_by_itself(told: Told) -> None:
    of_class = {one.prompt_class: one for one in told.result.comparisons if one.prompt_class}
    assert set(of_class) == {f"depth {depth}" for depth in DEPTHS}
    assert (of_class["depth 0"].verdict, of_class["depth 0"].direction) == ("supported", "faster")
    assert (of_class["depth 16000"].verdict, of_class["depth 16000"].direction) == ("supported", "slower")


def test_the_crossing_and_the_costs_are_those_of_the_engine(told: Told) -> None:
    plain, draft = told.findings.depths
    assert plain.crossing is None
    assert draft.crossing is not None
    assert draft.crossing.pays_first
    assert draft.crossing.low <= 5000 <= draft.crossing.high
    assert plain.b_us is not None
    assert draft.b_us is not None
    mean_slowdown = 1 / (1 - 0.34 / 2)
    assert draft.b_us.value / mean_slowdown == pytest.approx(500, rel=0.15)
    assert [point.cached_tokens for point in draft.points] == [0, 0, 0, 0]  # every trial reads its context anew


def test_a_stored_query_shows_each_depth(told: Told) -> None:
    url = told.database.url.render_as_string()
    found = run_query(url, find_query(url, "depths").sql, {"run": told.run_id})
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    assert [row["depth"] for row in rows] == [*DEPTHS, *DEPTHS]
    assert {row["cached_tokens"] for row in rows} == {0}
    assert rows[4]["decode_tps"] > 1.5 * rows[7]["decode_tps"]


def test_the_terminal_names_the_crossing(told: Told) -> None:
    text = " ".join(told.terminal(width=100).split())
    assert "Cost by depth" in text
    assert "draft is faster up to about" in text
    assert "then plain" in text


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_the_curves_are_drawn(told: Told, layout: Layout) -> None:
    (section,) = depth_sections(told.material)
    (picture,) = section.pictures
    drawn = svg_alone(picture.draw(layout))
    for words in ("time to the first token", "prefill rate", "decode rate", "draft", "plain"):
        assert words in drawn
