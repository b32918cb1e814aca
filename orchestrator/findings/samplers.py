"""Check which comparisons the arms' samplers allow. Pure.

A proposal is accepted if it matches the target's choice, so the accept length means something else under another
sampler: only arms with equal samplers are comparable.
"""

from collections.abc import Sequence

import numpy as np

from orchestrator.findings.records import Answer, ArmRecord
from orchestrator.findings.rounds import Rounds
from orchestrator.findings.values import Samplers, TemperaturePoint
from workers.sampling import sampler_words


def sampling(arms: Sequence[ArmRecord], answers: Sequence[Answer]) -> Samplers:
    """Return the note, and the acceptance of speculative arms at each temperature if the run has several."""
    settings = dict.fromkeys(key for arm in arms for key in arm.sampler)
    differing = [key for key in settings if any(arm.sampler.get(key) != arms[0].sampler.get(key) for arm in arms)]
    if not differing:
        return Samplers(note=None, by_temperature=())
    listed = "; ".join(f"{arm.name} at {sampler_words(arm.sampler)}" for arm in arms)
    return Samplers(
        note=f"only arms with equal samplers are comparable, and these differ in {', '.join(differing)}: {listed}",
        by_temperature=tuple(
            _point(arm, [answer for answer in answers if answer.measured and answer.arm == arm.name])
            for arm in sorted(arms, key=lambda arm: (arm.temperature is None, arm.temperature or 0.0))
            if arm.speculates and "temperature" in differing
        ),
    )


def _point(arm: ArmRecord, mine: Sequence[Answer]) -> TemperaturePoint:
    steps = np.array([step for answer in mine for step in answer.steps or ()]).reshape(-1, 3)
    drafted = int(steps[:, 0].sum())
    return TemperaturePoint(
        arm=arm.name,
        engine=arm.engine,
        checkpoint=arm.checkpoint or "unknown",
        width=arm.width,
        temperature=arm.temperature,
        accept_length=Rounds.of(mine).accept_length,
        acceptance_rate=float(steps[:, 1].sum() / drafted) if drafted else None,
    )
