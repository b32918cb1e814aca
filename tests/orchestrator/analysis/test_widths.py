"""The predicted best verify width."""

from collections.abc import Sequence

import numpy as np
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
    st.lists(st.none() | st.integers(0, 7), min_size=6, max_size=40),
    st.lists(st.floats(0.005, 0.05), min_size=8, max_size=8),
)
def test_the_prediction_by_passes_is_that_of_brute_force(found_at: list[int | None], passes: list[float]) -> None:
    """An engine that copies. None: it finds nothing there, whatever the width, and takes a plain step; else so many of
    seven proposals are right. Every width's cost is its passes, its gain the mean of what it would have committed.
    """
    target = {width: seconds for width, seconds in enumerate(passes, start=1)}

    def round_of(found: int | None, width: int) -> tuple[Step, float]:
        if found is None:
            return (0, 0, 1), target[1]
        right = min(found, width - 1)
        return (width - 1, right, right + 1), target[width]

    ran = [round_of(found, 8) for found in found_at]
    lookup = lookup_curve([step for step, _ in ran], target, round_us=[s / target[1] * 10_000 for _, s in ran])
    if all(found is None for found in found_at):
        assert lookup is None
        return
    assert lookup is not None
    brute = {}
    for width in target:
        rounds = [round_of(found, width) for found in found_at]
        brute[width] = sum(step[2] for step, _ in rounds) / (sum(s for _, s in rounds) / target[1])
    brute[1] = 1.0
    assert {point.width: point.predicted for point in lookup.points} == pytest.approx(brute)
    assert lookup.best.value is not None
    assert brute[int(lookup.best.value)] == pytest.approx(max(brute.values()))
    assert lookup.at_edge == (lookup.best.value == 8)


def lookup_curve(
    steps: list[Step], target: dict[int, float], *, round_us: Sequence[float], width: int = 8
) -> WidthCurve | None:
    """Of one arm that copies with this width."""
    arms = (arm(), drafting("lookup", engine="prompt_lookup", draft=None, width=width))
    given = [answer("plain", list(range(20))), stepped("lookup", steps, round_us=[round(us) for us in round_us])]
    passes = Passes(target={"lookup": PassTimes(arm="plain", role="target", seconds=target, source="timed")}, draft={})
    costs = verify_costs(arms, given, passes=passes, measured={})
    found = width_curves(arms, given, costs=costs, passes=passes, measured={})
    return found[0] if found else None


def simulated(luck: np.random.Generator, *, width: int, answers: int, tokens: int) -> list[Answer]:
    """Answers of a lookup that finds nothing in 7 of 10 rounds, and of whose proposals 85 % are right; passes take 1,
    1.1, 1.2 ... plain steps. The end of an answer cuts what is proposed, as it does in mlx-dspark.
    """
    given = []
    for _ in range(answers):
        steps: list[Step] = []
        took = []
        left = tokens - 1
        while left:
            drafted = min(width - 1, left) if luck.random() < 0.3 else 0
            accepted = min(int(luck.geometric(0.15)) - 1, drafted)
            committed = min(accepted + 1, left)
            steps.append((drafted, accepted, committed))
            took.append(10_000 + 1_000 * drafted)
            left -= committed
        given.append(stepped(f"w{width}", steps, round_us=took))
    return given


@pytest.mark.parametrize("seed", [1, 2])
def test_a_lookup_runs_at_other_widths_as_was_predicted(seed: int) -> None:
    """Predicted from short answers at width 9 and from long ones at 9 and 3; then run at each width."""
    luck = np.random.default_rng(seed)
    plain = answer("plain", list(range(20)))
    target = {width: 0.010 + 0.001 * (width - 1) for width in range(1, 10)}
    arms = (arm(), *(drafting(f"w{width}", width=width, engine="prompt_lookup", draft=None) for width in (3, 9)))
    short = [plain, *simulated(luck, width=9, answers=400, tokens=16)]
    long = [plain, *(simulated(luck, width=width, answers=1, tokens=8_000)[0] for width in (3, 9))]
    timed = {name.name: PassTimes(arm="plain", role="target", seconds=target, source="timed") for name in arms}
    truth = {}
    for width in range(2, 10):
        (one,) = simulated(luck, width=width, answers=1, tokens=20_000)
        stamps = one.stamps_us or ()
        truth[width] = (len(stamps) - 1) / ((stamps[-1] - stamps[0]) / 10_000)
    for ran, known, widths in ((short, timed, range(2, 10)), (long, timed, range(2, 10)), (long, {}, range(3, 10))):
        passes = Passes(target=known, draft={})
        costs = verify_costs(arms, ran, passes=passes, measured={})
        (found,) = width_curves(arms, ran, costs=costs, passes=passes, measured={})
        predicted = {point.width: point.predicted for point in found.points if point.width > 1}
        assert predicted == pytest.approx({width: truth[width] for width in widths}, rel=0.06)


def test_what_a_copy_beyond_the_width_yields_is_no_widths_merit() -> None:
    """mlx-dspark copies long matches whole, whatever width is set: here 16 of 16 tokens, in every fifth round."""
    target = {1: 0.010, 4: 0.013, 17: 0.026}
    steps: list[Step] = [(3, 1, 2)] * 4 + [(16, 16, 17)]
    found = lookup_curve(steps * 2, target, round_us=([13_000] * 4 + [26_000]) * 2, width=4)
    assert found is not None
    assert [point.width for point in found.points] == [1, 2, 3, 4]  # nobody set a wider one
    at = {point.width: point for point in found.points}
    assert at[4].accept_length == pytest.approx((4 * 2 + 17) / 5)
    assert at[4].round_cost == pytest.approx((4 * 1.3 + 2.6) / 5)
    assert at[2].round_cost == pytest.approx((4 * 1.1 + 2.6) / 5)
    assert at[2].predicted == pytest.approx((4 * 2 + 17) / (4 * 1.1 + 2.6))
    untimed = lookup_curve(steps * 2, {1: 0.010, 4: 0.013}, round_us=([13_000] * 4 + [26_000]) * 2, width=4)
    assert untimed is not None
    assert [(point.width, point.verify_cost) for point in untimed.points] == [(1, 1.0), (4, None)]
    assert untimed.points[1].round_cost == pytest.approx((4 * 1.3 + 2.6) / 5)


def test_passes_that_outlast_the_rounds_make_no_curve() -> None:
    """A round of 3 takes 1.1 plain steps, and its verification alone 3: the drafter would be paid for drafting."""
    target = {1: 0.010, 2: 0.030, 8: 0.040}
    found = curve([3] * 6, engine="mlx_lm_draft", target=target, widths={2: 11_000, 8: 20_000})
    assert found is not None
    assert "whole rounds" in found.source
    assert all(point.draft_cost is None for point in found.points[1:])
    assert [found.points[place].round_cost for place in (1, -1)] == pytest.approx([1.1, 2.0])
    assert all(point.predicted > 0 for point in found.points)
    alone = curve([3] * 6, engine="mlx_lm_draft", target=target, widths={8: 20_000})
    assert alone is not None
    assert alone.best.value is None
    assert "outlast the rounds" in alone.best.source


@pytest.mark.parametrize("engine", ["prompt_lookup", "mlx_lm_draft"])
def test_one_arm_whose_rounds_were_shorter_than_their_passes_spoils_them_for_its_family(engine: str) -> None:
    """Of width 2 the pass takes twice the round, of width 8 it fits."""
    target = {1: 0.010, 2: 0.024, 8: 0.045}
    found = curve([3] * 6, engine=engine, target=target, widths={2: 12_000, 8: 50_000})
    assert found is not None
    assert "whole rounds" in found.source
    assert [found.points[place].round_cost for place in (1, -1)] == pytest.approx([1.2, 5.0])


def test_a_drafting_pass_costs_the_same_where_an_answers_end_leaves_less_to_propose() -> None:
    """One pass takes a tenth of a plain step; the last round proposes one token only."""
    arms = (arm(), drafting("w4", width=4))
    steps: list[Step] = [(3, 1, 2), (3, 3, 4), (1, 1, 1)]
    given = [answer("plain", list(range(20)))]
    given += [stepped("w4", steps, round_us=[18_000, 18_000, 12_000]) for _ in range(3)]
    passes = Passes(
        target={"w4": PassTimes(arm="plain", role="target", seconds={1: 0.010, 4: 0.015}, source="timed")},
        draft={"w4": PassTimes(arm="w4", role="draft", seconds={1: 0.001}, source="timed")},
    )
    costs = verify_costs(arms, given, passes=passes, measured={})
    (found,) = width_curves(arms, given, costs=costs, passes=passes, measured={})
    assert [point.draft_cost for point in found.points] == pytest.approx([0.0, 0.1, 0.2, 0.3])


def test_the_curve_says_whether_the_drafter_was_timed() -> None:
    arms = (arm(), drafting("w4", width=4, engine="dflash"))
    given = [answer("plain", list(range(20))), stepped("w4", [(3, 2, 3)] * 6, round_us=[20_000] * 6)]
    target = {"w4": PassTimes(arm="plain", role="target", seconds={1: 0.010, 4: 0.015}, source="timed")}
    for draft, share, words in (({16: 0.002}, 0.2, "the drafter's pass"), ({}, 0.5, "what they leave of the rounds")):
        drafted = {"w4": PassTimes(arm="w4", role="draft", seconds=draft, source="timed")} if draft else {}
        passes = Passes(target=target, draft=drafted)
        costs = verify_costs(arms, given, passes=passes, measured={})
        (found,) = width_curves(arms, given, costs=costs, passes=passes, measured={})
        assert [point.draft_cost for point in found.points] == pytest.approx([0.0, share, share, share])
        assert words in found.source


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
