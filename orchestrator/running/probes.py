"""The probes after a run's last round: sends the questions of `probing` to the workers and stores their answers.

A probe that fails costs no trial: it becomes a note, and its result is stored as unknown with the reason. A stored
answer is not asked for again, so a run that was ended here resumes where it was.
"""

import time
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from sqlalchemy import select

from db import models
from db.session import read_only, transaction
from orchestrator.findings.records import Answer
from orchestrator.plan import Arm, Plan
from orchestrator.running.crew import Crew, Member
from orchestrator.running.questions import (
    MOST_LIKELY,
    PASS_REPEATS,
    ArmWidth,
    Finding,
    Place,
    Question,
    Timing,
    apart,
    budget_s,
    context_of,
    judge,
    questions,
    repetitions,
    scorer,
    timings,
    with_tokens,
)
from orchestrator.running.recorder import Recorder
from orchestrator.stored_run import StoredRun
from workers.errors import WorkerFault
from workers.machine.bandwidth import measured_bytes_per_s
from workers.protocol import PassesTimed, Probe, Regenerate, Regenerated, Scored, ScoreTokens, TimePasses, Unsupported

TIMING_SHARE = 0.5  # of the budget, at most, if answers diverge: the divergences get the rest
KEPT_SHARE = 0.5  # of the rest, for questions about answers that servers repeated


def probe_run(plan: Plan, recorder: Recorder, crew: Crew) -> None:
    """Run all probes of the plan. Fits `orchestrator.running.runner.AfterRounds`."""
    if recorder.simulated or not plan.design.probe:
        return
    store_bandwidth(recorder, crew.note, measure=measured_bytes_per_s)
    answers = Answer.read(StoredRun(database=recorder.database, run_id=recorder.run_id, plan=plan).answers)
    most_s = budget_s(plan, trials_s=_trials_s(recorder))
    crew.note(f"the rounds are over: probes of diverging answers and of passes' times follow, {most_s:.0f} s at most")
    Prober(
        plan=plan,
        recorder=recorder,
        crew=crew,
        answers=answers,
        widths=_widths(recorder),
        budget_s=most_s,
    ).run()


class Workers(Protocol):
    """The part of `orchestrator.running.crew.Crew` that probing uses."""

    @property
    def note(self) -> Callable[[str], None]: ...

    def member(self, arm: Arm, *, on_load: Callable[[Member], None]) -> Member: ...
    def discard(self, arm: Arm) -> object: ...


@dataclass(slots=True, kw_only=True)
class Prober:
    """One run's probes, within one budget of seconds."""

    plan: Plan
    recorder: Recorder
    crew: Workers
    answers: Sequence[Answer]
    widths: Sequence[ArmWidth]
    budget_s: float
    clock: Callable[[], float] = time.monotonic
    _started_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._started_s = self.clock()

    def run(self) -> None:
        """Run the probes, passes first: without them the cost of verification is a guess."""
        wanted = timings(self.plan, self.widths, self.answers)
        parting = questions(self.plan, self.answers, self.widths) or repetitions(self.plan, self.answers)
        share = TIMING_SHARE if parting else 1.0
        for place, timing in enumerate(wanted):
            # Targets come first and may use the whole budget: a draft's share also follows as the rest of a round.
            alike = sum(other.draft == timing.draft for other in wanted[place:])
            left_s = share * self.budget_s - (self.clock() - self._started_s)
            self._time(timing, left_s / alike)
        stored = _stored_divergences(self.recorder)
        again = self._regenerated(stored)
        answers = with_tokens(self.answers, again)
        asked = scorer(self.plan, self.answers, self.widths)
        for question in questions(self.plan, answers, self.widths):
            if (question.arm, question.prompt_id, question.turn) not in stored:
                self._store(question, self._ask(question, asked, apart(self.plan, question, again)))

    @property
    def _left_s(self) -> float:
        return self.budget_s - (self.clock() - self._started_s)

    def _member(self, name: str) -> Member:
        """Return the arm's worker, loaded again if necessary; without a warm-up, because no round follows."""
        return self.crew.member(self._arm(name), on_load=lambda member: None)

    def _arm(self, name: str) -> Arm:
        return next(arm for arm in self.plan.arms if arm.name == name)

    # ---- divergences ----

    def _regenerated(self, stored: Container[Place]) -> dict[Place, Regenerated]:
        """Return servers' answers whose text diverges from the control's, with token ids if the servers return them."""
        again, why = dict[Place, Regenerated](), dict[str, str]()
        kept_s = KEPT_SHARE * self._left_s
        for repetition in repetitions(self.plan, self.answers):
            if repetition.place in stored or repetition.arm in why:
                continue
            request = Regenerate(
                request_id="regenerate/{}/{}/{}".format(*repetition.place),
                messages=list(repetition.messages),
                prompt_sha256=repetition.prompt_sha256,
                max_tokens=repetition.max_tokens,
                budget_s=self._left_s - kept_s,
            )
            late = "the probes' time was used up"
            answer = self._probe(repetition.arm, request) if request.budget_s > 0 else late
            if isinstance(answer, Regenerated) and answer.text == repetition.text:
                again[repetition.place] = answer
            elif isinstance(answer, Regenerated):
                why[repetition.arm] = "a repeated request gave another answer"
            else:
                why[repetition.arm] = answer if isinstance(answer, str) else f"unexpected {answer.kind}"
        for arm, reason in why.items():
            self.crew.note(f"{arm}: its divergences from the control are known by their bytes only: {reason}")
        return again

    def _ask(self, question: Question, asked: str, servers_apart: float | None) -> Finding:
        if question.reason_against is not None:
            return Finding(verdict="unknown", reason=question.reason_against)
        if self._left_s <= 0:
            reason = f"the probes' {self.budget_s:.3g} s were used up before this question"
            return Finding(verdict="unknown", reason=reason)
        assert question.control_token is not None
        assert question.arm_token is not None
        request = ScoreTokens(
            request_id=f"score/{question.arm}/{question.prompt_id}/{question.turn}",
            messages=list(question.messages),
            prompt_sha256=question.prompt_sha256,
            token_ids=list(question.token_ids),
            rivals=[question.control_token, question.arm_token],
            widths=list(question.widths),
            most_likely=MOST_LIKELY,
            budget_s=self._left_s,
        )
        answer = self._probe(asked, request)
        if isinstance(answer, Scored):
            return judge(answer, servers_apart=servers_apart)
        return Finding(verdict="unknown", reason=answer if isinstance(answer, str) else f"unexpected {answer.kind}")

    def _store(self, question: Question, finding: Finding) -> None:
        with transaction(self.recorder.database) as session:
            session.add(
                models.Divergence(
                    run_id=self.recorder.run_id,
                    arm_id=self.recorder.arm_ids[question.arm],
                    prompt_id=question.prompt_id,
                    turn=question.turn,
                    token_index=question.token_index,
                    control_token=question.control_token,
                    arm_token=question.arm_token,
                    **(asdict(finding) | {"top": None if finding.top is None else [list(row) for row in finding.top]}),
                )
            )

    # ---- passes ----

    def _time(self, timing: Timing, budget_s: float) -> None:
        """Ask the arms that might run these passes, one after the other, until one can."""
        stored = _timed_widths(self.recorder, timing.arms, role="draft" if timing.draft else "target")
        if stored >= set(timing.widths) and stored:
            return
        why = ""
        for arm in timing.arms:
            answer = self._time_on(arm, timing, budget_s)
            if isinstance(answer, PassesTimed) and answer.timings:
                self._store_passes(arm, answer)
                for note in answer.notes:
                    self.crew.note(f"{arm}: {note}")
                return
            why = answer if isinstance(answer, str) else "; ".join(answer.notes)
        self.crew.note(f"passes of {timing.what} are not timed: {why}")

    def _time_on(self, arm: str, timing: Timing, budget_s: float) -> PassesTimed | str:
        context = context_of(self.plan, self.answers, arm)
        if context is None:
            return f"{arm} has no answer whose tokens are known"
        if budget_s <= 0:
            return f"the probes' {self.budget_s:.3g} s were over"
        request = TimePasses(
            request_id=f"passes/{arm}",
            messages=list(context.messages),
            token_ids=list(context.token_ids),
            context_tokens=context.context_tokens,
            widths=list(timing.widths),
            draft=timing.draft,
            repeats=PASS_REPEATS,
            seed=self.plan.design.seed,
            budget_s=budget_s,
        )
        answer = self._probe(arm, request)
        return answer if isinstance(answer, PassesTimed | str) else f"unexpected {answer.kind}"

    def _store_passes(self, arm: str, answer: PassesTimed) -> None:
        known = _timed_widths(self.recorder, [arm], role="target")
        with transaction(self.recorder.database) as session:
            session.add_all(
                models.PassTime(
                    run_id=self.recorder.run_id,
                    arm_id=self.recorder.arm_ids[arm],
                    context_tokens=answer.context_tokens,
                    **asdict(timing),
                )
                for timing in answer.timings
                if timing.role == "draft" or timing.width not in known
            )

    # ---- both ----

    def _probe(self, arm: str, request: Probe) -> Scored | PassesTimed | Regenerated | str:
        """Return the worker's answer, or the reason why there is none."""
        try:
            answer = self._member(arm).probe(request)
        except WorkerFault as fault:
            if not fault.alive:
                self.crew.discard(self._arm(arm))
            self.crew.note(f"{arm}: a probe failed ({fault.kind}): {fault}")
            return f"the probe failed: {fault.kind}"
        return answer.reason if isinstance(answer, Unsupported) else answer


# ---- what is stored ----


def _widths(recorder: Recorder) -> list[ArmWidth]:
    """Return the widths of the arms that loaded and were not dropped."""
    rows = select(models.Arm.name, models.Arm.block_size, models.Arm.drafted_per_step).where(
        models.Arm.run_id == recorder.run_id, models.Arm.state == "active", models.Arm.load_s.is_not(None)
    )
    with read_only(recorder.database) as session:
        return [
            ArmWidth(arm=name, verify_width=width, drafts=bool(drafted))
            for name, width, drafted in session.execute(rows.order_by(models.Arm.id))
        ]


def _trials_s(recorder: Recorder) -> float:
    durations = select(models.Trial.monotonic_s).where(models.Trial.run_id == recorder.run_id)
    with read_only(recorder.database) as session:
        return sum(seconds for seconds in session.scalars(durations) if seconds is not None)


def _stored_divergences(recorder: Recorder) -> set[tuple[str, str, int]]:
    names = {key: name for name, key in recorder.arm_ids.items()}
    rows = select(models.Divergence.arm_id, models.Divergence.prompt_id, models.Divergence.turn).where(
        models.Divergence.run_id == recorder.run_id
    )
    with read_only(recorder.database) as session:
        return {(names[arm_id], prompt_id, turn) for arm_id, prompt_id, turn in session.execute(rows)}


def _timed_widths(recorder: Recorder, arms: Iterable[str], *, role: str) -> set[int]:
    ids = [recorder.arm_ids[arm] for arm in arms]
    rows = select(models.PassTime.width).where(
        models.PassTime.run_id == recorder.run_id, models.PassTime.arm_id.in_(ids), models.PassTime.role == role
    )
    with read_only(recorder.database) as session:
        return set(session.scalars(rows))


def store_bandwidth(
    recorder: Recorder, note: Callable[[str], None], *, measure: Callable[[], tuple[float | None, str]]
) -> None:
    """Measure the memory's bandwidth if the chip's is not published."""
    with read_only(recorder.database) as session:
        if session.get_one(models.Run, recorder.run_id).bandwidth_bytes_per_s is not None:
            return
    found, source = measure()
    if found is None:
        note(f"the memory's bandwidth is unknown: {source}")
    with transaction(recorder.database) as session:
        run = session.get_one(models.Run, recorder.run_id)
        run.bandwidth_bytes_per_s, run.bandwidth_source = found, source
