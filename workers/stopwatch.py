"""The one stopwatch: it stamps every engine's tokens, after their evaluation, with the same few instructions."""

import time
from collections.abc import Callable, Sequence

Clock = Callable[[], int]  # monotonic nanoseconds
Tick = Callable[[], None]


class Stopwatch:
    """Stamps what an answer brings, as it comes.

    Per stamp: one call, one clock call and one list append. `stamps_ns` may be read from another thread while it grows.
    """

    __slots__ = ("_clock", "stamps_ns", "started_ns")

    def __init__(self, clock: Clock = time.perf_counter_ns) -> None:
        self._clock = clock
        self.started_ns = 0
        self.stamps_ns: list[int] = []

    def time(self, answer: Callable[[Tick], None]) -> None:
        """Let it answer; each of its ticks is stamped, and the start before its first instruction."""
        clock, append = self._clock, self.stamps_ns.append

        def tick() -> None:
            append(clock())

        self.started_ns = clock()
        answer(tick)

    def stamps_us(self, tokens_per_stamp: Sequence[int] | None = None) -> list[int]:
        """One stamp per token, in microseconds since the start.

        Args:
            tokens_per_stamp: how many tokens each stamp brought; None: one each. Tokens that one evaluation brought
                together share its stamp.

        Raises:
            ValueError: not one count a stamp.
        """
        since_start = [(stamp - self.started_ns + 500) // 1000 for stamp in self.stamps_ns]
        if tokens_per_stamp is None:
            return since_start
        return [stamp for stamp, count in zip(since_start, tokens_per_stamp, strict=True) for _ in range(count)]
