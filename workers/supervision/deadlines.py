"""Deadlines of a request: a worker that misses one is taken for stuck. Pure but for its clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from workers.errors import FaultKind
from workers.protocol import Heartbeat


class Deadlines(Protocol):
    """Time limits after which a worker is taken for stuck. `orchestrator.plan.Deadlines` is one."""

    @property
    def load_s(self) -> float:
        """Start the deadline from the spawn until the engine is ready."""

    @property
    def first_token_s(self) -> float:
        """Start the deadline from a turn's start until its first token."""

    @property
    def inter_token_s(self) -> float:
        """Between two tokens, and from the last one to the turn's record."""

    @property
    def total_s(self) -> float:
        """Return the deadline of a whole request with all its turns."""

    @property
    def teardown_s(self) -> float:
        """Return the deadline of `stop`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A deadline, and the fault that its passing means."""

    at: float  # time.monotonic()
    kind: FaultKind
    words: str


class Watch:
    """Follows the heartbeats and names the next deadline."""

    def __init__(self, deadlines: Deadlines, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._deadlines = deadlines
        self._clock = clock
        self._since = clock()  # the turn's start, or its last sign of growth
        self._tokens = 0
        self._total = Due(
            at=self._since + deadlines.total_s,
            kind=FaultKind.too_long,
            words=f"the request took more than {deadlines.total_s:g} s",
        )

    def next_due(self) -> Due:
        """The next deadline."""
        return min(self._turn_due(), self._total, key=lambda due: due.at)

    def beat(self, heartbeat: Heartbeat) -> None:
        """Growth starts the inter-token deadline anew; a beat without growth changes nothing."""
        if heartbeat.tokens != self._tokens:
            self._tokens = heartbeat.tokens
            self._since = self._clock()

    def turn_answered(self) -> None:
        """The next turn waits for its own first token."""
        self._tokens = 0
        self._since = self._clock()

    def _turn_due(self) -> Due:
        if not self._tokens:
            limit_s = self._deadlines.first_token_s
            words = f"no first token within {limit_s:g} s"
            return Due(at=self._since + limit_s, kind=FaultKind.hung_first_token, words=words)
        limit_s = self._deadlines.inter_token_s
        words = f"nothing for {limit_s:g} s after {self._tokens} tokens"
        return Due(at=self._since + limit_s, kind=FaultKind.hung_inter_token, words=words)
