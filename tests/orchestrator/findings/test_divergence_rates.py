"""An arm that diverges earlier than rounding explains."""

import pytest

from benchmarks.judge_tables import early_divergences
from orchestrator.findings.losslessness import losslessness
from orchestrator.findings.records import ArmRecord
from tests.orchestrator.findings.making import ARMS, arm, drafting, flagged, judged, parting, shown


def test_an_arm_that_parts_first_in_every_prompt_is_flagged_and_its_peer_is_not() -> None:
    found = judged({"plain": [None] * 8, "one": [3] * 8, "other": [None] * 4 + [30] * 4}, ARMS)
    assert flagged(found) == ["one"]
    words = (
        "one diverges from plain before other, whose passes are as wide, in 8 of the 8 prompts in which one of the two"
        " is first (p = 0.0039, pairs tested: 2): earlier than rounding explains, whatever its near ties suggest."
    )
    assert shown(found)[0] == words


def test_prompts_where_both_part_at_one_place_say_nothing() -> None:
    assert flagged(judged({"plain": [None] * 8, "one": [3] * 8, "other": [3] * 8}, ARMS)) == []
    assert flagged(judged({"plain": [None] * 8, "one": [3] * 8, "other": [3] * 4 + [None] * 4}, ARMS)) == []


@pytest.mark.parametrize(
    "other",
    [drafting("other", width=8), drafting("other", weights="others"), drafting("other", temperature=0.7)],
    ids=["width", "weights", "sampled"],
)
def test_arms_whose_passes_round_in_another_way_are_no_peers(other: ArmRecord) -> None:
    places: dict[str, list[int | None]] = {"plain": [None] * 8, "one": [3] * 8, "other": [None] * 8}
    assert flagged(judged(places, (*ARMS[:2], other))) == []


def test_an_arm_that_decodes_plainly_most_of_the_time_shows_no_rounding_of_wide_passes() -> None:
    """A lookup that finds nothing parts nowhere: its passes are the control's."""
    prompts = [f"quick/{number}" for number in range(8)]
    given = parting("plain", dict.fromkeys(prompts)) + parting("one", dict.fromkeys(prompts, 3))
    given += parting("other", dict.fromkeys(prompts), proposing=False)
    found = losslessness(ARMS, given, control="plain", probes={})
    assert found is not None
    assert flagged(found) == []


def test_an_arm_that_times_passes_of_the_same_width_is_a_peer() -> None:
    timing = arm("timing", is_control=False, engine="verify_cost", width=4)
    places: dict[str, list[int | None]] = {"plain": [None] * 8, "one": [3] * 8, "timing": [None] * 8}
    assert flagged(judged(places, (*ARMS[:2], timing))) == ["one"]


def test_the_level_is_shared_among_the_pairs_that_are_tested() -> None:
    """First in five of five prompts has p = 0.031, which is rare for one pair and not for the two of a run."""
    assert flagged(judged({"plain": [None] * 5, "one": [3] * 5, "other": [None] * 5}, ARMS)) == []
    assert flagged(judged({"plain": [None] * 6, "one": [3] * 6, "other": [None] * 6}, ARMS)) == ["one"]


@pytest.mark.parametrize(("size", "least", "most"), [(1, 0.0, 0.05), (4, 0.8, 1.0)])
def test_four_times_the_rounding_is_flagged_and_the_rounding_itself_is_not(
    size: int, least: float, most: float
) -> None:
    hits = sum("one" in found for found in early_divergences(size, 60))
    assert least <= hits / 60 <= most
