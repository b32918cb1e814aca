"""What an arm holds, beside its memory plan: after loading, and at its highest while it ran."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orchestrator.plan import Plan
from orchestrator.planning.memory import held_note, load_note, peak_note
from orchestrator.planning.residency import plan_of
from orchestrator.running.amending import note_memory
from orchestrator.running.crew import Member
from orchestrator.running.outcome import LoadMemory, Outcome
from orchestrator.running.recorder import Recorder
from workers.machine.memory import tree_peak_bytes


@dataclass(slots=True, kw_only=True)
class Footprints:
    """Of one run. Each arm's difference is told once; swapped arms load many times.

    Args:
        weights_bytes: planned, by arm, the draft's included. None: unknown.
        total_bytes: planned, by arm, with caches and overhead.
        note: told of a difference.
        store: keeps an arm's difference with it.
    """

    weights_bytes: Mapping[str, int | None] = field(default_factory=dict)
    total_bytes: Mapping[str, int | None] = field(default_factory=dict)
    note: Callable[[str], None] = lambda text: None
    store: Callable[[str, str], None] = lambda arm, text: None
    _load_notes: dict[str, str] = field(default_factory=dict)
    _peak_notes: dict[str, str] = field(default_factory=dict)

    def after_load(self, arm: str, member: Member) -> LoadMemory:
        """What is in use after loading, against the planned weights."""
        planned, in_use = self.weights_bytes.get(arm), member.loaded.active_memory_bytes
        held = None if member.loaded.simulated else member.process.held_bytes()
        found = load_note(planned_bytes=planned, measured_bytes=in_use)
        if in_use is None and self.total_bytes.get(arm) != 0:  # 0: a server that ran already holds it
            found = held_note(planned_bytes=planned, held_bytes=held)
        if found is not None and arm not in self._load_notes:
            self._load_notes[arm] = found
            self.note(f"{arm}: {found}")
        return LoadMemory(planned_bytes=planned, footprint_bytes=held, note=self._noted(arm))

    def after_trial(self, arm: str, member: Member, outcome: Outcome) -> None:
        """The highest so far, against all that was planned: caches that grow come later than the load."""
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
    """Of a run that is recorded: what its plan says each arm will hold."""
    return Footprints(
        weights_bytes=weights_bytes,
        total_bytes={arm.name: arm.total_bytes for arm in plan_of(plan.arms, plan.prompts).arms},
        note=note,
        store=lambda arm, text: note_memory(recorder.database, arm_id=recorder.arm_ids[arm], text=text),
    )
