"""Short decodes that are never measured: the one that wakes a device, and the canary's.

macOS unwires what the GPU has not used for about a second, so the first decode of an arm that waited while others ran
can be several times slower. A few tokens before the trial's clock starts absorb that cost: the prompt's pass reads the
weights, the passes after it read them and a draft's again. Every trial of every arm gets the same, the control's second
entry included, however long it waited, so that no arm is favoured by its place in a round.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.plan import Gate, Plan
from orchestrator.running.crew import Member
from orchestrator.running.measures import measure
from orchestrator.schedule import ScheduledTrial
from workers.machine.telemetry import Reading
from workers.protocol import Generate

# Used if `wake_tokens` is null. Only Metal is known to unwire; elsewhere it would cost a prompt per trial for nothing.
_WAKE_TOKENS = {"darwin": 4}
_PROMPT = ({"role": "user", "content": "Good morning. Count to fifty."},)  # short, with a beginning of its own


def wake_tokens(gate: Gate, platform: str = sys.platform) -> int:
    """Return how many tokens wake an arm before each trial; 0: no wake-up."""
    return _WAKE_TOKENS.get(platform, 0) if gate.wake_tokens is None else gate.wake_tokens


@dataclass(slots=True, kw_only=True)
class ShortDecodes:
    """The short decodes of one run.

    Args:
        sequence_total: the schedule's length, which a simulated clock needs.
    """

    plan: Plan
    sequence_total: int
    platform: str = sys.platform
    clock: Callable[[], float] = time.monotonic
    cold_tps: dict[str, float] = field(default_factory=dict)  # by arm: decode rate of its first canary

    def wake(self, trial: ScheduledTrial, member: Member) -> tuple[Reading, ...]:
        """Let the arm decode a few tokens. Return its time, which is stored beside the trial and never compared.

        Raises:
            workers.errors.WorkerFault: as in a trial.
        """
        tokens = wake_tokens(self.plan.gate, self.platform)
        if not tokens or trial.kind == "warmup" or member.loaded.simulated:
            return ()
        started_s = self.clock()
        (found,) = member.generate(self._request("wake", trial, tokens))
        source = f"a decode of {tokens} tokens just before the trial"
        rate_tps = measure(found).decode_tps
        reason = "too few tokens for a rate" if rate_tps is None else None
        return (
            Reading(field="wake_s", value=self.clock() - started_s, source=source),
            Reading(field="wake_tps", value=rate_tps, source=source, reason=reason),
        )

    def canary(self, trial: ScheduledTrial, member: Member) -> float | None:
        """Return the decode rate of a short fixed request over that of the arm's first one, or None if it is too short.

        Raises:
            workers.errors.WorkerFault: as in a trial.
        """
        (found,) = member.generate(self._request("canary", trial, self.plan.gate.canary_tokens))
        rate_tps = measure(found).decode_tps
        if rate_tps is None:
            return None
        return rate_tps / self.cold_tps.setdefault(trial.arm, rate_tps)

    def _request(self, kind: str, trial: ScheduledTrial, max_tokens: int) -> Generate:
        return Generate(
            request_id=f"{kind}/{trial.sequence}",
            turns=[[dict(message) for message in _PROMPT]],
            max_tokens=max_tokens,
            seed=self.plan.design.seed,
            sequence=trial.sequence,
            sequence_total=self.sequence_total,
            prompt_class=self.plan.prompts[0].prompt_class,
        )
