"""The progress of a run on the terminal."""

import re
import time
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

from db.escaping import shown_line
from orchestrator.plan import Plan
from orchestrator.planning.estimate import about
from orchestrator.running.events import Observer
from orchestrator.running.progress import Remainder, Unit
from orchestrator.running.standing import Standing
from orchestrator.running.trial import Outcome, Verdict
from orchestrator.schedule import ScheduledTrial
from orchestrator.views.fetch_view import Paced, fetched_words
from workers.weights.hub_download import Progress as Fetched


class _Bar(Progress):
    """A bar with a line of text above it."""

    above = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.above:
            yield Text(self.above, style="dim")
        yield from super().get_renderables()


class ProgressObserver(Observer):
    """Shows the progress of a run: one live bar on a terminal, a line or two per round elsewhere."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._started_s = time.monotonic()  # start of the first trial, once there is one
        self._done = self._total = 0
        self._fetched = Paced(lambda line: self._say(f"fetching {line}"))
        self._waited_for = ""  # the newest reason, printed as lines if there is no live countdown
        self._standing: Standing | None = None  # None: before the plan is known
        self._bar = _Bar(
            TextColumn("{task.description}", justify="left", markup=False),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", style="dim", markup=False),
            console=out,
            disable=not out.is_terminal,
        )
        self._task: TaskID = self._bar.add_task("loading", total=None, note="")

    def __enter__(self) -> "ProgressObserver":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def fetching(self, progress: Fetched) -> None:
        if not self._out.is_terminal:
            self._fetched(progress)
        self._bar.update(self._task, description="fetching", note=shown_line(fetched_words(progress)))

    def preflight(self, arm: str, problem: str | None) -> None:
        """Show only a problem's kind: the details come with its consequence."""
        mark, words = ("✓", "ready") if problem is None else ("✗", problem.partition(":")[0])
        self._say(f"preflight  {mark} {arm}: {words}")

    def planned(self, plan: Plan) -> None:
        self._standing = Standing(control=plan.control, arms=[arm.name for arm in plan.arms], metric=plan.design.metric)

    def started(self, left: Remainder) -> None:
        self._started_s = time.monotonic()
        self._total = sum(len(unit.trials) for unit in left.units)
        self._bar.update(self._task, total=self._total)

    def unit_started(self, unit: Unit) -> None:
        self._tell_standing()
        what = "control run" if unit.round is None else f"round {unit.round + 1}"
        again = f" (attempt {unit.attempt + 1})" if unit.attempt else ""
        self._bar.update(self._task, description=what + again)
        if not self._out.is_terminal:
            trials = "1 trial" if len(unit.trials) == 1 else f"{len(unit.trials)} trials"
            self._say(f"{what}{again}: {trials}, {self._eta()}")

    def unit_replayed(self, unit: Unit) -> None:
        if self._standing is not None:
            self._standing.begin()  # the attempt that is replaced does not count
        self._total += len(unit.trials)
        self._bar.update(self._task, total=self._total)

    def trial_started(self, trial: ScheduledTrial) -> None:
        self._waited_for = ""
        self._bar.update(self._task, note=f"{trial.label}  {self._eta()}")

    def waiting(self, text: str) -> None:
        self._bar.update(self._task, note=text)
        reason = re.sub(r"[\d.]+", "", text)  # its numbers change with every reading
        if not self._out.is_terminal and reason != self._waited_for:
            self._say(f"waiting  {text}")
        self._waited_for = reason

    def trial_ended(self, trial: ScheduledTrial, verdict: Verdict, outcome: Outcome) -> None:
        self._done += 1
        self._bar.advance(self._task)
        if verdict.fault is not None:
            self._say(f"invalid  {trial.label}: {verdict.fault.kind}: {verdict.fault.message}")
        if verdict.excluded_reason is not None:
            self._say(f"excluded {trial.label}: {verdict.excluded_reason}")
        if self._standing is not None and verdict.fault is None and verdict.excluded_reason is None:
            self._standing.add(trial, outcome)

    def _tell_standing(self) -> None:
        """Show the rates and ratios so far, with the round that has just ended."""
        if self._standing is None or not self._standing.end():
            return
        words = self._standing.words()
        if self._out.is_terminal:
            self._bar.above = shown_line(f"so far: {words}")
        else:
            self._say(f"so far   {words}")

    def arm_dropped(self, arm: str, reason: str) -> None:
        self._say(f"dropped  {arm}: {reason}")

    def noted(self, text: str) -> None:
        self._say(f"note     {text}")

    def _say(self, line: str) -> None:
        """Print exactly one line: no message may imitate another line of interlace."""
        self._out.print(Text(shown_line(line)))

    def _eta(self) -> str:
        if self._done == 0:
            return "time left not known yet"
        left_s = (time.monotonic() - self._started_s) / self._done * (self._total - self._done)
        return f"{about(left_s)} left"
