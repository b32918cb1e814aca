"""Running a stored run on this machine, from its first unfinished round on."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from orchestrator.plan import Plan

if TYPE_CHECKING:
    from orchestrator.running.recorder import Recorder
    from orchestrator.running.runner import AfterRounds, Observer


def check_machine(plan: Plan, database: Path) -> None:
    """Make this machine ready for a run: end what earlier ones left, refuse what stands in the way.

    Raises:
        RefusedError: a process that may be a leftover, or a battery.
    """
    from dataclasses import replace

    from orchestrator.planning.residency import is_simulated
    from orchestrator.running.readiness import clear_leftovers, journal_beside, refuse_battery
    from workers.telemetry import read_machine

    measured = not all(is_simulated(arm) for arm in plan.arms)
    gate = plan.gate if measured else replace(plan.gate, orphans="report", power_source="any")
    clear_leftovers(journal_beside(database), gate, _warn)
    refuse_battery(gate, read_machine())


def _warn(text: str) -> None:
    sys.stderr.write(f"interlace: {text}\n")


def run_recorded(
    recorder: "Recorder",
    *,
    observer: "Observer",
    should_stop: Callable[[], bool] = lambda: False,
    after_rounds: "AfterRounds | None" = None,
) -> None:
    """Run what is left of a stored run.

    Args:
        should_stop: asked before each round; a round that began is finished.
        after_rounds: called after the last trial, before the workers end.

    Raises:
        InterlaceError: see `orchestrator.running.runner.Runner.run`.
    """
    from orchestrator.judging import decisions, measured_trials
    from orchestrator.running.crew import Crew
    from orchestrator.running.preparation import find_weights
    from orchestrator.running.progress import remainder
    from orchestrator.running.readiness import journal_beside
    from orchestrator.running.runner import Runner
    from orchestrator.running.stored import log_folder, stored_trials
    from orchestrator.running.watching import watched
    from orchestrator.schedule import build_schedule
    from workers.host import current_lease, read_host
    from workers.settling import wait_until_settled

    plan = recorder.plan
    schedule = build_schedule(plan)
    stored = stored_trials(recorder.database, recorder.run_id)

    def decided() -> dict[str, str]:
        if plan.design.stop != "early":
            return {}
        return decisions(measured_trials(recorder.database, recorder.run_id), plan)

    done = frozenset(decided())
    left = remainder(schedule, stored.trials, dropped=stored.dropped | done, replays=plan.gate.replays)
    if not left.units and (stored.finished or after_rounds is None):
        return
    for index in left.broken_rounds:
        recorder.exclude_round(index, reason="round_cut_short: replayed whole")
    recorder.take_lease(current_lease())
    log_dir = log_folder(recorder.database, recorder.run_id)
    log_dir.mkdir(parents=True, exist_ok=True)
    weights = find_weights(plan)
    crew = Crew(
        run_id=recorder.run_id,
        log_dir=log_dir,
        deadlines=plan.design.deadlines,
        swap=plan.design.residency == "swap",
        weights={name: found.for_worker for name, found in weights.items()},
        journal_path=journal_beside(Path(recorder.database.url.database or ".")),
        note=observer.noted,
        settle=None if recorder.simulated else lambda: wait_until_settled(plan.gate.settle_s),
    )
    with watched(plan, observer.waiting) as (lookout, keeper):
        Runner(
            plan=plan,
            schedule=schedule,
            recorder=recorder,
            crew=crew,
            host=read_host(),
            observer=observer,
            lookout=lookout,
            keeper=keeper,
            planned_bytes={name: found.planned_bytes for name, found in weights.items()},
            dropped=set(stored.dropped),
            decisions=decided,
            decided=set(done),
            should_stop=should_stop,
            after_rounds=after_rounds,
        ).run(left)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: the workers are stopped and the run can be resumed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
