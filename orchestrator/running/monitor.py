"""Readings during a run: of the machine, around and between the trials, and of the memory that each arm holds."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from orchestrator.plan import Plan
from orchestrator.planning.memory import held_note, load_note, peak_note
from orchestrator.planning.residency import is_simulated, plan_of
from orchestrator.running.crew import Member
from orchestrator.running.gate import Gatekeeper
from orchestrator.running.recorder import Recorder, note_memory
from orchestrator.running.trial import LoadMemory, Outcome
from workers.machine.memory import tree_peak_bytes
from workers.machine.samples import Sample, Sampler, summarise
from workers.machine.sleep_inhibitor import keep_awake
from workers.machine.telemetry import CHEAP, Reading, read_machine


@dataclass(slots=True, kw_only=True)
class Footprints:
    """Compares the memory of a run's arms with the plan. A difference is reported once per arm, however often it loads.

    Args:
        weights_bytes: planned, by arm, the draft's included. None: unknown.
        total_bytes: planned, by arm, with caches and overhead.
        note: called with each difference.
        store: stores a difference with its arm.
    """

    weights_bytes: Mapping[str, int | None] = field(default_factory=dict)
    total_bytes: Mapping[str, int | None] = field(default_factory=dict)
    note: Callable[[str], None] = lambda text: None
    store: Callable[[str, str], None] = lambda arm, text: None
    _load_notes: dict[str, str] = field(default_factory=dict)
    _peak_notes: dict[str, str] = field(default_factory=dict)

    def after_load(self, arm: str, member: Member) -> LoadMemory:
        """Compare the memory in use after loading with the planned weights."""
        planned, in_use = self.weights_bytes.get(arm), member.loaded.active_memory_bytes
        held = None if member.loaded.simulated else member.process.held_bytes()
        found = load_note(planned_bytes=planned, measured_bytes=in_use)
        if in_use is None and self.total_bytes.get(arm) != 0:  # 0: a server that was already running holds it
            found = held_note(planned_bytes=planned, held_bytes=held)
        if found is not None and arm not in self._load_notes:
            self._load_notes[arm] = found
            self.note(f"{arm}: {found}")
        return LoadMemory(planned_bytes=planned, footprint_bytes=held, note=self._noted(arm))

    def after_trial(self, arm: str, member: Member, outcome: Outcome) -> None:
        """Compare the peak so far with the whole planned memory: caches grow after the load."""
        if arm in self._peak_notes or member.loaded.simulated or self.total_bytes.get(arm) is None:
            return
        peaks = [generation.peak_memory_bytes for _, generation in outcome.generations]
        peaks.append(None if member.process.pid is None else tree_peak_bytes(member.process.pid))
        highest = max((peak for peak in peaks if peak is not None), default=None)
        found = peak_note(planned_bytes=self.total_bytes[arm], peak_bytes=highest)
        if found is not None:
            self._peak_notes[arm] = found
            self.note(f"{arm}: {found}")
            self.store(arm, self._noted(arm) or found)

    def _noted(self, arm: str) -> str | None:
        found = [notes[arm] for notes in (self._load_notes, self._peak_notes) if arm in notes]
        return "; ".join(found) or None


def planned_footprints(
    plan: Plan, recorder: Recorder, *, weights_bytes: Mapping[str, int | None], note: Callable[[str], None]
) -> Footprints:
    """Return the footprints of a recorded run, with the planned memory of each arm."""
    return Footprints(
        weights_bytes=weights_bytes,
        total_bytes={arm.name: arm.total_bytes for arm in plan_of(plan.arms, plan.prompts).arms},
        note=note,
        store=lambda arm, text: note_memory(recorder.database, arm_id=recorder.arm_ids[arm], text=text),
    )


KEPT_S = 60.0
NO_SAMPLER = "no sampler ran: gate.sampler is off, or nothing here is measured"


@dataclass(slots=True, kw_only=True)
class Lookout:
    """The run's eyes. Times are `clock`'s monotonic seconds, the sampler's as well."""

    readings: Callable[[], tuple[Reading, ...]] = read_machine
    sampler: Sampler | None = None
    also: Callable[[], tuple[Reading, ...]] = tuple  # the run's own readings of the machine
    clock: Callable[[], float] = time.monotonic
    kept_s: float = KEPT_S  # at least as long as the gate looks back
    _full: deque[Sample] = field(default_factory=deque)

    def read(self) -> tuple[Reading, ...]:
        """Read everything now."""
        at_s = self.clock()
        found = (*self.readings(), *self.also())
        self._full.append(Sample(at_s=at_s, readings=found))
        while self._full[0].at_s < at_s - self.kept_s:
            self._full.popleft()
        return found

    def recent(self) -> Sequence[Sample]:
        """Return the recent samples and a full reading for the gate. The sampler's fields come from it alone."""
        self.read()
        since_s = max(self.clock() - self.kept_s, 0.0)
        sampled = [] if self.sampler is None else self.sampler.since(since_s)
        full = [sample for sample in self._full if sample.at_s >= since_s]
        if sampled:
            full = [_without_cheap(sample) for sample in full]
        return sorted([*sampled, *full], key=lambda sample: sample.at_s)

    def latest(self) -> tuple[Reading, ...]:
        """Return the newest full reading."""
        return self._full[-1].readings if self._full else self.read()

    def since(self, at_s: float) -> tuple[Reading, ...]:
        """Return the sampler's readings since this moment, summarised."""
        if self.sampler is None:
            return (Reading(field="samples", source="sampler", reason=NO_SAMPLER),)
        return summarise(self.sampler.since(at_s), problem=self.sampler.problem)


def _without_cheap(sample: Sample) -> Sample:
    return replace(sample, readings=tuple(reading for reading in sample.readings if reading.field not in CHEAP))


@contextmanager
def watched(plan: Plan, notify: Callable[[str], None]) -> Iterator[tuple[Lookout, Gatekeeper | None]]:
    """Keep the machine awake and take readings until the run ends.

    A simulated run measures nothing: nothing is waited for and no sampler runs.
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
