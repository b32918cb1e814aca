"""Verify rounds and plain steps, timed from the stored stamps. Pure.

With n stamps t_1 .. t_n and steps that commit c_1 .. c_k tokens, either the committed tokens add up to n (the first
step is the pass that read the prompt's end) or to n - 1 (prefill yielded a token of its own). A round is timed from the
last token of the pass before it to its own last token, so the rounds of an answer add up to its decode time. The pass
that yielded the first token read the prompt, and is left out, with the tokens that it committed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from orchestrator.findings.records import Answer

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Timed verify rounds, one element per round."""

    drafted: Counts
    accepted: Counts
    committed: Counts
    seconds: Floats

    def __len__(self) -> int:
        return len(self.seconds)

    @classmethod
    def of(cls, answers: Iterable[Answer]) -> Self:
        """Collect the rounds of all answers with known steps and with one stamp per token."""
        parts = [part for answer in answers if (part := _rounds(answer)) is not None]
        table = np.concatenate([np.zeros((0, 4)), *parts])
        drafted, accepted, committed = (table[:, column].astype(np.int64) for column in range(3))
        return cls(drafted=drafted, accepted=accepted, committed=committed, seconds=table[:, 3])

    @classmethod
    def joined(cls, parts: "Iterable[Rounds]") -> Self:
        """Concatenate the rounds."""
        each = [cls.of([]), *parts]
        return cls(**{name: np.concatenate([getattr(part, name) for part in each]) for name in _COLUMNS})

    def only(self, kept: Mask) -> Self:
        """Return the rounds that a mask selects."""
        return replace(self, **{name: getattr(self, name)[kept] for name in _COLUMNS})

    @property
    def accept_length(self) -> float | None:
        """Return the tokens committed per round."""
        return float(self.committed.mean()) if len(self) else None

    @property
    def proposing(self) -> float | None:
        """Return the share of rounds that proposed something. A lookup that finds nothing decodes one token plainly."""
        return float((self.drafted > 0).mean()) if len(self) else None

    @property
    def step_s(self) -> float | None:
        """Return the time of a round: the median for each number of proposed tokens, weighted by the rounds with it.

        If the number varies, one median over all would be that of the commonest width alone.
        """
        return self.weighted(
            {int(width): float(np.median(self.seconds[self.drafted == width - 1])) for width in self.widths}
        )

    @property
    def widths(self) -> Sequence[int]:
        """Return the tokens checked per pass: the proposed ones and the one before them."""
        return [int(drafted) + 1 for drafted in np.unique(self.drafted)]

    def weighted(self, by_width: "dict[int, float]") -> float | None:
        """Return the mean over the rounds of a value that depends on their width; None if a width that ran has none."""
        if not len(self) or any(width not in by_width for width in self.widths):
            return None
        drafted, counts = np.unique(self.drafted, return_counts=True)
        values = np.array([by_width[int(number) + 1] for number in drafted])
        return float((values * counts).sum() / counts.sum())

    def chances(self) -> tuple[float, ...]:
        """Return for i = 1, 2, ... the chance that the first i proposals are all accepted, in rounds with so many.

        It is the product of each position's chance among the rounds that reached it (Kaplan and Meier 1958). Rounds
        with fewer proposals count for the positions that they had; rounds truncated by the answer's end, which lack
        the target's own token, count for the committed ones. It ends at the last position that was ever tried.
        """
        cut = self.committed <= self.accepted
        found, chance = [], 1.0
        for position in range(1, int(self.drafted.max(initial=0)) + 1):
            here = self.accepted >= position
            tried = int((here | ((self.drafted >= position) & (self.accepted == position - 1) & ~cut)).sum())
            if not tried and chance > 0:
                break  # no round that came so far proposed more
            chance *= float(here.sum()) / tried if tried else 0.0
            found.append(chance)
        return tuple(found)


_COLUMNS = ("drafted", "accepted", "committed", "seconds")


def plain_seconds(answers: Iterable[Answer]) -> Floats:
    """Return the time of every plain step: from each token to the next."""
    stamps = [np.diff(np.array(answer.stamps_us, dtype=np.float64)) for answer in answers if answer.stamps_us]
    found: Floats = np.concatenate([np.zeros(0), *stamps]) / 1e6
    return found


def _rounds(answer: Answer) -> Floats | None:
    """Return rows of drafted, accepted, committed, seconds; None if they are unknown."""
    if not answer.steps or not answer.stamps_us:
        return None
    steps = np.array(answer.steps, dtype=np.int64)
    stamps_us = np.array(answer.stamps_us, dtype=np.float64)
    lead = len(stamps_us) - int(steps[:, 2].sum())
    if lead not in (0, 1) or (steps[:, 2] < 1).any():
        return None  # the steps do not account for the tokens
    ends = lead + np.cumsum(steps[:, 2]) - 1
    timed = slice(1 - lead, None)
    starts = np.concatenate([[0] if lead else [], ends[:-1]]).astype(np.int64)
    seconds = (stamps_us[ends[timed]] - stamps_us[starts]) / 1e6
    return np.column_stack([steps[timed].astype(np.float64), seconds])
