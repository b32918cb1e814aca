"""What is known of the machine while a run runs: full readings around the trials, cheap samples in between."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from workers.machine.samples import Sample, Sampler, summarise
from workers.machine.telemetry import CHEAP, Reading, read_machine

KEPT_S = 60.0
NO_SAMPLER = "no sampler ran: gate.sampler is off, or nothing here is measured"


@dataclass(slots=True, kw_only=True)
class Lookout:
    """The run's eyes. Times are `clock`'s monotonic seconds, the sampler's as well."""

    readings: Callable[[], tuple[Reading, ...]] = read_machine
    sampler: Sampler | None = None
    also: Callable[[], tuple[Reading, ...]] = tuple  # what the run itself knows of the machine
    clock: Callable[[], float] = time.monotonic
    kept_s: float = KEPT_S  # at least as long as the gate looks back
    _full: deque[Sample] = field(default_factory=deque)

    def read(self) -> tuple[Reading, ...]:
        """Everything, now."""
        at_s = self.clock()
        found = (*self.readings(), *self.also())
        self._full.append(Sample(at_s=at_s, readings=found))
        while self._full[0].at_s < at_s - self.kept_s:
            self._full.popleft()
        return found

    def recent(self) -> Sequence[Sample]:
        """For the gate: everything now, and what was seen lately. What the sampler reads is taken from it alone."""
        self.read()
        since_s = max(self.clock() - self.kept_s, 0.0)
        sampled = [] if self.sampler is None else self.sampler.since(since_s)
        full = [sample for sample in self._full if sample.at_s >= since_s]
        if sampled:
            full = [_without_cheap(sample) for sample in full]
        return sorted([*sampled, *full], key=lambda sample: sample.at_s)

    def latest(self) -> tuple[Reading, ...]:
        """The newest full reading."""
        return self._full[-1].readings if self._full else self.read()

    def since(self, at_s: float) -> tuple[Reading, ...]:
        """What the sampler saw from this moment on."""
        if self.sampler is None:
            return (Reading(field="samples", source="sampler", reason=NO_SAMPLER),)
        return summarise(self.sampler.since(at_s), problem=self.sampler.problem)


def _without_cheap(sample: Sample) -> Sample:
    return replace(sample, readings=tuple(reading for reading in sample.readings if reading.field not in CHEAP))
