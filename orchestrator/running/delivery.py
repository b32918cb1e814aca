"""Decide whether the arrival times of tokens determine the rate at which they were generated. Pure.

A server's tokens are stamped when they arrive. Tokens that arrive together have no times of their own: they are one
burst, whether they came in one chunk, in one read, or from a proxy that had held them back. Bursts lie `_gap_us` or
more apart.

Let n tokens come in K bursts at b_1 < ... < b_K, with c_1 .. c_K tokens. A flushed buffer passes on all that it holds.
So the last token was made between b_(K-1) and b_K, and the first burst's last token at most one token's time before
b_1. The rate (n - c_1) / (b_K - b_1) is then wrong by no more than about

    bound = (b_K - b_(K-1)) / (b_K - b_1)

which is 1 / (K - 1) for a buffer that a timer flushes. If the bound exceeds `TOLERANCE`, the margin within which two
rates are called equal by default, there is no rate; nor is there one if the last burst is far larger than the others,
because a sender with its own pace, which sends the rest at the end, does not pass on all that it holds. Two kinds of
streams need no such bound, since nothing is held back in them:

- token by token: nearly all bursts after the first hold one token;
- speculation that is known to run: by its verify steps, by stated counts that fit the bursts, or by a sign of it and
  bursts no larger than a verify step. A burst is then the tokens that one pass committed. A server needs at least
  `LEAST_PASSES` bursts, since a buffer in front of it looks the same.

In process a stamp follows an evaluation directly: only stamps too close for a pass between them are one burst.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from workers.protocol import Generation

TOLERANCE = 0.02
# Arrivals closer than this are one burst: no model on this hardware makes 2,000 tokens/s one by one, and a program that
# flushes a buffer writes a chunk in a tenth of that time. In process: ticks without a pass between them.
SERVED_GAP_US, IN_PROCESS_GAP_US = 500, 20
GAP_SHARE = 0.1  # of the mean gap: a server's closer arrivals were made before and sent together
_STALL = 10  # a gap counts as at most so many usual ones: one stall does not turn all other tokens into bursts
_MET_SHARE, _MET = 0.25, 2  # tokens that may catch up with another one on the way, by chance
_LAST_SHARE = 0.05  # of all tokens, or two usual bursts: a larger last burst was held back until the end
_COVERED = 0.5  # of all tokens must have come after the first burst
LEAST_PASSES = 4
MOST_PER_PASS = 17  # tokens that one verify pass commits: a block of 16 and the target's own
_FITS = 1.5  # bursts may exceed the stated counts by this factor
_PREFILL_TOLERANCE = 0.1  # of the first token's time may have gone into tokens that came with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How one generation's tokens arrived.

    Attributes:
        at_us: arrival time of each burst. sizes: tokens of each burst.
        served: over HTTP.
        by_pass: a burst of several tokens is what one pass of the mechanism committed.
        unsent: the server counted tokens whose text never came.
    """

    at_us: Sequence[int]
    sizes: Sequence[int]
    served: bool
    by_pass: bool
    unsent: bool

    @property
    def tokens(self) -> int:
        return sum(self.sizes)

    @property
    def at_once(self) -> bool:
        """Return whether several tokens all came together, although no single pass is known to have made them."""
        return len(self.sizes) == 1 and self.tokens > 1 and not self.by_pass

    @property
    def knows_first(self) -> bool:
        """Return whether the first token's time is known."""
        return bool(self.sizes) and not self.at_once and not self.unsent

    @property
    def by_token(self) -> bool:
        """Return whether no tokens were held back, except the first ones."""
        later = self.sizes[1:]
        met = sum(later) - len(later)
        if not later or met > max(_MET_SHARE * len(later), min(_MET, len(later) / 2)):
            return False
        return self.sizes[0] == 1 or self._covered

    @property
    def bound(self) -> float:
        """Return the relative error that held-back tokens can cause in the decode rate; 1: nothing is known."""
        if len(self.at_us) < 3 or not self._covered:
            return 1.0
        gaps = [later - earlier for earlier, later in pairwise(self.at_us)]
        return max(gaps[-1], median(gaps)) / (self.at_us[-1] - self.at_us[0])

    @property
    def knows_rate(self) -> bool:
        """Return whether the decode rate follows from these arrivals."""
        if len(self.sizes) < 2 or self.unsent:
            return False
        if self.by_pass:
            return not self.served or (len(self.sizes) >= LEAST_PASSES and 2 * self.sizes[-1] <= self.tokens)
        return not self._held_to_the_end and (self.by_token or self.bound <= TOLERANCE)

    @property
    def _covered(self) -> bool:
        return sum(self.sizes[1:]) >= _COVERED * self.tokens

    @property
    def _held_to_the_end(self) -> bool:
        return self.sizes[-1] > max(2 * median(self.sizes[1:]), _LAST_SHARE * self.tokens)

    def knows_prefill(self, rate_tps: float | None) -> bool:
        """Return whether the first burst's time is that of its first token, within a tenth."""
        if not self.knows_first:
            return False
        if self.by_pass or self.sizes[0] == 1:
            return True
        return rate_tps is not None and (self.sizes[0] - 1) / rate_tps <= _PREFILL_TOLERANCE * self.at_us[0] / 1e6

    def flags(self) -> Iterator[str]:
        """Yield the codes of the rates that the arrivals do not determine."""
        if self.at_once:
            yield "delivered_at_once"
        elif len(self.sizes) > 1 and not self.knows_rate and not self.unsent:
            yield "delivered_in_bursts"
        elif self.knows_rate and not self.by_pass and not self.by_token:
            yield "batched_delivery"


def read_delivery(generation: Generation) -> Delivery:
    """Read from a generation how its tokens arrived."""
    served = generation.stamps_of == "chunk"
    stamps_us = generation.stamps_us
    limit_us = _gap_us(stamps_us) if served else IN_PROCESS_GAP_US
    at_us: list[int] = []
    sizes: list[int] = []
    for place, stamp in enumerate(stamps_us):
        if place and stamp - stamps_us[place - 1] < limit_us:
            sizes[-1] += 1
        else:
            at_us.append(stamp)
            sizes.append(1)
    return Delivery(
        at_us=at_us,
        sizes=sizes,
        served=served,
        by_pass=_by_pass(generation, sizes),
        unsent="reasoning_not_sent" in generation.flags,
    )


def _gap_us(stamps_us: Sequence[int]) -> float:
    """Return the gap below which arrivals are one burst."""
    gaps = [later - earlier for earlier, later in pairwise(stamps_us)]
    apart = [gap for gap in gaps if gap >= SERVED_GAP_US]
    if not apart:
        return SERVED_GAP_US
    longest = _STALL * median(apart)
    return max(SERVED_GAP_US, GAP_SHARE * fmean(min(gap, longest) for gap in gaps))


def _by_pass(generation: Generation, sizes: Sequence[int]) -> bool:
    """Return whether the mechanism's passes explain that several tokens came together."""
    if not sizes:
        return False
    mean = sum(sizes) / len(sizes)
    passes = _passes(generation)
    if passes is not None:
        return mean <= _FITS * max(1.0, generation.tokens / passes)
    runs = any(sign.requested and sign.engaged is not False for sign in generation.evidence)
    return runs and max(sizes) <= MOST_PER_PASS


def _passes(generation: Generation) -> int | None:
    """Return the number of the target's passes, by the verify steps or by a server's count; None if unknown."""
    if generation.steps is not None:
        first = generation.tokens - sum(step[2] for step in generation.steps)
        return max(1, len(generation.steps) + max(first, 0))
    accepted = [sign.accepted for sign in generation.evidence if sign.requested and sign.accepted is not None]
    return max(1, generation.tokens - sum(accepted)) if accepted else None
