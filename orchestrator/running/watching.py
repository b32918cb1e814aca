"""What a run needs of the machine while it runs: awake, sampled, and a gate before each trial."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from orchestrator.plan import Plan
from orchestrator.planning.residency import is_simulated
from orchestrator.running.gate import Gatekeeper
from orchestrator.running.lookout import KEPT_S, Lookout
from workers.machine.samples import Sampler
from workers.machine.sleep_inhibitor import keep_awake
from workers.machine.telemetry import read_machine


@contextmanager
def watched(plan: Plan, notify: Callable[[str], None]) -> Iterator[tuple[Lookout, Gatekeeper | None]]:
    """The machine, kept awake and looked at until the run ends.

    A simulated run measures nothing of it: nothing is waited for and no sampler runs.
    """
    if all(is_simulated(arm) for arm in plan.arms):
        yield Lookout(), None
        return
    with ExitStack() as stack:
        awake = stack.enter_context(keep_awake(os.getpid()))
        sampler = stack.enter_context(Sampler(interval_s=plan.gate.sampler_interval_s)) if plan.gate.sampler else None
        kept_s = max(KEPT_S, 2 * plan.gate.thermal_hold_s, 2 * plan.gate.cpu_window_s, 2 * plan.gate.gpu_window_s)
        lookout = Lookout(readings=lambda: (*read_machine(), awake.reading()), sampler=sampler, kept_s=kept_s)
        keeper = Gatekeeper(
            gate=plan.gate, samples=lookout.recent, clock=time.monotonic, sleep=time.sleep, notify=notify
        )
        yield lookout, keeper
