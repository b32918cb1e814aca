"""Predict the tokens per round at another width by replaying the widest arm's rounds along their text. Pure.

A verify round shows for each of its tokens whether the draft was right: right for the accepted ones, wrong for the next
one, which the target replaced. So an arm's rounds mark the text token by token, and a narrower width can be walked
along the same marks: from a token it accepts those before the next wrong one, at most width - 1, commits one more, and
continues behind it. Narrow rounds start more often in easy stretches than wide ones do. Means over the rounds of
several widths miss that.

Some tokens have no mark: the token after a fully accepted round was never proposed. The share of such tokens that
counts as right is the acceptance of the last proposal in rounds that reached it, spread evenly. Some rounds are the
same at any width (plain steps if nothing was found to propose, and copies longer than the width): a walk takes each of
them as one round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from orchestrator.findings.rounds import Counts, Mask, Rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Rounds of one width along a text."""

    tokens: int
    free: int  # rounds that the width applies to
    fixed: int  # those that are the same at any width

    @property
    def accept_length(self) -> float:
        """Return the tokens per round, over all rounds: each round counts by the tokens of the text that it covers."""
        return self.tokens / (self.free + self.fixed)

    @property
    def share(self) -> float:
        """Return the share of free rounds."""
        return self.free / (self.free + self.fixed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """An arm's concatenated answers, one element per token."""

    run: Counts  # proposals that would be accepted in a row from here; the text wraps around at its end
    fixed: Mask  # committed by a round that is the same at any width
    round_end: Counts  # the end of the round that committed the token
    answer_end: Counts

    @classmethod
    def of(cls, answers: Sequence[Rounds], *, width: int) -> Self | None:
        """Build it from the answers of an arm with this width; None if the width applies to none of its rounds."""
        rounds = Rounds.joined(answers)
        fixed = ~is_free(rounds, width)
        if not len(rounds) or fixed.all():
            return None
        ends = np.cumsum(rounds.committed)
        last = np.isin(np.arange(len(rounds)), np.cumsum([len(each) for each in answers]) - 1)
        marks = _marks(rounds, fixed, ends - rounds.committed, last=last, room=width - 1)
        lengths = [int(each.committed.sum()) for each in answers]
        return cls(
            run=_runs(marks),
            fixed=np.repeat(fixed, rounds.committed),
            round_end=np.repeat(ends, rounds.committed),
            answer_end=np.repeat(np.cumsum(lengths), lengths),
        )

    def walked(self, width: int, *, to_the_end: bool) -> Walk:
        """Walk the text in rounds of this width, at most the arm's.

        Args:
            to_the_end: whether an answer's end truncates its last round, as in measured answers; else all rounds are
                whole.
        """
        behind = np.arange(len(self.run)) + np.minimum(self.run, width - 1) + 1
        behind = np.where(self.fixed, self.round_end, np.minimum(behind, self.answer_end) if to_the_end else behind)
        following, is_fixed = behind.tolist(), self.fixed.tolist()
        at = rounds = fixed = 0
        while at < len(following):
            rounds += 1
            fixed += is_fixed[at]
            at = following[at]
        return Walk(tokens=at, free=rounds - fixed, fixed=fixed)


def is_free(rounds: Rounds, width: int) -> Mask:
    """Mark the rounds whose width the arm's setting determines."""
    return (rounds.drafted > 0) & (rounds.drafted < width)


def _marks(rounds: Rounds, fixed: Mask, starts: Counts, *, last: Mask, room: int) -> Mask:
    """Mark for each token of the text whether the draft proposes it at that place."""
    marks = np.repeat(~fixed, rounds.committed)
    replaced = ~fixed & (rounds.committed > rounds.accepted)  # in the others the answer's end came first
    at = starts + rounds.accepted
    stopped = (rounds.drafted < room) & ~last  # the draft had no more to propose
    wrong = replaced & ((rounds.accepted < rounds.drafted) | stopped)
    marks[at[wrong]] = False
    marks[at[replaced & ~wrong]] = _evenly(int((replaced & ~wrong).sum()), _last_chance(rounds, replaced, room))
    return marks


def _last_chance(rounds: Rounds, replaced: Mask, room: int) -> float:
    """Return the acceptance of a whole round's last proposal, given that all others were accepted."""
    came_so_far = replaced & (rounds.drafted == room) & (rounds.accepted >= room - 1)
    return float((rounds.accepted[came_so_far] == room).mean()) if came_so_far.any() else 1.0


def _evenly(number: int, chance: float) -> Mask:
    """Return `number` marks of which the share `chance` is true, spread evenly."""
    found: npt.NDArray[np.bool_] = np.diff(np.floor(np.arange(number + 1) * chance + 0.5)) > 0
    return found


def _runs(marks: Mask) -> Counts:
    """Count for each token the true marks in a row from it on, up to the number of tokens if all are true."""
    wrong = np.flatnonzero(~marks)
    if not len(wrong):
        return np.full(len(marks), np.iinfo(np.int32).max, dtype=np.int64)
    here = np.arange(len(marks))
    found: Counts = np.append(wrong, wrong[0] + len(marks))[np.searchsorted(wrong, here)] - here
    return found
