"""Which release changed the speed? The decisions of a bisection, from exact tests of interleaved runs. Pure.

Every step is one run that holds the good release, the bad one and a candidate between them, so that drift meets all
three alike. The candidate is tested against both. With its place between them

    place = log(candidate / good) / log(bad / good)      0: as the good one, 1: as the bad one

it counts as different from an end when the exact test rejects "equal" at the step's level and its place is more than
`APART` away from that end: a difference that is proven and tiny is not the change that is searched for.

    differs from the bad one only      good: the change comes later
    differs from the good one only     bad: it changed here or before
    differs from both                  between: it changed before, and changes again later
    differs from neither               undecided: it gets more rounds, then it is passed over as one that cannot run

The level of one test is alpha over all tests that a search of this length can make, so that alpha bounds the chance of
a wrong name. What is passed over widens the answer to a range of releases: a release that nobody classified is not
named alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.effects import Effect
from orchestrator.schedule import minimum_rounds

Mark = Literal["good", "bad", "between", "undecided", "skipped"]

APART = 0.25  # of the way from the good release to the bad one
TESTS_PER_STEP = 4  # candidate against either end, and once more with more rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of a search."""

    first: tuple[str, ...]  # the releases of which one is the first that is as slow or as fast as later ones
    last_good: str  # the release before them that is proven good
    more_changes: tuple[str, ...]  # releases that are proven to lie between: there is more than one change


def steps_at_most(releases: int) -> int:
    """The number of candidates that a search among so many releases, both ends included, classifies at most, if none
    is passed over."""
    return max(math.ceil(math.log2(max(releases - 1, 1))), 0)


def step_level(releases: int, *, alpha: float) -> float:
    """The level of each test, so that all tests of the search err with a chance of at most alpha."""
    return alpha / (1 + TESTS_PER_STEP * steps_at_most(releases))


def classify(to_good: Effect, to_bad: Effect, *, level: float) -> Mark:
    """Class a candidate by its effects against both ends, from the same rounds.

    Args:
        to_good: candidate over good.
        to_bad: candidate over bad.
        level: see `step_level`.
    """
    gap = math.log(to_good.ratio) - math.log(to_bad.ratio)
    place = math.log(to_good.ratio) / gap if gap else 0.5
    off_good = to_good.p_value <= level and abs(place) > APART
    off_bad = to_bad.p_value <= level and abs(1.0 - place) > APART
    if off_good and off_bad:
        return "between"
    if off_good or off_bad:
        return "bad" if off_good else "good"
    return "undecided"


def bounds(releases: Sequence[str], marks: Mapping[str, Mark]) -> tuple[int, int]:
    """(last good, first changed) by what is known: the change lies after the one and not after the other.

    Raises:
        ValueError: a release behind one that changed is marked good: no search asks for it.
    """
    low, high = 0, len(releases) - 1
    for number, release in enumerate(releases):
        if marks.get(release) == "good":
            low = max(low, number)
        elif marks.get(release) in ("bad", "between"):
            high = min(high, number)
    if low >= high:
        raise ValueError(f"{releases[low]} is marked good and lies behind {releases[high]}, which changed")
    return low, high


def next_candidate(releases: Sequence[str], marks: Mapping[str, Mark]) -> str | None:
    """The release to try next: the one nearest to the middle that is not yet known; None: the search is over.

    Args:
        releases: in order, the good one first and the bad one last.
        marks: of those tried so far.
    """
    low, high = bounds(releases, marks)
    unknown = [number for number in range(low + 1, high) if releases[number] not in marks]
    middle = (low + high) / 2
    return releases[min(unknown, key=lambda number: (abs(number - middle), number))] if unknown else None


def answer(releases: Sequence[str], marks: Mapping[str, Mark]) -> Answer:
    """Return the result of the search once there is no candidate left."""
    low, high = bounds(releases, marks)
    return Answer(
        first=tuple(releases[low + 1 : high + 1]),
        last_good=releases[low],
        more_changes=tuple(release for release in releases if marks.get(release) == "between"),
    )


def rounds_needed(level: float) -> int:
    """Rounds of a step: twice as many as the exact test needs to reach its level at all."""
    return 2 * minimum_rounds(level)
