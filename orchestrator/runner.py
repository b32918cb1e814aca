"""Runs a plan: loads the arms, walks the schedule, stores each trial as it ends.

A fault of one trial never ends the night: it is stored with its kind and the run goes on; an arm that fails three times
in a row takes no further part. Only a control that cannot run, an interruption or a full stop of the machine end a run
early, and what is stored then can be resumed.
"""

import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.crew import Crew, Member
from orchestrator.errors import IncompleteError, InputError
from orchestrator.evidence import judge
from orchestrator.gate import Passage, wait
from orchestrator.plan import Arm, Plan, Prompt
from orchestrator.progress import Remainder, Unit
from orchestrator.recorder import Fault, Outcome, Recorder, Verdict
from orchestrator.schedule import ScheduledTrial
from workers.errors import FaultKind, WorkerFault
from workers.host import HostFacts
from workers.protocol import Generate, Generation
from workers.telemetry import Reading, read_machine, read_thermal_level

PREFLIGHT_TOKENS = 8
FAULTS_IN_A_ROW = 3  # after these an arm is parked


class Observer(Protocol):
    """Told what happens, for whoever watches."""

    def preflight(self, arm: str, problem: str | None) -> None: ...
    def started(self, left: Remainder) -> None: ...
    def unit_started(self, unit: Unit) -> None: ...
    def trial_started(self, trial: ScheduledTrial) -> None: ...
    def waiting(self, text: str) -> None: ...
    def trial_ended(self, trial: ScheduledTrial, verdict: Verdict, outcome: Outcome) -> None: ...
    def arm_dropped(self, arm: str, reason: str) -> None: ...


@dataclass(slots=True)
class Runner:
    """One run of one plan on this machine."""

    plan: Plan
    schedule: Sequence[ScheduledTrial]
    recorder: Recorder
    crew: Crew
    host: HostFacts
    observer: Observer
    readings: Callable[[], tuple[Reading, ...]] = read_machine
    thermal_level: Callable[[], Reading] = read_thermal_level
    dropped: set[str] = field(default_factory=set)
    faults_in_a_row: Counter[str] = field(default_factory=Counter)

    def run(self, left: Remainder) -> None:
        """Everything that is left.

        Raises:
            InputError: an arm failed its preflight and the design says to stop.
            IncompleteError: the control takes no further part.
        """
        try:
            self._preflight()
            self.observer.started(left)
            for unit in left.units:
                self.observer.unit_started(unit)
                for trial in unit.trials:
                    if trial.arm not in self.dropped:
                        self._run_trial(trial, unit)
        finally:
            self.crew.close()

    # ---- before the first round ----

    def _preflight(self) -> None:
        """Each arm runs a few tokens and shows its evidence, before the night starts."""
        for arm in self.plan.arms:
            if arm.name in self.dropped:
                continue
            problem = self._try_arm(arm)
            self.observer.preflight(arm.name, problem)
            if problem is None:
                continue
            if self.plan.design.on_preflight_failure == "stop" or arm.name == self.plan.control:
                raise InputError(f"arm {arm.name} failed its preflight: {problem}")
            self._drop(arm, f"preflight: {problem}")

    def _try_arm(self, arm: Arm) -> str | None:
        """What is wrong with the arm, in one line; None: it runs and shows its evidence."""
        first = self.plan.prompts[0]
        try:
            member = self._member(arm)
            request = Generate(
                request_id=f"preflight/{arm.name}",
                turns=[[dict(message) for message in first.turns[0]]],
                max_tokens=min(PREFLIGHT_TOKENS, first.max_tokens),
                seed=self.plan.design.seed,
                prompt_class=first.prompt_class,
            )
            generations = member.generate(request)
        except WorkerFault as fault:
            self.crew.discard(arm)
            return f"{fault.kind}: {fault}"
        if self.plan.design.evidence == "record":
            return None
        return next((why for generation in generations if (why := judge(generation.evidence).fault)), None)

    def _member(self, arm: Arm) -> Member:
        return self.crew.member(arm, on_load=lambda member: self._loaded(arm, member))

    def _loaded(self, arm: Arm, member: Member) -> None:
        """A model that was just loaded is recorded and warmed up, whenever that happens."""
        self.recorder.arm_loaded(arm, member.hello, member.loaded, self.host)
        for trial in self.schedule:
            if trial.kind == "warmup" and trial.arm == arm.name:
                outcome = self._measure(trial, member)
                self.recorder.save(outcome, attempt=0, order=())
                if outcome.fault is not None:
                    raise WorkerFault(FaultKind(outcome.fault.kind), outcome.fault.message)

    # ---- trials ----

    def _run_trial(self, trial: ScheduledTrial, unit: Unit) -> None:
        self.observer.trial_started(trial)
        arm = next(arm for arm in self.plan.arms if arm.name == trial.arm)
        try:
            member = self._member(arm)
        except WorkerFault as fault:
            outcome = self._not_loaded(trial, fault)
        else:
            outcome = self._measure(trial, member)
        verdict = self.recorder.save(outcome, attempt=unit.attempt, order=unit.order)
        self.observer.trial_ended(trial, verdict, outcome)
        self._count_faults(arm, verdict)

    def _count_faults(self, arm: Arm, verdict: Verdict) -> None:
        if verdict.fault is None:
            self.faults_in_a_row[arm.name] = 0
            return
        self.faults_in_a_row[arm.name] += 1
        if self.faults_in_a_row[arm.name] >= FAULTS_IN_A_ROW:
            self._drop(arm, f"{FAULTS_IN_A_ROW} faults in a row; the last: {verdict.fault.message}")

    def _drop(self, arm: Arm, reason: str) -> None:
        self.dropped.add(arm.name)
        self.crew.discard(arm)
        self.recorder.arm_dropped(arm, reason)
        self.observer.arm_dropped(arm.name, reason)
        if arm.name == self.plan.control:
            raise IncompleteError(f"the control {arm.name} takes no further part ({reason}): nothing left to compare")

    def _measure(self, trial: ScheduledTrial, member: Member) -> Outcome:
        """Gate, readings, the trial itself, readings. A fault becomes part of the outcome."""
        passage = self._pass_gate()
        before = self.readings()
        started_at, wall, monotonic = dt.datetime.now(dt.UTC), time.time(), time.monotonic()
        answered: list[tuple[Prompt, Generation]] = []
        fault = None
        try:
            for prompt in self._prompts(trial):
                answered += [(prompt, answer) for answer in self._ask(trial, prompt, member)]
        except WorkerFault as error:
            fault = _fault(error)
            answered += [(prompt, answer) for answer in error.generations]
            if not error.alive:
                self.crew.members.pop(trial.arm, None)
        return Outcome(
            trial=trial,
            started_at=started_at,
            wall_s=time.time() - wall,
            monotonic_s=time.monotonic() - monotonic,
            gate_wait_s=passage.waited_s,
            hot_start=passage.hot_start,
            generations=answered,
            fault=fault,
            before=before,
            after=self.readings(),
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

    def _pass_gate(self) -> Passage:
        return wait(
            self.plan.gate,
            thermal_level=lambda: self.thermal_level().value,
            clock=time.monotonic,
            sleep=time.sleep,
            notify=self.observer.waiting,
        )

    def _not_loaded(self, trial: ScheduledTrial, fault: WorkerFault) -> Outcome:
        readings = self.readings()
        return Outcome(
            trial=trial,
            started_at=dt.datetime.now(dt.UTC),
            wall_s=0.0,
            monotonic_s=0.0,
            gate_wait_s=0.0,
            hot_start=None,
            generations=[],
            fault=_fault(fault),
            before=readings,
            after=readings,
            log_path=None,
        )


def _fault(error: WorkerFault) -> Fault:
    detail = f" | {error.detail.strip().splitlines()[-1]}" if error.detail.strip() else ""
    return Fault(kind=str(error.kind), message=f"{error}{detail}")
