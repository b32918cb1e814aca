"""The predicted best verify width."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.findings import Interval, WidthCurve
from orchestrator.analysis.records import Answer, PassTimes, Step
from orchestrator.analysis.verification import Passes, verify_costs
from orchestrator.analysis.widths import best_width, width_curves
from tests.orchestrator.analysis.making import answer, arm, drafting, stepped

PLAIN_S = 0.010


def curve(
    accepted: list[int], *, engine: str, target: dict[int, float] | None, widths: dict[int, int], ratio: float = 1.1
) -> WidthCurve | None:
    """Arms of these widths and round times in us; each proposes all it can and accepts these numbers, cut to that."""
    arms = (arm(), *(drafting(f"w{w}", width=w, engine=engine) for w in widths))
    given: list[Answer] = [answer("plain", list(range(20)))]
    for width, took in widths.items():
        steps: list[Step] = [(width - 1, min(a, width - 1), min(a, width - 1) + 1) for a in accepted]
        given.append(stepped(f"w{width}", steps, round_us=[took] * len(steps)))
    timed = {name.name: PassTimes(arm=name.name, role="target", seconds=target or {}, source="timed") for name in arms}
    passes = Passes(target=timed if target else {}, draft={})
    measured: dict[tuple[str, str | None], Interval] = {
        (f"w{w}", None): Interval(ratio=ratio + w / 100, ci_low=None, ci_high=None, p_value=0.5, rounds=2)
        for w in widths
    }
    costs = verify_costs(arms, given, passes=passes, measured=measured)
    found = width_curves(arms, given, costs=costs, passes=passes, measured=measured)
    return found[0] if found else None


@given(st.dictionaries(st.integers(1, 30), st.floats(0.01, 20.0), min_size=1))
def test_the_best_width_is_the_largest_gain_and_the_narrowest_of_equals(predicted: dict[int, float]) -> None:
    best = best_width(predicted)
    assert all(
        predicted[best] > value or (predicted[best] == value and best <= width) for width, value in predicted.items()
    )


@given(
    st.lists(st.integers(0, 7), min_size=6, max_size=40),
    st.lists(st.floats(0.005, 0.05), min_size=8, max_size=8),
)
def test_the_prediction_by_passes_is_that_of_brute_force(accepted: list[int], passes: list[float]) -> None:
    """An engine that copies: every width's cost is its pass, its gain the mean of what it would have committed."""
    target = {width: seconds for width, seconds in enumerate(passes, start=1)}
    found = curve(accepted, engine="prompt_lookup", target=target, widths={8: 30_000})
    assert found is not None
    brute = {
        width: sum(min(a, width - 1) + 1 for a in accepted) / len(accepted) / (target[width] / target[1])
        for width in target
    }
    assert {point.width: point.predicted for point in found.points} == pytest.approx(brute)
    assert found.best.value is not None
    assert brute[int(found.best.value)] == pytest.approx(max(brute.values()))
    assert found.at_edge == (found.best.value == 8)


def test_without_timed_passes_whole_rounds_are_interpolated_between_the_widths_that_ran() -> None:
    found = curve([1, 2, 3, 3, 0, 3], engine="dflash", target=None, widths={2: 15_000, 4: 25_000})
    assert found is not None
    assert [point.width for point in found.points] == [1, 2, 3, 4]
    assert [point.round_cost for point in found.points] == pytest.approx([1.0, 1.5, 2.0, 2.5])
    assert [point.interpolated for point in found.points] == [False, False, True, False]
    assert [point.arm for point in found.points] == [None, "w2", None, "w4"]
    assert found.points[2].measured is None
    assert found.best_measured == 4
    assert (found.best.value, found.at_edge) == (3.0, False)  # 2.5 tokens for 2 steps
    gains = [1.0, 1 + 5 / 6, 1 + 5 / 6 + 4 / 6, 1 + 5 / 6 + 4 / 6 + 3 / 6]
    assert [point.accept_length for point in found.points] == pytest.approx(gains)


def test_wider_rounds_than_were_timed_count_more_than_timed_passes() -> None:
    """A short run's probes had no time for the widest: its rounds ran nevertheless."""
    target = {1: 0.010, 2: 0.013}
    found = curve([3] * 6, engine="mlx_lm_draft", target=target, widths={2: 15_000, 4: 25_000})
    assert found is not None
    assert [point.width for point in found.points] == [1, 2, 3, 4]
    assert [point.round_cost for point in found.points] == pytest.approx([1.0, 1.5, 2.0, 2.5])
    assert "whole rounds" in found.source


def test_rounds_that_an_answers_end_cut_short_do_not_make_a_width_cheap() -> None:
    """Of each answer the last round proposes one token only, and takes less."""
    arms = (arm(), drafting("w4", width=4, engine="dflash"))
    steps: list[Step] = [(3, 3, 4), (3, 3, 4), (1, 1, 2)]
    given = [answer("plain", list(range(20)))]
    given += [stepped("w4", steps, round_us=[25_000, 25_000, 12_000]) for _ in range(3)]
    costs = verify_costs(arms, given, passes=Passes(target={}, draft={}), measured={})
    (found,) = width_curves(arms, given, costs=costs, passes=Passes(target={}, draft={}), measured={})
    at = {point.width: point for point in found.points}
    assert at[4].round_cost == pytest.approx(2.5)
    assert at[4].accept_length == pytest.approx(4.0)


def test_a_drafter_costs_by_the_token_or_by_the_block() -> None:
    target = {1: 0.010, 4: 0.010}
    by_token = curve([3] * 6, engine="mlx_lm_draft", target=target, widths={4: 16_000})
    by_block = curve([3] * 6, engine="dflash", target=target, widths={4: 16_000})
    assert by_token is not None
    assert by_block is not None
    assert [point.draft_cost for point in by_token.points] == pytest.approx([0.0, 0.2, 0.4, 0.6])
    assert [point.draft_cost for point in by_block.points] == pytest.approx([0.0, 0.6, 0.6, 0.6])


def test_one_width_without_passes_leaves_nothing_to_choose() -> None:
    found = curve([3] * 6, engine="dflash", target=None, widths={4: 16_000})
    assert found is not None
    assert found.best.value is None
    assert "fewer than two widths" in found.best.source
    assert not found.at_edge


def test_no_width_that_ran_beats_plain_decoding() -> None:
    found = curve([0] * 6, engine="dflash", target=None, widths={2: 15_000, 4: 25_000}, ratio=0.5)
    assert found is not None
    assert (found.best.value, found.best_measured) == (1.0, 1)
    assert found.points[-1].accept_length == 1.0
