"""Memory after a worker's end: what a killed process held can take seconds to come back, and slows the next arm."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

POLL_S = 0.1
STILL_POLLS = 2  # so many looks in a row without a change that matters
STILL_SHARE = 0.002  # of all memory: 100 MB of 48 GB


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How the wait ended."""

    waited_s: float
    still: bool  # False: memory was still coming back when the time was up


def wait_until_settled(
    timeout_s: float,
    *,
    available_bytes: Callable[[], int] = lambda: int(psutil.virtual_memory().available),
    total_bytes: Callable[[], int] = lambda: int(psutil.virtual_memory().total),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Settled:
    """Wait until the available memory no longer grows, `timeout_s` at most. Whatever shrinks is others' doing."""
    started = clock()
    step = STILL_SHARE * total_bytes()
    before, still = available_bytes(), 0
    while still < STILL_POLLS:
        if clock() - started >= timeout_s:
            return Settled(waited_s=clock() - started, still=False)
        sleep(POLL_S)
        now = available_bytes()
        still = still + 1 if now - before <= step else 0
        before = now
    return Settled(waited_s=clock() - started, still=True)
