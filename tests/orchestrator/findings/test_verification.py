"""The cost and the yield of verification."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.findings.records import Answer, ArmRecord, PassTimes, Step
from orchestrator.findings.rounds import Rounds
from orchestrator.findings.values import Figure, Interval, VerifyCost
from orchestrator.findings.verification import (
    Passes,
    doubt,
    interpolated,
    no_checks,
    one_more,
    pass_curves,
    passes_of,
    predicted_speedup,
    proposing_words,
    verify_costs,
    what_is_left,
)
from tests.orchestrator.findings.making import TOKEN_US, answer, arm, drafting, stepped

NO_PASSES = Passes(target={}, draft={})
STEPS: list[Step] = [(3, 2, 3), (3, 0, 1), (3, 1, 2), (3, 3, 4), (3, 1, 2), (3, 0, 1)]


def times(seconds: dict[int, float], role: str = "target") -> PassTimes:
    return PassTimes(arm="plain", role=role, seconds=seconds, source="timed")


def answers(of: str = "spec", round_us: int = 20_000) -> list[Answer]:
    """Plain steps of 10 ms, verify rounds of 20 ms."""
    return [answer("plain", list(range(12))), stepped(of, STEPS, round_us=[round_us] * len(STEPS))]


def cost(
    *, arms: tuple[ArmRecord, ...] | None = None, given: list[Answer] | None = None, passes: Passes = NO_PASSES
) -> VerifyCost:
    (one,) = verify_costs(arms or (arm(), drafting()), given or answers(), passes=passes, measured={})
    return one


def test_a_round_is_counted_in_plain_steps() -> None:
    one = cost()
    assert (one.width, one.rounds_timed, one.plain_arm) == (4, 6, "plain")
    assert one.accept_length == pytest.approx(13 / 6)
    assert one.step_s == pytest.approx(0.020)
    assert one.plain_s.value == pytest.approx(TOKEN_US / 1e6)
    assert one.round_cost.value == pytest.approx(2.0)
    assert one.verify_cost.value is None
    assert "sweep=verify_cost" in one.verify_cost.source
    assert one.draft_cost.value is None
    assert one.predicted.value == pytest.approx(13 / 6 / 2.0)
    assert "as a whole" in one.predicted.source
    assert no_checks([one]) == ["spec: predicted is tokens / round: no check of measured"]
    assert one.one_more.value == pytest.approx((13 / 6 + 1) / 2.0)


def test_a_timed_pass_splits_the_round_in_verification_and_drafting() -> None:
    one = cost(passes=Passes(target={"spec": times({1: 0.010, 4: 0.013})}, draft={}))
    assert one.verify_cost.value == pytest.approx(1.3)
    assert one.draft_cost.value == pytest.approx(0.7)
    assert "the rest of the round" in one.draft_cost.source
    assert one.predicted.value == pytest.approx(13 / 6 / 2.0)
    assert "as a whole" in one.predicted.source  # it would be the same: what is left makes up the round
    assert not one.independent
    assert no_checks([one]) == [
        "spec: draft is only round - verify, and predicted is tokens / round: no check of measured"
    ]


def test_a_timed_drafting_pass_makes_the_prediction_independent_of_the_rounds() -> None:
    one = cost(passes=Passes(target={"spec": times({1: 0.010, 4: 0.013})}, draft={"spec": times({1: 0.001}, "draft")}))
    assert one.draft_cost.value == pytest.approx(3 * 0.001 / 0.010)
    assert one.predicted.value == pytest.approx(13 / 6 / 1.6)
    assert one.predicted.source == "accept length / (verify + draft)"
    assert one.independent
    assert no_checks([one]) == []


@pytest.mark.parametrize("round_us", [20_000, 50_000])
def test_a_block_draft_takes_one_pass_of_its_block_a_round(round_us: int) -> None:
    """Whatever part of the block is verified, and however long the rounds took."""
    one = cost(
        arms=(arm(), drafting(engine="dflash")),
        given=answers(round_us=round_us),
        passes=Passes(target={"spec": times({1: 0.010, 4: 0.015})}, draft={"spec": times({16: 0.003}, "draft")}),
    )
    assert one.draft_cost.value == pytest.approx(0.3)
    assert "1.00 drafting passes of 16 a round" in one.draft_cost.source
    assert one.predicted.value == pytest.approx(13 / 6 / 1.8)
    assert one.independent


def test_a_pass_of_the_wrong_width_is_no_drafting_pass_of_one_token() -> None:
    one = cost(passes=Passes(target={"spec": times({1: 0.010, 4: 0.013})}, draft={"spec": times({4: 0.001}, "draft")}))
    assert "the rest of the round" in one.draft_cost.source


def test_verification_that_outlasts_its_rounds_leaves_the_drafter_unknown() -> None:
    """The passes were timed on a machine that had become slower: T(4) is 3.7, the whole round 2."""
    one = cost(passes=Passes(target={"spec": times({1: 0.010, 4: 0.037})}, draft={}))
    assert one.verify_cost.value == pytest.approx(3.7)
    assert one.draft_cost.value is None
    assert "longer alone than the rounds" in one.draft_cost.source
    assert one.doubt is not None
    assert "verify alone makes 185% of a round" in one.doubt
    assert one.predicted.value == pytest.approx(13 / 6 / 2.0)


@given(st.floats(0.5, 10.0), st.floats(0.5, 10.0))
def test_the_drafters_share_is_never_negative(verify: float, whole: float) -> None:
    left = what_is_left(verify=Figure(value=verify, source=""), round_cost=Figure(value=whole, source=""))
    if verify > whole / 0.8:
        assert left.value is None
    else:
        assert left.value == pytest.approx(max(0.0, whole - verify))
        assert ("within noise" in left.source) == (verify > whole)


def test_only_rounds_that_propose_could_commit_one_more() -> None:
    """A lookup that finds something in a fifth of its rounds: those are plain steps whatever it finds elsewhere."""
    steps: list[Step] = [(0, 0, 1)] * 8 + [(3, 2, 3)] * 2
    given = [answer("plain", list(range(12))), stepped("spec", steps, round_us=[10_000] * 8 + [15_000] * 2)]
    one = cost(arms=(arm(), drafting(engine="prompt_lookup", draft=None)), given=given)
    assert one.proposing == 0.2
    assert one.accept_length == pytest.approx(1.4)
    assert no_checks([one]) == ["spec: predicted is tokens / round: no check of measured"]  # no draft is left over
    assert one.one_more.value == pytest.approx((8 * 1 + 2 * 4) / (8 * 1.0 + 2 * 1.5))
    assert proposing_words(one) == "2 of its 10 rounds propose anything; the others are plain steps, at any width"
    assert proposing_words(cost()) is None
    full: list[Step] = [(0, 0, 1)] * 8 + [(3, 3, 4)] * 2
    given[1] = stepped("spec", full, round_us=[10_000] * 10)
    one = cost(arms=(arm(), drafting(engine="prompt_lookup", draft=None)), given=given)
    assert one.one_more.value is None  # though a round on average commits 1.6 of 4
    given[1] = stepped("spec", [(0, 0, 1)] * 8, round_us=[10_000] * 8)
    one = cost(arms=(arm(), drafting(engine="prompt_lookup", draft=None)), given=given)
    assert one.one_more == Figure(value=None, source="no round proposed anything")


def test_an_engine_that_copies_has_no_drafter() -> None:
    arms = (arm(), drafting(engine="prompt_lookup", draft=None))
    one = cost(arms=arms, passes=Passes(target={"spec": times({1: 0.010, 8: 0.017})}, draft={}))
    assert one.draft_cost == Figure(value=0.0, source="no model drafts: proposals are copied from the context")
    assert one.verify_cost.value == pytest.approx(1.3)  # on the line between 1 and 8


@pytest.mark.parametrize(
    ("arms", "given", "reason"),
    [
        ((drafting(),), answers(), "no plain arm of model at temperature 0 ran beside it"),
        ((arm(temperature=0.7), drafting()), answers(), "no plain arm of model at temperature 0 ran beside it"),
        ((arm(weights="other"), drafting()), answers(), "no plain arm of model"),
        ((arm(), drafting()), [*answers()[:1], answer("spec")], "the engine does not report its verify rounds"),
        ((arm(), drafting()), [answer("plain", [1, 2]), answers()[1]], "plain: fewer than 5 plain steps are timed"),
    ],
)
def test_what_is_missing_is_named(arms: tuple[ArmRecord, ...], given: list[Answer], reason: str) -> None:
    one = cost(arms=arms, given=given)
    assert one.round_cost.value is None
    assert reason in one.round_cost.source
    assert one.predicted.value is None


def test_what_does_not_count_is_not_timed() -> None:
    excluded = stepped("spec", STEPS, round_us=[900_000] * len(STEPS), measured=False)
    assert cost(given=[*answers(), excluded]).step_s == pytest.approx(0.020)


def test_each_class_has_a_row_where_there_are_several() -> None:
    prose = [answer("plain", list(range(12)), prompt_class="prose")]
    prose += [stepped("spec", [(3, 0, 1)] * 6, round_us=[20_000] * 6, prompt_class="prose")]
    measured: dict[tuple[str, str | None], Interval] = {}
    measured["spec", "prose"] = Interval(ratio=0.5, ci_low=0.4, ci_high=0.6, p_value=0.01, rounds=8)
    found = verify_costs((arm(), drafting()), [*answers(), *prose], passes=NO_PASSES, measured=measured)
    assert [one.prompt_class for one in found] == [None, "code", "prose"]
    assert found[2].accept_length == 1.0
    assert found[2].measured == measured["spec", "prose"]
    assert found[1].measured is None


@given(st.floats(1.0, 16.0), st.floats(0.9, 20.0), st.floats(0.0, 5.0), st.floats(0.5, 30.0))
def test_the_prediction_is_tokens_over_cost(length: float, verify: float, draft: float, whole: float) -> None:
    def figure(value: float) -> Figure:
        return Figure(value=value, source="")

    split = predicted_speedup(length, verify=figure(verify), draft=figure(draft), round_cost=figure(whole))
    assert split.value == pytest.approx(length / (verify + draft))
    for known in (figure(verify), Figure(value=None, source="?")):
        round_alone = predicted_speedup(length, verify=known, draft=None, round_cost=figure(whole))
        assert round_alone.value == pytest.approx(length / whole)


def test_a_full_round_cannot_commit_one_more() -> None:
    steps: list[Step] = [(3, 3, 4), (3, 2, 3)]
    found = one_more(Rounds.of([stepped("spec", steps, round_us=[1_000] * 2)]), round_cost=Figure(value=2.0, source=""))
    assert found.value is None
    assert "commits 4 tokens at most" in found.source


@given(st.dictionaries(st.integers(1, 20), st.floats(0.5, 9.0), min_size=1, max_size=6), st.integers(1, 20))
def test_nothing_is_extrapolated_and_lines_stay_between_their_ends(known: dict[int, float], width: int) -> None:
    found = interpolated(known, width)
    if not min(known) <= width <= max(known):
        assert found is None
    else:
        assert found is not None
        assert min(known.values()) - 1e-9 <= found <= max(known.values()) + 1e-9
        assert width not in known or found == known[width]


def test_arms_that_time_passes_speak_for_all_arms_of_their_weights() -> None:
    timing = [arm(f"pass {w}", engine="verify_cost", width=w, is_control=False) for w in (1, 4)]
    arms = (arm(), drafting(), drafting("other", weights="other"), *timing)
    given = [answer(f"pass {w}", [1, 2, 3], stamps_us=[0, us, 2 * us]) for w, us in ((1, 10_000), (4, 15_000))]
    passes = passes_of(arms, given, target={"spec": times({1: 1.0, 4: 9.0})}, draft={})
    assert passes.target["spec"].seconds == pytest.approx({1: 0.010, 4: 0.015})
    assert "other" not in passes.target
    (curve,) = pass_curves(arms, passes)
    assert dict(curve.cost) == pytest.approx({1: 1.0, 4: 1.5})
    # They decode plainly in a loop of their own: no plain step for others.
    assert verify_costs(arms[1:], [*given, answers()[1]], passes=passes, measured={})[0].plain_arm is None


@pytest.mark.parametrize(
    ("verify", "draft", "doubted"), [(1.3, 0.7, False), (1.3, 0.4, False), (0.9, 0.4, True), (2.0, 0.7, True)]
)
def test_passes_that_do_not_add_up_to_the_round_are_doubted(verify: float, draft: float, doubted: bool) -> None:
    """A round takes 2 plain steps."""
    said = doubt(
        verify=Figure(value=verify, source=""),
        draft=Figure(value=draft, source=""),
        round_cost=Figure(value=2.0, source=""),
    )
    assert (said is not None) == doubted
    if said is not None:
        assert f"{(verify + draft) / 2:.0%} of a round" in said


def test_passes_timed_on_a_slower_or_faster_machine_are_doubted_in_the_arms_costs() -> None:
    timed = {"spec": times({1: 0.010, 4: 0.011})}
    halved = cost(passes=Passes(target=timed, draft={"spec": times({1: 0.0005}, role="draft")}))
    assert halved.doubt is not None
    assert "make 62% of a round" in halved.doubt  # (1.1 + 3 * 0.05) / 2
    assert cost(passes=Passes(target=timed, draft={})).doubt is None  # what is left is the drafter's by definition
