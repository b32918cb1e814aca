import datetime as dt
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from orchestrator.plan import Gate, Prompt
from orchestrator.running.gate import OPEN
from orchestrator.running.trial import Fault, Outcome, from_cache, judge, settle
from orchestrator.schedule import build_schedule
from tests.orchestrator.plans import arm, plan, prompt
from tests.orchestrator.records import ENGAGED, PLAIN, generation
from workers.protocol import Evidence, Generation


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


def test_a_contradiction_is_reported_of_any_sign_and_leaves_both_answers_unknown() -> None:
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


# ---- from_cache and settle: a trial's verdict, by rules fixed beforehand ----

ASKED = prompt(0, turns=2)
OTHER = prompt(1)
UNKNOWN_SIGN = replace(ENGAGED, engaged=None, useful=None, drafted=None, accepted=None, text="no sign")


def turn(number: int, prompt_tokens: int, cached_tokens: int | None, **changes: Any) -> Generation:
    """Four tokens are answered."""
    return generation(turn=number, prompt_tokens=prompt_tokens, cached_tokens=cached_tokens, **changes)


@pytest.mark.parametrize(
    ("turns", "share_max", "starts"),
    [
        ([(ASKED, turn(0, 100, 0))], 0.1, None),
        ([(ASKED, turn(0, 100, None))], 0.0, None),
        ([(ASKED, turn(0, 100, 10))], 0.1, None),
        ([(ASKED, turn(0, 100, 11))], 0.1, "prompt quick/0: the conversation began with 11 of 100 prompt tokens"),
        ([(ASKED, turn(0, 100, 100))], None, None),
        ([(ASKED, turn(0, 100, 0)), (ASKED, turn(1, 200, 104))], 0.0, None),  # the first turn and its answer
        ([(ASKED, turn(0, 100, 0)), (ASKED, turn(1, 200, 105))], 0.0, "prompt quick/0: turn 2 had 105 of 200"),
        ([(ASKED, turn(0, 100, 0)), (ASKED, turn(1, 200, 124))], 0.1, None),
        ([(ASKED, turn(0, 100, 0)), (ASKED, turn(1, 200, 125))], 0.1, "prompt quick/0: turn 2 had 125 of 200"),
        ([(ASKED, turn(0, 100, 0)), (OTHER, turn(0, 100, 100))], 0.5, "prompt quick/1: the conversation began"),
        ([(ASKED, turn(0, 100, 0)), (OTHER, turn(1, 100, 90))], 0.5, "prompt quick/1: turn 2 had 90 of 100"),
    ],
)
def test_a_prompt_from_a_cache_is_distinguished_from_its_own_conversation(
    turns: list[tuple[Prompt, Generation]], share_max: float | None, starts: str | None
) -> None:
    found = from_cache(turns, share_max=share_max)
    assert (found is None) == (starts is None)
    if found is not None and starts is not None:
        assert found.startswith(f"cached_prompt: {starts}")
        assert "design.cached_share_max=null" in found


def outcome(*turns: Generation, **changes: Any) -> Outcome:
    """A trial on a quiet machine."""
    quiet = Outcome(
        trial=build_schedule(plan(arm("a"), arm("b")))[0],
        started_at=dt.datetime(2026, 11, 30, tzinfo=dt.UTC),
        wall_s=10.0,
        monotonic_s=10.0,
        passage=OPEN,
        generations=[(ASKED, each) for each in turns],
        fault=None,
        before=(),
        during=(),
        after=(),
        log_path=None,
    )
    return replace(quiet, **changes)


FAULT = Fault(kind="crashed", message="it ended")
CACHED = turn(0, 100, 90)
ENGAGED_TURN, UNKNOWN_TURN = (turn(0, 100, 0, evidence=[sign]) for sign in (ENGAGED, UNKNOWN_SIGN))


@pytest.mark.parametrize(
    ("found", "policy", "status", "why"),
    [
        (outcome(ENGAGED_TURN), "require", "done", None),
        (outcome(ENGAGED_TURN, UNKNOWN_TURN), "require", "invalid", "engagement_unknown"),
        (outcome(UNKNOWN_TURN), "record", "done", None),
        (outcome(CACHED), "record", "invalid", "cached_prompt"),
        (outcome(UNKNOWN_TURN, CACHED), "require", "invalid", "engagement_unknown"),  # evidence before caches
        (outcome(CACHED, wall_s=99.0), "record", "invalid", "cached_prompt"),  # both before the machine
        (outcome(ENGAGED_TURN, wall_s=99.0), "require", "excluded", "clock: wall ran +89.0 s against monotonic"),
        (outcome(UNKNOWN_TURN, fault=FAULT, wall_s=99.0), "require", "invalid", "crashed"),  # a fault before all
        (outcome(), "require", "done", None),
    ],
)
def test_the_first_rule_that_speaks_settles_a_trial(found: Outcome, policy: str, status: str, why: str | None) -> None:
    verdict = settle(found, evidence_policy=policy, gate=Gate(), cached_share_max=0.5)
    kind = None if verdict.fault is None else verdict.fault.kind
    assert (verdict.status, kind or verdict.excluded_reason) == (status, why)
    assert verdict.fault != FAULT or found.fault == FAULT
    if kind == "engagement_unknown":
        assert verdict.fault == Fault(kind=kind, message="no sign")


def test_without_a_share_any_cache_is_allowed() -> None:
    assert settle(outcome(CACHED), evidence_policy="record", gate=Gate()).status == "done"
