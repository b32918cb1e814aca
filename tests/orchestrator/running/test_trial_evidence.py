from dataclasses import replace
from itertools import permutations

import pytest

from orchestrator.running.trial import judge
from tests.orchestrator.records import ENGAGED, PLAIN
from workers.protocol import Evidence


def test_plain_decoding_needs_no_engagement() -> None:
    judgement = judge([PLAIN])
    assert (judgement.requested, judgement.engaged, judgement.useful, judgement.fault) == (False, False, False, None)


def test_engaged_and_useful() -> None:
    judgement = judge([ENGAGED])
    assert (judgement.requested, judgement.engaged, judgement.useful, judgement.fault) == (True, True, True, None)


def test_a_draft_that_accepted_nothing_is_engaged_but_not_useful() -> None:
    judgement = judge([replace(ENGAGED, useful=False, accepted=0)])
    assert (judgement.engaged, judgement.useful, judgement.fault) == (True, False, None)


def test_one_that_never_drafted_is_not_engaged_and_says_why() -> None:
    judgement = judge([replace(ENGAGED, engaged=False, useful=False, drafted=0, accepted=0, text="0 tokens drafted")])
    assert judgement.engaged is False
    assert judgement.fault == "not_engaged: 0 tokens drafted"


def test_no_sign_is_unknown_not_false_and_not_enough() -> None:
    judgement = judge([replace(ENGAGED, engaged=None, useful=None, drafted=None, accepted=None, text="no counter")])
    assert judgement.engaged is None
    assert judgement.fault == "engagement_unknown: no counter"


def test_more_accepted_than_drafted_breaks_the_evidence() -> None:
    judgement = judge([replace(ENGAGED, drafted=3, accepted=4)])
    assert judgement.engaged is None
    assert judgement.fault is not None
    assert judgement.fault.startswith("evidence_broken: 4 accepted of 3 drafted")


def test_engaged_without_drafting_is_a_contradiction() -> None:
    assert judge([replace(ENGAGED, drafted=0, accepted=0)]).fault is not None


def test_prompt_lookup_may_look_and_find_nothing() -> None:
    sign = replace(ENGAGED, mechanism="prompt_lookup", drafted=0, accepted=0, useful=False)
    assert judge([sign]).fault is None


def test_a_mechanism_nobody_asked_for_spoils_a_plain_arm() -> None:
    judgement = judge([replace(ENGAGED, requested=False)])
    assert judgement.fault is not None
    assert judgement.fault.startswith("unrequested_mechanism")


def test_one_missing_sign_among_several_is_enough_to_doubt() -> None:
    assert judge([ENGAGED, replace(ENGAGED, engaged=False, drafted=0, accepted=0)]).engaged is False


NOT_ENGAGED = replace(ENGAGED, engaged=False, useful=False, drafted=0, accepted=0, text="fell back")
UNKNOWN = replace(ENGAGED, engaged=None, useful=None, drafted=None, accepted=None, text="no sign")


@pytest.mark.parametrize("signs", list(permutations([ENGAGED, NOT_ENGAGED, UNKNOWN])))
def test_a_sign_against_it_wins_over_a_missing_one_in_any_order(signs: tuple[Evidence, ...]) -> None:
    judgement = judge(signs)
    assert (judgement.engaged, judgement.useful) == (False, False)


def test_a_missing_sign_wins_over_one_for_it() -> None:
    judgement = judge([ENGAGED, UNKNOWN])
    assert (judgement.engaged, judgement.useful, judgement.fault) == (None, None, "engagement_unknown: no sign")


@pytest.mark.parametrize(
    ("drafted", "accepted", "is_broken"),
    [
        (6, -1, True),
        (6, 0, False),
        (6, 6, False),
        (6, 7, True),
        (None, 4, False),
        (6, None, False),
        (1, 1, False),
    ],
)
def test_accepted_tokens_are_between_none_and_all_of_the_drafted(
    drafted: int | None, accepted: int | None, *, is_broken: bool
) -> None:
    fault = judge([replace(ENGAGED, drafted=drafted, accepted=accepted)]).fault
    assert (fault is not None and fault.startswith("evidence_broken")) == is_broken


def test_a_contradiction_is_told_of_any_sign_and_leaves_both_answers_unknown() -> None:
    broken = replace(ENGAGED, drafted=3, accepted=4, source="log")
    judgement = judge([ENGAGED, broken])
    assert (judgement.requested, judgement.engaged, judgement.useful) == (True, None, None)
    assert judgement.fault == "evidence_broken: 4 accepted of 3 drafted (log)"
    assert judge([replace(broken, requested=False)]).requested is False


def test_prompt_lookup_alone_may_draft_nothing_and_engage() -> None:
    drafted_nothing = replace(ENGAGED, drafted=0, accepted=0)
    assert judge([drafted_nothing]).fault == "evidence_broken: engaged without drafting anything (test)"
    assert judge([replace(drafted_nothing, engaged=False, text="-")]).fault == "not_engaged: -"


@pytest.mark.parametrize("useful", [True, False, None])
def test_an_unrequested_mechanism_is_as_useful_as_its_own_sign_says(useful: bool | None) -> None:
    judgement = judge([PLAIN, replace(ENGAGED, requested=False, useful=useful)])
    assert (judgement.requested, judgement.engaged, judgement.useful) == (False, True, bool(useful))
    assert judgement.fault == "unrequested_mechanism: drafted 6, accepted 4"
