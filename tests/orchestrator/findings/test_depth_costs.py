"""The cost by depth: known lines and crossings are found, drift does not move them, and nothing is claimed beyond."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.findings.depth_costs import LEAST_PASSES, crossing, depth_curves, depth_of
from orchestrator.findings.records import Answer
from orchestrator.findings.values import DepthCurve
from tests.orchestrator.findings.making import answer

NOMINAL = (0, 4000, 16000, 32000)
DEPTHS = np.array(NOMINAL) / 1000
TOKENS = 40


def timed(
    arm: str, ms: float, *, depth: int, round_number: int, cached: int | None = None, used: bool = True
) -> Answer:
    """One answer whose tokens take `ms` each."""
    return answer(
        arm,
        prompt_class=f"depth {depth}",
        workload="depths",
        prompt_id=f"depths/{depth}",
        prompt_tokens=depth,
        cached_tokens=cached,
        completion_tokens=TOKENS,
        decode_tps=1000 / ms,
        ttft_s=1.0,
        round=round_number,
        measured=used,
    )


def answers(arm: str, a: float, b: float, *, passes: int = 6, drift: float = 0.0) -> list[Answer]:
    """Rounds of one depth each; the time per token is (a + b x depth) ms, in the last pass longer by `drift`."""
    return [
        timed(
            arm,
            (a + b * (depth + TOKENS / 2) / 1000) * (1 + drift * index / (passes - 1)),
            depth=depth,
            round_number=number,
        )
        for index in range(passes)
        for number, depth in enumerate(NOMINAL, start=index * len(NOMINAL))
    ]


def curves(*found: list[Answer]) -> dict[str, DepthCurve]:
    every = [each for part in found for each in part]
    made = depth_curves(["plain", "draft"], every, control="plain", alpha=0.05)
    return {curve.arm: curve for curve in made}


@given(st.floats(0.5, 100), st.floats(0, 5))
def test_a_line_is_found_exactly(a: float, b: float) -> None:
    curve = curves(answers("plain", a, b))["plain"]
    assert curve.a_ms is not None
    assert curve.b_us is not None
    assert curve.a_ms.value == pytest.approx(a)
    assert curve.b_us.value == pytest.approx(1000 * b, abs=1e-6)
    assert curve.residual == pytest.approx(0, abs=1e-9)
    assert curve.crossing is None  # with itself


@given(st.floats(1, 30), st.floats(-0.3, 0.8))
def test_a_crossing_is_found_where_it_is_whatever_the_machine_does(at: float, drift: float) -> None:
    plain, draft = answers("plain", 10, 0.1, drift=drift), answers("draft", 10 - 0.2 * at, 0.3, drift=drift)
    assume(10 - 0.2 * at > 0.5)
    found = curves(plain, draft)["draft"].crossing
    assert found is not None
    assert found.pays_first
    assert found.low <= 1000 * at + 1
    assert found.high >= 1000 * at - 1
    assert found.at_tokens is None or found.at_tokens == pytest.approx(1000 * at)


@given(
    st.lists(st.lists(st.floats(-5, 5), min_size=4, max_size=4), min_size=LEAST_PASSES, max_size=9),
    st.floats(0.1, 100),
)
def test_a_crossing_lies_within_the_measured_depths_and_scales_with_no_unit(
    rows: list[list[float]], factor: float
) -> None:
    differences = np.array(rows)
    found = crossing(differences, DEPTHS, scale=10, alpha=0.05)
    scaled = crossing(factor * differences, DEPTHS, scale=10 * factor, alpha=0.05)
    assert (found is None) == (scaled is None)
    if found is not None:
        assert NOMINAL[0] <= found.low <= (found.at_tokens or found.low) <= found.high <= NOMINAL[-1]


def test_an_engine_that_wins_until_it_breaks_gets_two_depths_and_no_line() -> None:
    kinked = [
        timed("draft", 8.0 if depth < 16000 else 60.0, depth=depth, round_number=number * 4 + place)
        for number in range(6)
        for place, depth in enumerate(NOMINAL)
    ]
    found = curves(answers("plain", 10, 0), kinked)["draft"]
    assert found.residual is not None
    assert found.residual > 0.05
    assert found.crossing is not None
    assert found.crossing.at_tokens is None
    assert (found.crossing.low, found.crossing.high) == pytest.approx((4020, 16020))


def test_other_workloads_have_no_curves() -> None:
    assert curves([answer("plain"), answer("plain", prompt_class="depth 9")]) == {}  # one depth is no curve


def test_too_few_rounds_and_excluded_ones_give_no_interval() -> None:
    few = curves(answers("plain", 10, 0.1, passes=LEAST_PASSES - 1), answers("draft", 5, 0.9, passes=LEAST_PASSES - 1))
    assert few["plain"].a_ms is None
    assert few["draft"].crossing is None
    assert few["plain"].points[0].decode_tps is not None
    assert few["plain"].points[0].decode_tps.low is None
    left_out = [timed("plain", 999.0, depth=0, round_number=90, used=False)]
    (curve,) = curves(answers("plain", 10, 0.1), left_out).values()
    assert curve.points[0].generations == 6


def test_rounds_that_one_arm_lacks_are_left_out_of_both() -> None:
    draft = [each for each in answers("draft", 8, 0.3) if each.round != 4]
    found = curves(answers("plain", 10, 0.1, drift=0.5), [*draft])["draft"]
    assert found.passes == 5


def test_cached_tokens_stay_unknown_or_are_stated() -> None:
    known = [timed("plain", 9, depth=depth, round_number=0, cached=cached) for depth, cached in ((0, 0), (4000, 3900))]
    (curve,) = curves(known).values()
    assert [point.cached_tokens for point in curve.points] == [0, 3900]
    assert curves(answers("plain", 9, 0))["plain"].points[0].cached_tokens is None


@pytest.mark.parametrize(("name", "depth"), [("depth 0", 0), ("depth 4096", 4096), ("deep 1", None), ("depth x", None)])
def test_a_class_names_its_depth(name: str, depth: int | None) -> None:
    assert depth_of(name) == depth
