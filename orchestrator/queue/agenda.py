"""The runs that wait on this machine, how long each takes, and when it ends."""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from db.engine import Database
from db.live import Life, life
from db.queue_entries import Entry, entries
from orchestrator.errors import RefusedError
from orchestrator.plan import Plan
from orchestrator.planning.estimate import Estimate
from orchestrator.planning.frozen_plan import frozen_plan
from orchestrator.planning.hosts import known_rates, own_host_ids
from orchestrator.running.progress import remainder
from orchestrator.running.stored import stored_trials
from orchestrator.schedule import ScheduledTrial, build_schedule
from workers.machine.host import HostFacts
from workers.machine.process_identity import Lease, holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A run that waits, and what is left of it."""

    entry: Entry
    plan: Plan | None  # None: this version cannot read it, and the duration says why
    trials: int  # of the schedule, warm-ups left out
    left: int  # of these
    duration: Estimate  # of what is left
    runs: bool = False  # a process that lives is at it
    ends_at: dt.datetime | None = None  # by the run's own trials so far; None: it does not run, or there are none yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A waiting run with its place in time. None: not known, because it or one before it is not."""

    waiting: Waiting
    starts_at: dt.datetime | None
    ends_at: dt.datetime | None


def waiting_here(database: Database, host: HostFacts) -> list[Waiting]:
    """The runs that wait for this machine, in their order."""
    here = own_host_ids(database, host)
    return [look_ahead(database, entry) for entry in entries(database) if entry.host_id in here]


def look_ahead(database: Database, entry: Entry) -> Waiting:
    """The trials left of a run and their duration, by rates measured here where there are any."""
    from orchestrator.planning.forecast import forecast  # an empty queue, which `status` mostly sees, needs no forecast

    try:
        plan = frozen_plan(database, entry.run_id)
    except RefusedError as error:
        return Waiting(
            entry=entry, plan=None, trials=0, left=0, duration=Estimate(duration_s=None, assumption=str(error))
        )
    schedule = build_schedule(plan)
    stored = stored_trials(database, entry.run_id)
    units = remainder(schedule, stored.trials, dropped=stored.dropped, replays=plan.gate.replays).units
    left = [trial for unit in units for trial in unit.trials]
    found = life(database, entry.run_id)
    runs = entry.run_status == "running" and is_alive(found)
    return Waiting(
        entry=entry,
        plan=plan,
        runs=runs,
        ends_at=own_end(found) if runs else None,
        trials=sum(trial.kind != "warmup" for trial in schedule),
        left=len(left),
        duration=forecast(plan, [*_warm_ups(schedule), *left], measured=known_rates(plan, str(database.url.database))),
    )


def is_alive(found: Life) -> bool:
    """Whether the process that runs it lives."""
    if found.status != "running" or found.runner_pid is None or found.runner_started_at is None:
        return False
    return holds(Lease(pid=found.runner_pid, process_started_at=found.runner_started_at, boot_id=found.boot_id))


def own_end(found: Life) -> dt.datetime | None:
    """When a run's trials end, by those so far; None: not known, or all are done."""
    current = found.current or {}
    if not current.get("ends_at") or current.get("done") == current.get("total"):
        return None
    return dt.datetime.fromisoformat(current["ends_at"])


def _warm_ups(schedule: Sequence[ScheduledTrial]) -> list[ScheduledTrial]:
    return [trial for trial in schedule if trial.kind == "warmup"]


def agenda(waiting: Sequence[Waiting], *, now: dt.datetime) -> list[Slot]:
    """One after the other, from now on; what runs already, first: one process a machine measures. Pure."""
    return list(_slots(sorted(waiting, key=lambda each: not each.runs), now))


def _slots(waiting: Sequence[Waiting], now: dt.datetime) -> Iterator[Slot]:
    at: dt.datetime | None = now
    for each in waiting:
        if each.ends_at is not None:  # what the run knows of itself goes before any forecast
            left_s = max(0.0, (each.ends_at - now).total_seconds())
            each = replace(each, duration=Estimate(duration_s=left_s, assumption="by its trials so far"))
        seconds = each.duration.duration_s
        ends_at = None if at is None or seconds is None else at + dt.timedelta(seconds=seconds)
        yield Slot(waiting=each, starts_at=at, ends_at=ends_at)
        at = ends_at
