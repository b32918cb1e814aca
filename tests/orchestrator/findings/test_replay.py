"""Which rounds the width applies to."""

import numpy as np

from orchestrator.findings.replay import is_free
from orchestrator.findings.rounds import Rounds


def test_a_round_as_long_as_the_width_or_longer_is_the_same_at_any_width() -> None:
    """At most width - 1 tokens are drafted: more is a copy, and none is a plain step."""
    drafted = np.array([0, 1, 3, 4, 9])
    rounds = Rounds(drafted=drafted, accepted=drafted, committed=drafted + 1, seconds=np.ones(5))
    assert is_free(rounds, 4).tolist() == [False, True, True, False, False]
