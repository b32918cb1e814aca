"""A bisection on this machine: each step is a stored run, so the search goes on from the database wherever it ended.

The decisions are those of `orchestrator.statistics.bisection`; here runs are composed, measured and read.
"""

import datetime as dt
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import text

from db.engine import Database
from db.queue_entries import entry_of
from db.session import database_path, database_url, open_database, plain_read
from orchestrator.commands.planned_run import Planned, compose_run, store_run
from orchestrator.configuration.compose import db_url
from orchestrator.effects import Effect
from orchestrator.environments.requirements import read
from orchestrator.environments.tools import UnavailableError
from orchestrator.errors import IncompleteError, InputError, RefusedError
from orchestrator.judging import inference_of, judge_run
from orchestrator.queue.entry_run import run_entry
from orchestrator.queue.machine_lock import MachineLock
from orchestrator.report.charts.release_ratios import ReleasePoint
from orchestrator.running.events import Observer
from orchestrator.running.preflight import check_machine
from orchestrator.running.stored import stored_trials
from orchestrator.statistics.bisection import (
    Answer,
    Mark,
    answer,
    classify,
    next_candidate,
    rounds_needed,
    step_level,
)
from orchestrator.statistics.observations import ALL, Usable, measured_rows
from orchestrator.statistics.scoped import effect_between
from orchestrator.stored_run import StoredRun

# Of a step, set by the search itself.
OWN_KEYS = ("environment", "experiment", "control", "design.alpha", "design.stop", "design.detect", "design.rounds")
MORE = 2  # times as many rounds for a candidate that was undecided
_UNUSABLE = frozenset({"confounded", "not_engaged"})
_STEPS_SQL = text(
    "SELECT run.id, run.rounds, run.status FROM run JOIN experiment ON experiment.id = run.experiment_id"
    " WHERE experiment.name = :experiment AND run.arrived_at IS NULL ORDER BY run.created_at, run.id"
)
_ARMS_SQL = text("SELECT environment FROM arm WHERE run_id = :run_id AND environment IS NOT NULL")

Tell = Callable[[str], None]


class WaitingError(Exception):
    """The next step of a search that does not execute waits in the queue."""

    def __init__(self, database: Database, run_id: str, *, is_new: bool) -> None:
        super().__init__(run_id)
        self.database, self.run_id, self.is_new = database, run_id, is_new


class EndsError(RefusedError):
    """The search cannot go on: its ends do not run or cannot be compared, or its step was cancelled or failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The subject and the settings of a search."""

    package: str
    releases: tuple[str, ...]  # in order, the good one first and the bad one last
    overrides: tuple[str, ...]
    config_dir: Path | None
    rounds: int | None  # of a step; None: what the level needs
    alpha: float

    @property
    def level(self) -> float:
        """The level of each test."""
        return step_level(len(self.releases), alpha=self.alpha)

    @property
    def step_rounds(self) -> int:
        return self.rounds or rounds_needed(self.level)

    @property
    def experiment(self) -> str:
        """The name that all its runs share: the same question finds them again."""
        asked = "\n".join([*self.overrides, str(self.config_dir or ""), str(self.step_rounds), f"{self.alpha:g}"])
        digest = hashlib.sha256(asked.encode()).hexdigest()[:6]
        return f"bisect {self.package} {self.releases[0]} {self.releases[-1]} {digest}"

    def environment(self, release: str) -> str:
        """The name of a release's environment, and of its arm."""
        return read(f"{self.package}=={release}").label


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One run of the search, read."""

    run_id: str
    candidate: str | None  # None: the run of both ends
    mark: Mark
    to_good: Effect | None  # of the candidate, or of the bad release in the run of both ends
    reason: str = ""  # why it was skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of a search."""

    steps: tuple[Step, ...]
    answer: Answer | None  # None: there is nothing to bisect

    def points(self, question: Question) -> list[ReleasePoint]:
        """The measured releases for a picture, the good one included."""
        points = [ReleasePoint(release=question.releases[0], mark="good", ratio=1.0, low=1.0, high=1.0)]
        for step in self.steps:
            if step.to_good is None:
                continue
            release = question.releases[-1] if step.candidate is None else step.candidate
            effect, sign = step.to_good, "bad" if step.candidate is None else step.mark
            points.append(
                ReleasePoint(release=release, mark=sign, ratio=effect.ratio, low=effect.ci_low, high=effect.ci_high)
            )
        return list({point.release: point for point in points}.values())


@dataclass(slots=True, kw_only=True)
class Search:
    """A search in progress."""

    question: Question
    tell: Tell
    observer: Callable[[], Observer] = Observer
    until: dt.datetime | None = None
    executes: bool = True  # False: each step is put into the queue
    url: str | None = None  # of the database; None: the configured one
    again: bool = False  # a step that was cancelled before it began is put there anew
    steps: list[Step] = field(default_factory=list)

    def run(self) -> Found:
        """Search to the end, or until the time is up.

        Raises:
            IncompleteError: the time is up; the same command goes on.
            WaitingError: the next step waits in the queue, and this search does not execute.
            InputError, RefusedError: a step cannot be composed or run.
        """
        ends = self._step(None, self.question.step_rounds * MORE)
        if ends.mark == "undecided":
            return Found(steps=tuple(self.steps), answer=None)
        marks: dict[str, Mark] = {}
        releases = self.question.releases
        while (candidate := next_candidate(releases, marks)) is not None:
            marks[candidate] = self._candidate(candidate)
        return Found(steps=tuple(self.steps), answer=answer(releases, marks))

    def _candidate(self, candidate: str) -> Mark:
        """Class one release; an undecided one once more, with more rounds."""
        for rounds in (self.question.step_rounds, MORE * self.question.step_rounds):
            step = self._step(candidate, rounds)
            if step.mark != "undecided":
                break
        return step.mark

    def _step(self, candidate: str | None, rounds: int) -> Step:
        if self.until is not None and dt.datetime.now(dt.UTC) >= self.until:
            raise IncompleteError("the time is up; the same command continues from here")
        try:
            run = self._measured(candidate, rounds)
        except (InputError, RefusedError) as error:
            own = candidate is not None and f"environment {self.question.environment(candidate)}:" in str(error)
            if isinstance(error, UnavailableError) or not own:
                raise
            step = Step(run_id="", candidate=candidate, mark="skipped", to_good=None, reason=str(error))
        else:
            step = _read(run, self.question, candidate)
        self.steps.append(step)
        self.tell(_words(step, self.question))
        return step

    def _measured(self, candidate: str | None, rounds: int) -> StoredRun:
        """The step's run, measured now unless it was before."""
        if not self.executes:
            return self._queued(candidate, rounds)
        database, run_id = self._stored(candidate, rounds) or self._stored_anew(candidate, rounds)
        with MachineLock("interlace bisect") as lock, self.observer() as observer:
            if _status(database, run_id) != "done":
                self.tell(f"run {run_id}")
                run_entry(database, run_id, lock=lock, observer=observer, should_stop=self._is_over)
        return StoredRun.load(database, run_id)

    def _queued(self, candidate: str | None, rounds: int) -> StoredRun:
        """The step's run, which the queue has measured.

        Raises:
            WaitingError: it waits there, put there now unless it was before.
            EndsError: it left the queue without an end.
        """
        if (stored := self._stored(candidate, rounds, cancelled=not self.again)) is None:
            planned = self._composed(candidate, rounds)
            raise WaitingError(*store_run(planned, quiet=True), is_new=True)
        database, run_id = stored
        entry = entry_of(database, run_id)
        state = "done" if entry is None else entry.state
        if state == "waiting":
            raise WaitingError(database, run_id, is_new=False)
        if state != "done":
            ended = "was cancelled" if state == "cancelled" else "failed"
            raise EndsError(f"its run {run_id} {ended}; `interlace bisect` without --queue goes on with it")
        return StoredRun.load(database, run_id)

    def _composed(self, candidate: str | None, rounds: int) -> Planned:
        planned = compose_run(self._overrides(candidate, rounds), config_dir=self.question.config_dir)
        _refuse_more_arms(planned, len(self._releases(candidate)))
        return planned if self.url is None else replace(planned, url=self.url)

    def _is_over(self) -> bool:
        return self.until is not None and dt.datetime.now(dt.UTC) >= self.until

    def _stored(self, candidate: str | None, rounds: int, *, cancelled: bool = False) -> tuple[Database, str] | None:
        """The run of an earlier call that asked the same, even a cancelled one where asked to; None: there is none."""
        url = self.url or database_url(db_url([], config_dir=self.question.config_dir))
        if not database_path(url).exists():
            return None
        database = open_database(url)
        wanted = {self.question.environment(each) for each in self._releases(candidate)}
        with plain_read(database) as connection:
            rows = connection.execute(_STEPS_SQL, {"experiment": self.question.experiment}).all()
            for run_id, stored_rounds, status in reversed(rows):
                arms = set(connection.execute(_ARMS_SQL, {"run_id": run_id}).scalars())
                if arms == wanted and stored_rounds == rounds and (cancelled or status != "cancelled"):
                    return database, str(run_id)
        return None

    def _stored_anew(self, candidate: str | None, rounds: int) -> tuple[Database, str]:
        planned = self._composed(candidate, rounds)
        with MachineLock("interlace bisect") as lock:
            if planned.measured:
                lock.take()
            check_machine(planned.plan, database_path(planned.url))
        return store_run(planned, quiet=True)

    def _releases(self, candidate: str | None) -> list[str]:
        ends = [self.question.releases[0], self.question.releases[-1]]
        return ends if candidate is None else [*ends, candidate]

    def _overrides(self, candidate: str | None, rounds: int) -> list[str]:
        named = ",".join(f'"{self.question.package}=={release}"' for release in self._releases(candidate))
        return [
            *self.question.overrides,
            f"environment={named}",
            f'experiment="{self.question.experiment}"',
            f"design.rounds={rounds}",
            f"design.alpha={self.question.level:.6g}",
            "design.stop=early" if candidate is None else "design.stop=full",
            *([] if any(each.startswith("design.aa=") for each in self.question.overrides) else ["design.aa=false"]),
            "design.on_preflight_failure=drop",
        ]


def refuse_own_keys(overrides: Sequence[str]) -> None:
    """Raises:
    InputError: an override that the search sets itself.
    """
    for line in overrides:
        key = line.partition("=")[0]
        if key in OWN_KEYS or key.startswith("environment.") or key == "sweep":
            remedy = "use --rounds" if key == "design.rounds" else "leave it out"
            raise InputError(f"bisect: {line!r}: a bisection sets {key} itself; {remedy}")


def _refuse_more_arms(planned: Planned, releases: int) -> None:
    if len(planned.plan.arms) != releases:
        names = ", ".join(arm.name for arm in planned.plan.arms)
        raise InputError(
            f"bisect compares releases under one configuration, and these overrides make more arms: {names}"
        )


def _status(database: Database, run_id: str) -> str:
    with plain_read(database) as connection:
        return str(
            connection.execute(text("SELECT status FROM run WHERE id = :run_id"), {"run_id": run_id}).scalar_one()
        )


def _read(run: StoredRun, question: Question, candidate: str | None) -> Step:
    """Judge a finished run, and class its candidate."""
    good, bad = _arms_of(run, question.releases[0], question), _arms_of(run, question.releases[-1], question)
    tried = bad if candidate is None else _arms_of(run, candidate, question)
    dropped = stored_trials(run.database, run.run_id).dropped
    for end in {good, bad} & dropped:
        raise EndsError(f"bisect: {end} does not run; see `interlace report {run.run_id}`")
    if tried in dropped:
        why = f"{tried} does not run here"
        return Step(run_id=run.run_id, candidate=candidate, mark="skipped", to_good=None, reason=why)
    verdicts = {one.treatment: one for one in judge_run(run).result.comparisons if one.over_all}
    if tried in verdicts and verdicts[tried].verdict in _UNUSABLE:
        why = "; ".join(reason.text for reason in verdicts[tried].reasons[:1])
        if candidate is None:
            raise EndsError(f"bisect: {good} and {bad} cannot be compared: {why}")
        return Step(run_id=run.run_id, candidate=candidate, mark="skipped", to_good=None, reason=why)
    to_good, to_bad = _effect(run, tried, good), _effect(run, tried, bad)
    if to_good is None or (candidate is not None and to_bad is None):
        why = "no round of it counts"
        return Step(run_id=run.run_id, candidate=candidate, mark="skipped", to_good=None, reason=why)
    if to_bad is None or candidate is None:
        mark: Mark = "bad" if to_good.p_value <= question.level else "undecided"
    else:
        mark = classify(to_good, to_bad, level=question.level)
    return Step(run_id=run.run_id, candidate=candidate, mark=mark, to_good=to_good)


def _arms_of(run: StoredRun, release: str, question: Question) -> str:
    name = question.environment(release)
    return next(arm.name for arm in run.plan.arms if arm.environment and arm.environment["name"] == name)


def _effect(run: StoredRun, treatment: str, control: str) -> Effect | None:
    """One arm of a run against another over all prompts; None: no round holds both."""
    if treatment == control:
        return None
    design = run.plan.design
    used = Usable.read(measured_rows(run.trials, design.metric)).trials(ALL)
    return effect_between(
        used,
        treatment=treatment,
        control=control,
        alpha=design.alpha,
        seed=design.seed,
        inference=inference_of(run.plan),
    )


def _words(step: Step, question: Question) -> str:
    good, bad = question.releases[0], question.releases[-1]
    if step.candidate is None:
        assert step.to_good is not None
        verb = "differs from" if step.mark == "bad" else "is not shown to differ from"
        return f"{question.package} {bad} {verb} {good}: {shown(step.to_good)}"
    said = {
        "good": f"is like {good}",
        "bad": f"is like {bad}",
        "between": f"is neither like {good} nor like {bad}",
        "undecided": "is undecided",
        "skipped": f"is skipped: {step.reason}",
    }[step.mark]
    ratio = "" if step.to_good is None else f" ({shown(step.to_good)} of {good})"
    return f"{question.package} {step.candidate} {said}{ratio}"


def shown(effect: Effect) -> str:
    """An effect in words."""
    return f"{effect.ratio:.3f} times ({effect.ci_low:.3f} to {effect.ci_high:.3f})"


def answer_lines(found: Found, question: Question) -> list[str]:
    """The result in lines."""
    good, bad = question.releases[0], question.releases[-1]
    runs = [step.run_id for step in found.steps if step.run_id]
    lines = [f"runs     {', '.join(runs)}"]
    if found.answer is None:
        effect = found.steps[0].to_good
        assert effect is not None
        widest = max(abs(effect.ci_low - 1), abs(effect.ci_high - 1))
        beyond = "any size is possible with so few rounds" if widest > 1 else f"no difference beyond {widest:.1%}"
        return [f"{question.package} {good} and {bad}: {beyond}: nothing to bisect", *lines]
    first = found.answer.first
    if len(first) == 1:
        headline = f"first release in which the speed changed: {question.package} {first[0]}"
    else:
        headline = f"the speed changed in one of: {', '.join(first)} (they cannot be distinguished)"
    effect = next((step.to_good for step in found.steps if (step.candidate or bad) == first[-1] and step.to_good), None)
    size = "" if effect is None else f", {effect.ratio:.3f} times {good} ({effect.ci_low:.3f} to {effect.ci_high:.3f})"
    more = found.answer.more_changes
    several = [f"there is more than one change: {', '.join(more)} is like neither end"] if more else []
    return [headline + size, f"last release like {good}: {found.answer.last_good}", *several, *lines]
