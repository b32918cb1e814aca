"""What must hold before a trial starts. Clock, sleep and reading come from outside, so that tests wait for nothing."""

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.plan import Gate

POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """How a trial got through the gate."""

    waited_s: float
    hot_start: str | None  # why it started although the machine was still hot; None: it was not


def wait(
    gate: Gate,
    *,
    thermal_level: Callable[[], float | None],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    notify: Callable[[str], None] = lambda text: None,
) -> Passage:
    """Cool down, then wait for the thermal level, at most `gate.timeout_s`.

    Args:
        thermal_level: the machine's level now (0 nominal); None where it reports none, which passes.
        clock: monotonic seconds.
        notify: told what is waited for, once a poll.
    """
    started = clock()
    if gate.cooldown_s > 0:
        notify(f"cooling down for {gate.cooldown_s:g} s")
        sleep(gate.cooldown_s)
    deadline = clock() + gate.timeout_s
    while (level := thermal_level()) is not None and level > gate.thermal_level_max:
        if clock() >= deadline:
            reason = f"thermal level {level:g} above {gate.thermal_level_max} after {gate.timeout_s:g} s"
            return Passage(waited_s=clock() - started, hot_start=reason)
        notify(f"thermal level {level:g}, waiting for {gate.thermal_level_max}")
        sleep(POLL_S)
    return Passage(waited_s=clock() - started, hot_start=None)
