"""The predicted best verify width."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.findings.records import Answer, PassTimes, Step
from orchestrator.findings.values import Interval, WidthCurve
from orchestrator.findings.verification import Passes, verify_costs
from orchestrator.findings.widths import best_width, width_curves
from tests.orchestrator.findings.making import answer, arm, decoded, drafting, stepped

PLAIN_S = 0.010


def curve(
    right: list[int], *, engine: str, target: dict[int, float] | None, widths: dict[int, int], ratio: float = 1.1
) -> WidthCurve | None:
    """Arms of these widths and round times in us, along one text: so many tokens that the draft has right, then a wrong
    one, and so on.
    """
    marks = [mark for number in right for mark in [True] * number + [False]]
    arms = (arm(), *(drafting(f"w{w}", width=w, engine=engine) for w in widths))
    given: list[Answer] = [answer("plain", list(range(20)))]
    for width, took in widths.items():
        steps = decoded(marks, width)
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
    st.lists(st.none() | st.integers(0, 6), min_size=6, max_size=40),
    st.lists(st.floats(0.005, 0.05), min_size=8, max_size=8),
)
def test_the_prediction_by_passes_is_that_of_brute_force(found_at: list[int | None], passes: list[float]) -> None:
    """An engine that copies. None: it finds nothing there, whatever the width, and takes a plain step; else so many of
    seven proposals are right. A narrower width takes as many rounds for the same tokens as it needs.
    """
    target = {width: seconds for width, seconds in enumerate(passes, start=1)}

    def rounds_of(found: int | None, width: int) -> tuple[list[Step], float]:
        if found is None:
            return [(0, 0, 1)], target[1]
        whole, rest = divmod(found + 1, width)
        steps: list[Step] = [(width - 1, width - 1, width)] * whole + [(width - 1, rest - 1, rest)] * (rest > 0)
        return steps, target[width] * len(steps)

    ran = [step for found in found_at for step in rounds_of(found, 8)[0]]
    took = [target[step[0] + 1] / target[1] * 10_000 for step in ran]
    lookup = lookup_curve(ran, target, round_us=took)
    if all(found is None for found in found_at):
        assert lookup is None
        return
    assert lookup is not None
    brute = {1: 1.0}
    for width in range(2, 9):
        rounds = [rounds_of(found, width) for found in found_at]
        tokens = sum(step[2] for steps, _ in rounds for step in steps)
        brute[width] = tokens / (sum(seconds for _, seconds in rounds) / target[1])
    assert {point.width: point.predicted for point in lookup.points} == pytest.approx(brute)
    assert lookup.best.value is not None
    assert brute[int(lookup.best.value)] == pytest.approx(max(brute.values()))
    assert lookup.at_edge == (lookup.best.value == 8)


def lookup_curve(
    steps: list[Step], target: dict[int, float], *, round_us: Sequence[float], width: int = 8
) -> WidthCurve | None:
    """Return the rounds of one arm that copies with this width."""
    arms = (arm(), drafting("lookup", engine="prompt_lookup", draft=None, width=width))
    given = [answer("plain", list(range(20))), stepped("lookup", steps, round_us=[round(us) for us in round_us])]
    passes = Passes(target={"lookup": PassTimes(arm="plain", role="target", seconds=target, source="timed")}, draft={})
    costs = verify_costs(arms, given, passes=passes, measured={})
    found = width_curves(arms, given, costs=costs, passes=passes, measured={})
    return found[0] if found else None


def stretches(luck: np.random.Generator, *, easy: float, hard: float, length: int, tokens: int) -> list[bool]:
    """Mark the tokens at which the draft is right: in alternating easy and hard stretches of this mean length."""
    marks: list[bool] = []
    chance = easy
    while len(marks) < tokens:
        marks += (luck.random(int(luck.geometric(1 / length))) < chance).tolist()
        chance = hard if chance == easy else easy
    return marks[:tokens]


def along(marks: Sequence[bool], *, widths: Sequence[int], answers: int, drafter: str = "dflash") -> WidthCurve:
    """Arms of these widths along this text, in so many answers; a pass costs 5 % of a step more per token."""
    arms = (arm(), *(drafting(f"w{w}", width=w, engine=drafter, draft=None) for w in widths))
    given = [answer("plain", list(range(20)))]
    each = len(marks) // answers
    for width in widths:
        for place in range(answers):
            steps = decoded(marks[place * each : (place + 1) * each], width)
            given.append(stepped(f"w{width}", steps, round_us=[10_000 + 500 * step[0] for step in steps]))
    target = {width: 0.010 + 0.0005 * (width - 1) for width in range(1, 33)}
    timed = {one.name: PassTimes(arm="plain", role="target", seconds=target, source="timed") for one in arms}
    passes = Passes(target=timed, draft={})
    costs = verify_costs(arms, given, passes=passes, measured={})
    (found,) = width_curves(arms, given, costs=costs, passes=passes, measured={})
    return found


@pytest.mark.parametrize(
    ("easy", "hard", "length"), [(0.95, 0.4, 30), (0.97, 0.3, 60), (0.99, 0.2, 100), (0.8, 0.8, 9)]
)
@pytest.mark.parametrize(("widths", "answers"), [((4, 16), 20), ((16,), 20), ((2, 16), 800)])
def test_easy_and_hard_stretches_are_predicted(
    easy: float, hard: float, length: int, widths: tuple[int, ...], answers: int
) -> None:
    """Narrow arms start more of their rounds in easy stretches. The rounds at every other width are run as well."""
    marks = stretches(np.random.default_rng(7), easy=easy, hard=hard, length=length, tokens=40_000)
    found = along(marks, widths=widths, answers=answers, drafter="prompt_lookup")
    truth = {width: len(marks) / len(decoded(marks, width)) for width in range(1, 17)}
    assert {point.width: point.accept_length for point in found.points} == pytest.approx(truth, rel=0.05)
    speed = {width: tokens / (1 + 0.05 * (width - 1)) for width, tokens in truth.items()}
    assert found.refused is None
    assert found.best.value is not None
    assert speed[int(found.best.value)] > 0.98 * max(speed.values())


def test_an_arm_that_contradicts_the_replay_leaves_no_best_width() -> None:
    """A drafter that is better at narrow widths than its own first tokens at wide ones: 3 of 3 right, but 1 of 7."""
    arms = (arm(), *(drafting(f"w{w}", width=w, engine="prompt_lookup", draft=None) for w in (4, 8)))
    given = [answer("plain", list(range(20)))]
    given.append(stepped("w4", [(3, 3, 4)] * 10, round_us=[13_000] * 10))
    given.append(stepped("w8", [(7, 1, 2)] * 20, round_us=[17_000] * 20))
    target = {width: 0.010 + 0.001 * (width - 1) for width in range(1, 9)}
    timed = {one.name: PassTimes(arm="plain", role="target", seconds=target, source="timed") for one in arms}
    passes = Passes(target=timed, draft={})
    costs = verify_costs(arms, given, passes=passes, measured={})
    (found,) = width_curves(arms, given, costs=costs, passes=passes, measured={})
    assert found.best.value is None
    assert not found.at_edge
    assert found.refused == found.best.source
    assert found.refused == (
        "the rounds of w8, replayed at width 4, commit 2.00 tokens each, but w4 committed 4.00: more than 5% apart"
    )
    assert [(point.width, point.accept_length) for point in found.points] == [(1, 1.0), (4, 4.0), (8, 2.0)]


def test_an_arm_within_the_agreement_leaves_the_prediction() -> None:
    """The replay commits 2 tokens per round; the narrow arm committed 2.08."""
    arms = (arm(), *(drafting(f"w{w}", width=w, engine="prompt_lookup", draft=None) for w in (4, 8)))
    given = [answer("plain", list(range(20)))]
    given.append(stepped("w4", [(3, 3, 4), *[(3, 1, 2)] * 23, (3, 1, 2)], round_us=[13_000] * 25))
    given.append(stepped("w8", [(7, 1, 2)] * 20, round_us=[17_000] * 20))
    costs = verify_costs(arms, given, passes=Passes(target={}, draft={}), measured={})
    (found,) = width_curves(arms, given, costs=costs, passes=Passes(target={}, draft={}), measured={})
    assert found.refused is None
    assert found.best.value is not None
    assert {point.accept_length for point in found.points if point.width > 1} == {2.0}


def test_narrower_rounds_are_a_larger_share_where_others_are_the_same_at_any_width() -> None:
    """Half of the rounds at width 8 are plain steps; at width 2 the other tokens take four rounds instead of one."""
    target = {1: 0.010, 2: 0.011, 8: 0.017}
    found = lookup_curve([(7, 7, 8), (0, 0, 1)] * 4, target, round_us=[17_000, 10_000] * 4)
    assert found is not None
    at = {point.width: point for point in found.points}
    assert at[2].accept_length == pytest.approx(9 / 5)
    assert at[2].round_cost == pytest.approx((4 * 1.1 + 1) / 5)
    assert at[8].accept_length == pytest.approx(9 / 2)


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
    """At width 2 the pass takes twice as long as the round, at width 8 it fits."""
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
    for draft, share, words in (({16: 0.002}, 0.2, "the drafter's pass"), ({}, 0.5, "the rest of the rounds")):
        drafted = {"w4": PassTimes(arm="w4", role="draft", seconds=draft, source="timed")} if draft else {}
        passes = Passes(target=target, draft=drafted)
        costs = verify_costs(arms, given, passes=passes, measured={})
        (found,) = width_curves(arms, given, costs=costs, passes=passes, measured={})
        assert [point.draft_cost for point in found.points] == pytest.approx([0.0, share, share, share])
        assert words in found.source


def test_without_timed_passes_whole_rounds_are_interpolated_between_the_widths_that_ran() -> None:
    found = curve([1, 2, 2, 2, 0, 2], engine="dflash", target=None, widths={2: 15_000, 4: 25_000})
    assert found is not None
    assert [point.width for point in found.points] == [1, 2, 3, 4]
    assert [point.round_cost for point in found.points] == pytest.approx([1.0, 1.5, 2.0, 2.5])
    assert [point.interpolated for point in found.points] == [False, False, True, False]
    assert [point.arm for point in found.points] == [None, "w2", None, "w4"]
    assert found.points[2].measured is None
    assert found.best_measured == 4
    assert (found.best.value, found.at_edge) == (3.0, False)  # 2.5 tokens for 2 steps
    gains = [1.0, 15 / 10, 15 / 6, 15 / 6]
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
    """The last round of each answer proposes only one token, and takes less time."""
    arms = (arm(), drafting("w4", width=4, engine="dflash"))
    steps: list[Step] = [(3, 3, 4), (1, 1, 2)]
    given = [answer("plain", list(range(20)))]
    given += [stepped("w4", steps, round_us=[25_000, 12_000]) for _ in range(3)]
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
