"""Steps and stamps become timed rounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.findings.records import Step
from orchestrator.findings.rounds import Rounds, plain_seconds
from tests.orchestrator.findings.making import answer, stepped

STEP = st.integers(1, 6).flatmap(
    lambda drafted: st.integers(0, drafted).map(lambda accepted: (drafted, accepted, accepted + 1))
)
STEPS = st.lists(st.tuples(STEP, st.integers(1_000, 90_000)), min_size=1, max_size=12)


@given(STEPS, st.sampled_from([0, 1]))
def test_rounds_account_for_every_token_and_for_all_the_time(steps: list[tuple[Step, int]], lead: int) -> None:
    one = stepped("spec", [step for step, _ in steps], round_us=[us for _, us in steps], lead=lead)
    rounds = Rounds.of([one])
    timed = [step for step, _ in steps][1 - lead :]  # the pass that read the prompt's end is left out
    assert rounds.committed.tolist() == [step[2] for step in timed]
    assert len(rounds) == len(timed)
    stamps = one.stamps_us or ()
    first = 0 if lead else steps[0][0][2] - 1
    assert rounds.seconds.sum() == pytest.approx((stamps[-1] - stamps[first]) / 1e6)
    # Tokens committed by the timed rounds are those that decode_tps counts.
    assert int(rounds.committed.sum()) == len(stamps) - (1 if lead else steps[0][0][2])


@given(STEPS)
def test_of_rounds_of_one_width_the_time_is_the_median(steps: list[tuple[Step, int]]) -> None:
    plain = [(3, min(step[1], 3), min(step[1], 3) + 1) for step, _ in steps]
    rounds = Rounds.of([stepped("spec", plain, round_us=[us for _, us in steps])])
    assert rounds.step_s == pytest.approx(float(np.median([us for _, us in steps])) / 1e6)


def test_of_mixed_widths_the_time_is_the_mean_of_their_medians() -> None:
    steps: list[Step] = [(0, 0, 1)] * 3 + [(7, 7, 8)]
    rounds = Rounds.of([stepped("spec", steps, round_us=[10_000, 10_000, 50_000, 30_000])])
    assert rounds.step_s == pytest.approx((3 * 0.010 + 0.030) / 4)
    assert rounds.accept_length == pytest.approx(11 / 4)


@given(st.lists(STEP, min_size=1, max_size=40))
def test_the_chances_give_back_the_accept_length_of_one_width(steps: list[Step]) -> None:
    same = [(4, min(accepted, 4), min(accepted, 4) + 1) for _, accepted, _ in steps]
    rounds = Rounds.of([stepped("spec", same, round_us=[1_000] * len(same))])
    chances = rounds.chances()
    assert list(chances) == sorted(chances, reverse=True)
    assert 1 + sum(chances) == pytest.approx(rounds.accept_length)
    for place, chance in enumerate(chances, start=1):
        assert chance == pytest.approx(float((rounds.accepted >= place).mean()))


def test_rounds_that_proposed_fewer_count_only_for_the_positions_that_they_had() -> None:
    steps: list[Step] = [(1, 1, 2), (1, 0, 1), (2, 2, 3), (2, 1, 2)]
    chances = Rounds.of([stepped("spec", steps, round_us=[1_000] * 4)]).chances()
    assert chances == pytest.approx((3 / 4, 3 / 4 * 1 / 2))
    assert len(chances) == 2  # nobody ever proposed three
    wide: list[Step] = [(1, 1, 2), (1, 1, 2), (3, 0, 1)]
    assert len(Rounds.of([stepped("spec", wide, round_us=[1_000] * 3)]).chances()) == 1  # no wide round came so far


def test_what_the_answers_end_cut_is_no_rejection() -> None:
    """A perfect draft of blocks of 8: of the second block three tokens were left to commit."""
    perfect = Rounds.of([stepped("spec", [(7, 7, 8), (7, 3, 3)], round_us=[1_000, 1_000])])
    assert perfect.chances() == (1.0,) * 7
    assert perfect.accept_length == 5.5  # of what was committed: that is what the rate counts
    refused = Rounds.of([stepped("spec", [(7, 7, 8), (7, 2, 3)], round_us=[1_000, 1_000])])
    assert refused.chances() == (1.0, 1.0, *[0.5] * 5)


@pytest.mark.parametrize("chance", [0.3, 0.7, 0.95])
def test_short_answers_show_the_chances_of_long_ones(chance: float) -> None:
    """Blocks of 6 and answers of 9 tokens: the last round of most is cut."""
    luck = np.random.default_rng(1)
    answers = []
    for _ in range(2_000):
        steps: list[Step] = []
        left = 8
        while left:
            refused = int(luck.geometric(1 - chance)) - 1
            whole = min(refused, 5)
            count = min(whole + 1, left)
            steps.append((5, min(whole, count), count))
            left -= count
        answers.append(stepped("spec", steps, round_us=[1_000] * len(steps)))
    expected = [chance**place for place in range(1, 6)]
    assert list(Rounds.of(answers).chances()) == pytest.approx(expected, abs=0.05)


def test_rounds_without_a_proposal_are_counted_but_count_for_no_position() -> None:
    steps: list[Step] = [(0, 0, 1)] * 3 + [(2, 2, 3)]
    rounds = Rounds.of([stepped("spec", steps, round_us=[1_000] * 4)])
    assert rounds.proposing == 0.25
    assert rounds.chances() == (1.0, 1.0)
    assert Rounds.of([]).proposing is None


def test_rounds_are_parted_and_joined() -> None:
    steps: list[Step] = [(0, 0, 1), (3, 2, 3), (1, 1, 2)]
    rounds = Rounds.of([stepped("spec", steps, round_us=[1_000, 2_000, 3_000])])
    parts = [rounds.only(rounds.drafted == 0), rounds.only(rounds.drafted > 0)]
    assert [len(part) for part in parts] == [1, 2]
    joined = Rounds.joined(parts)
    assert joined.committed.tolist() == [1, 3, 2]
    assert joined.seconds.tolist() == pytest.approx([0.001, 0.002, 0.003])
    assert not len(Rounds.joined([]))


def test_steps_that_do_not_account_for_the_tokens_are_left_out() -> None:
    assert not len(Rounds.of([answer("spec", [1, 2, 3], steps=[(3, 0, 1)])]))
    assert not len(Rounds.of([answer("spec", [1, 2, 3], steps=[(3, 3, 3)], stamps_of="chunk")]))
    assert Rounds.of([]).step_s is None
    assert Rounds.of([]).accept_length is None


def test_plain_steps_are_the_gaps_between_stamps() -> None:
    assert plain_seconds([answer("plain", [1, 2, 3], stamps_us=[50, 150, 450])]).tolist() == [1e-4, 3e-4]
    assert not len(plain_seconds([answer("plain", [1])]))
