"""Executes a plan: loads the arms, walks the schedule, stores each trial as it ends.

A fault of one trial never ends the night: it is stored with its kind and the run goes on; an arm that fails three times
in a row is dropped. Only a control that cannot run, an interruption or a stop of the machine ends a run early, and such
a run can be resumed. A run that is asked to stop finishes its round first.
"""

import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from orchestrator.errors import IncompleteError, StoppedError
from orchestrator.plan import Arm, Plan, Prompt
from orchestrator.running.crew import Crew, Member
from orchestrator.running.events import Observer
from orchestrator.running.gate import OPEN, Gatekeeper, Passage
from orchestrator.running.leftovers import Patrol
from orchestrator.running.monitor import Footprints, Lookout, planned_footprints
from orchestrator.running.preflight import refusal, try_arm
from orchestrator.running.progress import Remainder, Unit
from orchestrator.running.recorder import Recorder, spoil_newest_trial
from orchestrator.running.short_decodes import ShortDecodes
from orchestrator.running.trial import Fault, Outcome, Verdict
from orchestrator.schedule import ScheduledTrial, replay_seed
from workers.errors import FaultKind, WorkerFault
from workers.machine.host import HostFacts
from workers.machine.telemetry import Reading
from workers.protocol import Generate, Generation

FAULTS_IN_A_ROW = 3  # after so many an arm is dropped


@dataclass(slots=True)
class Streaks:
    """Consecutive faults, by arm."""

    _now: Counter[str] = field(default_factory=Counter)
    _before: Counter[str] = field(default_factory=Counter)  # the newest trial

    def ended(self, arm: str, *, faulty: bool) -> bool:
        """Count a trial of the arm that has ended. Return whether the arm is to be dropped."""
        self._before[arm] = self._now[arm]
        self._now[arm] = self._now[arm] + 1 if faulty else 0
        return self._now[arm] >= FAULTS_IN_A_ROW

    def spoiled(self, arm: str) -> bool:
        """Count the arm's newest trial as a fault after all. Return whether the arm is to be dropped."""
        self._now[arm] = self._before[arm] + 1
        return self._now[arm] >= FAULTS_IN_A_ROW


# Called once all trials of a run are stored, while the crew's workers are loaded (or load again on demand). A run that
# was killed in it is resumed at this point: it must find what it has already stored, and not store it twice.
AfterRounds = Callable[[Plan, Recorder, Crew], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Two clocks, in seconds: the wall clock (since the epoch, may be set) and a monotonic one (stops in sleep)."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class Runner:
    """One run of one plan on this machine."""

    plan: Plan
    schedule: Sequence[ScheduledTrial]
    recorder: Recorder
    crew: Crew
    host: HostFacts
    observer: Observer
    lookout: Lookout = field(default_factory=Lookout)
    keeper: Gatekeeper | None = None  # None: nothing is waited for
    clocks: Clocks = field(default_factory=Clocks)
    planned_bytes: Mapping[str, int | None] = field(default_factory=dict)  # by arm: weights, draft included
    dropped: set[str] = field(default_factory=set)
    # The treatments whose comparisons are decided, and how; called after each round of a design that may stop early.
    decisions: Callable[[], Mapping[str, str]] = dict
    decided: set[str] = field(default_factory=set)
    streaks: Streaks = field(default_factory=Streaks)
    should_stop: Callable[[], bool] = lambda: False  # called before each round and each control run
    after_rounds: AfterRounds | None = None

    short: ShortDecodes = field(init=False)
    footprints: Footprints = field(init=False)

    def __post_init__(self) -> None:
        self.short = ShortDecodes(plan=self.plan, sequence_total=len(self.schedule))
        self.footprints = planned_footprints(
            self.plan, self.recorder, weights_bytes=self.planned_bytes, note=self.observer.noted
        )
        self.crew.hung = self._teardown_hung
        if self.keeper is not None:
            self._watch_over(self.keeper)

    def _watch_over(self, keeper: Gatekeeper) -> None:
        """Make the gatekeeper look before each trial for leftovers and for memory that an ended arm still holds."""
        self.lookout.also = lambda: (self.crew.memory_reading(),)
        keeper.leftovers = Patrol(
            journal=self.crew.journal_path,
            gate=self.plan.gate,
            note=self.observer.noted,
            arms_in_use=lambda: self.crew.members,
            survivors=lambda: self.crew.survivors,
        ).look

    def run(self, left: Remainder) -> None:
        """Execute everything that is left.

        Raises:
            InputError: an arm failed its preflight and the design demands a stop.
            RefusedError: the same, by a fault of the machine in its present state.
            IncompleteError: the control was dropped.
            StoppedError: a stop was requested; the current round was finished.
        """
        try:
            if left.units:
                self._preflight()
            self.observer.planned(self.plan)
            self.observer.started(left)
            for done, unit in enumerate(left.units):
                if self.should_stop():
                    raise StoppedError(len(left.units) - done)
                if unit.round is None or self._undecided():
                    self._run_unit(unit)
                    self._decide(unit)
            self._afterwards()
        finally:
            self.crew.close()

    def _afterwards(self) -> None:
        """Run the probes while the workers are loaded. The trials are stored: no fault here costs one."""
        if self.after_rounds is None:
            return
        try:
            self.after_rounds(self.plan, self.recorder, self.crew)
        except Exception as error:  # noqa: BLE001 - whatever a probe meets, the run is whole; the note says what it was
            self.observer.noted(f"after the last round: {type(error).__name__}: {error}")

    # ---- before the first round ----

    def _preflight(self) -> None:
        """Each arm runs a few tokens and shows its evidence, before the night starts."""
        for arm in self.plan.arms:
            if arm.name in self.dropped:
                continue
            self.observer.checking(arm.name)
            problem = try_arm(self.plan, arm, self.crew, on_load=partial(self._loaded, arm))
            self.observer.preflight(arm.name, problem)
            if problem is None:
                continue
            kind, _, words = problem.partition(": ")
            problem = f"{kind}: {words.removeprefix(f'arm {arm.name}: ')}"  # the arm is named once
            if self.plan.design.on_preflight_failure == "stop" or arm.name == self.plan.control:
                raise refusal(kind, f"arm {arm.name} failed its preflight: {problem}")
            self._drop(arm, f"preflight: {problem}")

    def _member(self, arm: Arm) -> Member:
        return self.crew.member(arm, on_load=partial(self._loaded, arm))

    def _loaded(self, arm: Arm, member: Member) -> None:
        """Record and warm up a model that was just loaded, at any point of the run."""
        self.recorder.arm_loaded(
            arm, member.hello, member.loaded, self.host, memory=self.footprints.after_load(arm.name, member)
        )
        for trial in self.schedule:
            if trial.kind == "warmup" and trial.arm == arm.name:
                outcome = self._measure(trial, member)
                self.recorder.save(outcome, attempt=0, order=())
                if outcome.fault is not None:
                    raise WorkerFault(FaultKind(outcome.fault.kind), outcome.fault.message)

    # ---- trials ----

    def _undecided(self) -> bool:
        """Return whether any comparison is still undecided; always true for a design that does not stop early."""
        if self.plan.design.stop != "early":
            return True
        treatments = {arm.name for arm in self.plan.arms} - {self.plan.control}
        return not treatments or bool(treatments - self.decided - self.dropped)

    def _decide(self, unit: Unit) -> None:
        """Drop the arms whose comparison is decided; rounds go on for the others."""
        if self.plan.design.stop != "early" or unit.round is None:
            return
        for arm, how in self.decisions().items():
            if arm not in self.decided:
                self.decided.add(arm)
                self.observer.noted(f"{arm} is decided after round {unit.round + 1}: {how}")

    def _run_unit(self, unit: Unit) -> None:
        """Run a round; replay it whole, in another order, while a rule excludes a trial and the plan allows it."""
        while True:
            self.observer.unit_started(unit)
            reasons = []
            for trial in unit.trials:
                if trial.arm not in self.dropped | self.decided:
                    reasons.append(self._run_trial(trial, unit).excluded_reason)
            why = next((reason for reason in reasons if reason is not None), None)
            if why is None or unit.attempt >= self.plan.gate.replays:
                return
            if unit.round is not None:
                self.recorder.exclude_round(unit.round, reason=f"round_replayed: {why}")
            unit = unit.again(seed=replay_seed(self.plan))
            self.observer.unit_replayed(unit)

    def _run_trial(self, trial: ScheduledTrial, unit: Unit) -> Verdict:
        self.observer.trial_started(trial)
        arm = next(arm for arm in self.plan.arms if arm.name == trial.arm)
        try:
            member = self._member(arm)
        except WorkerFault as fault:
            outcome = self._not_loaded(trial, fault)
        else:
            outcome = self._measure(trial, member)
            self.footprints.after_trial(arm.name, member, outcome)
        verdict = self.recorder.save(outcome, attempt=unit.attempt, order=unit.order)
        self.observer.trial_ended(trial, verdict, outcome)
        self._count_faults(arm, verdict)
        return verdict

    def _count_faults(self, arm: Arm, verdict: Verdict) -> None:
        if self.streaks.ended(arm.name, faulty=verdict.fault is not None) and verdict.fault is not None:
            self._drop(arm, f"{FAULTS_IN_A_ROW} faults in a row; the last: {verdict.fault.message}")

    def _teardown_hung(self, name: str, words: str) -> None:
        """Spoil the last trial of a swapped arm that had to be killed to make room: its end belongs to its trial."""
        fault = Fault(kind=FaultKind.teardown_hang, message=f"arm {name}: {words}")
        arm_id = self.recorder.arm_ids[name]
        if not spoil_newest_trial(self.recorder.database, run_id=self.recorder.run_id, arm_id=arm_id, fault=fault):
            return
        self.observer.noted(f"{name}: the trial before is invalid: {fault.kind}")
        if self.streaks.spoiled(name) and name not in self.dropped:
            arm = next(arm for arm in self.plan.arms if arm.name == name)
            self._drop(arm, f"{FAULTS_IN_A_ROW} faults in a row; the last: {fault.message}")

    def _drop(self, arm: Arm, reason: str) -> None:
        self.dropped.add(arm.name)
        self.crew.discard(arm)
        self.recorder.arm_dropped(arm, reason)
        self.observer.arm_dropped(arm.name, reason)
        if arm.name == self.plan.control:
            raise IncompleteError(f"the control {arm.name} takes no further part ({reason}): nothing left to compare")

    def _measure(self, trial: ScheduledTrial, member: Member) -> Outcome:
        """Pass the gate, read the machine, run the trial, read again. A fault becomes part of the outcome."""
        answered: list[tuple[Prompt, Generation]] = []
        fault, passage = None, OPEN
        under_way: Prompt | None = None  # None: a short decode before the first one
        before: tuple[Reading, ...] | None = None
        wall, monotonic = self.clocks.wall(), self.clocks.monotonic()
        try:
            passage = self._pass_gate(trial, member)
            before = self._before(trial)
            if trial.kind != "warmup":
                self.observer.measuring(trial)
            if not passage.skipped and self.keeper is not None:
                before = (*before, *self.short.wake(trial, member))
            wall, monotonic = self.clocks.wall(), self.clocks.monotonic()
            for prompt in [] if passage.skipped else self._prompts(trial):
                under_way = prompt
                answered += [(prompt, answer) for answer in self._ask(trial, prompt, member)]
        except WorkerFault as error:
            fault = _fault(error)
            if under_way is not None:
                answered += [(under_way, answer) for answer in error.generations]
            if not error.alive:
                self.crew.members.pop(trial.arm, None)
        wall_s, monotonic_s = self.clocks.wall() - wall, self.clocks.monotonic() - monotonic
        during = self.lookout.since(monotonic)
        return Outcome(
            trial=trial,
            started_at=dt.datetime.fromtimestamp(wall, dt.UTC),
            wall_s=wall_s,
            monotonic_s=monotonic_s,
            passage=passage,
            generations=answered,
            fault=fault,
            before=self.lookout.latest() if before is None else before,
            during=during,
            after=self.lookout.read(),
            log_path=str(member.log_path),
        )

    def _ask(self, trial: ScheduledTrial, prompt: Prompt, member: Member) -> Sequence[Generation]:
        request = Generate(
            request_id=f"{trial.sequence}/{prompt.id}",
            turns=[[dict(message) for message in turn] for turn in prompt.turns],
            max_tokens=prompt.max_tokens,
            seed=trial.seed,
            sequence=trial.sequence,
            sequence_total=len(self.schedule),
            prompt_class=prompt.prompt_class,
        )
        return member.generate(request)

    def _prompts(self, trial: ScheduledTrial) -> list[Prompt]:
        by_id = {prompt.id: prompt for prompt in self.plan.prompts}
        return [by_id[key] for key in trial.prompt_ids]

    def _pass_gate(self, trial: ScheduledTrial, member: Member) -> Passage:
        """Let a trial pass the gate. Warm-ups need none: they never count."""
        if self.keeper is None or trial.kind == "warmup":
            self.lookout.read()
            return OPEN
        if not self.plan.gate.canary_tokens:
            return self.keeper.wait()
        return self.keeper.wait(canary=lambda: self.short.canary(trial, member))

    def _before(self, trial: ScheduledTrial) -> tuple[Reading, ...]:
        """Return the state that was just read at the gate, and the canary's speed if there is one."""
        found = self.lookout.latest()
        if self.keeper is None or (last := self.keeper.canary_ratio) is None or trial.kind == "warmup":
            return found
        return (*found, Reading(field="canary_ratio", value=last, source="a short decode over the arm's first one"))

    def _not_loaded(self, trial: ScheduledTrial, fault: WorkerFault) -> Outcome:
        readings = self.lookout.read()
        return Outcome(
            trial=trial,
            started_at=dt.datetime.fromtimestamp(self.clocks.wall(), dt.UTC),
            wall_s=0.0,
            monotonic_s=0.0,
            passage=OPEN,
            generations=[],
            fault=_fault(fault),
            before=readings,
            during=(),
            after=readings,
            log_path=None,
        )


def _fault(error: WorkerFault) -> Fault:
    detail = f" | {error.detail.strip().splitlines()[-1]}" if error.detail.strip() else ""
    return Fault(kind=str(error.kind), message=f"{error}{detail}")
