from dataclasses import replace

from orchestrator.running.trial import judge
from tests.orchestrator.records import ENGAGED, PLAIN


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
