"""Watches a run without disturbing it: lowest priority, one small read per second, statistics once per round."""

import datetime as dt
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from db.engine import Database
from db.live import Life, Problem, life, problems, running
from orchestrator.running.leases import is_held
from orchestrator.views.watch_view import watched

if TYPE_CHECKING:
    from orchestrator.audit import AuditResult

LOWEST_PRIORITY = 19
POLL_S = 1.0


def live_run(database: Database) -> Life | None:
    """Return the newest run whose process lives."""
    return next((found for found in running(database) if is_held(database, found.run_id, found)), None)


@dataclass(slots=True)
class Watch:
    """The state of one run; each look reads only what may have changed."""

    database: Database
    run_id: str
    problems: list[Problem] = field(default_factory=list)
    verdicts: str = ""
    _seen: tuple[object, ...] = ()
    _round: object = None

    def look(self) -> Life:
        """Return the run's present state. Problems are read after each trial, verdicts made after each round."""
        found = life(self.database, self.run_id)
        current = found.current or {}
        seen = current.get("sequence"), current.get("attempt"), current.get("state") == "after", found.status
        if seen != self._seen:
            self._seen, self.problems = seen, problems(self.database, self.run_id)
        if current.get("round") != self._round:
            before, self._round = self._round, current.get("round")
            if before is not None:
                self.verdicts = self._interim()
        return found

    def _interim(self) -> str:
        """Return the interim verdicts as text; they are not stored."""
        from orchestrator.judging import judge  # imports pandas, which a look at the run does not need
        from orchestrator.stored_run import StoredRun

        try:
            run = StoredRun.load(self.database, self.run_id)
            found = judge(run.trials, run.plan)
            return "\n".join((found.summary, *_ratios(found)))
        except (ValueError, ArithmeticError, LookupError):
            return ""  # too few trials so far


def _ratios(result: "AuditResult") -> Iterator[str]:
    """Each treatment's ratio so far, with its interval where there are enough rounds for one."""
    for one in result.comparisons:
        if one.over_all and one.ratio is not None:
            interval = "" if one.ci_low is None or one.ci_high is None else f" ({one.ci_low:.2f} to {one.ci_high:.2f})"
            yield f"{one.treatment}: {one.ratio:.2f}\u00d7{interval} of {one.control}"


def watch(
    database: Database,
    run_id: str,
    out: Console,
    *,
    poll_s: float = POLL_S,
) -> None:
    """Show the run until it ends or Ctrl-C is pressed; without a terminal, once."""
    os.nice(LOWEST_PRIORITY)
    view = Watch(database, run_id)
    found = view.look()
    if not out.is_terminal:
        out.print(watched(found, view.problems, view.verdicts, now=dt.datetime.now(dt.UTC)))
        return
    try:
        _follow(view, found, out, poll_s)
    except KeyboardInterrupt:
        return  # the watcher ends, not the run


def _follow(view: Watch, found: Life, out: Console, poll_s: float) -> None:
    with Live(console=out, auto_refresh=False) as screen:
        while True:
            screen.update(watched(found, view.problems, view.verdicts, now=dt.datetime.now(dt.UTC)), refresh=True)
            if not is_held(view.database, view.run_id, found):
                break
            time.sleep(poll_s)
            found = view.look()
    if found.status == "running":  # whatever ended it could not say so
        out.print(f"the process of this run is gone; continue with: interlace resume {found.run_id}")
