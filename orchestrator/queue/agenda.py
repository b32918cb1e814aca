"""The runs that wait on this machine, with the duration and the end of each."""

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
from orchestrator.running.leases import is_held
from orchestrator.running.progress import remainder
from orchestrator.running.stored import stored_trials
from orchestrator.schedule import ScheduledTrial, build_schedule
from workers.machine.host import HostFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A waiting run and the part of it that is left."""

    entry: Entry
    plan: Plan | None  # None: this version cannot read it, and `duration` holds the reason
    trials: int  # of the schedule, without warm-ups
    left: int  # of these trials
    duration: Estimate  # of the part that is left
    runs: bool = False  # a living process executes it
    ends_at: dt.datetime | None = None  # predicted from the run's own trials; None: it does not run, or has none yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A waiting run with its start and end; None if unknown, because its duration or an earlier run's is unknown."""

    waiting: Waiting
    starts_at: dt.datetime | None
    ends_at: dt.datetime | None


def waiting_here(database: Database, host: HostFacts) -> list[Waiting]:
    """Return the runs that wait for this machine, in queue order."""
    here = own_host_ids(database, host)
    return [look_ahead(database, entry) for entry in entries(database) if entry.host_id in here]


def look_ahead(database: Database, entry: Entry) -> Waiting:
    """Return the trials that are left of a run and their duration, by rates measured here if there are any."""
    from orchestrator.planning.forecast import forecast  # not needed for an empty queue, the usual case of `status`

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
    runs = entry.run_status == "running" and is_held(database, found.run_id, found)
    return Waiting(
        entry=entry,
        plan=plan,
        runs=runs,
        ends_at=own_end(found) if runs else None,
        trials=sum(trial.kind != "warmup" for trial in schedule),
        left=len(left),
        duration=forecast(plan, [*_warm_ups(schedule), *left], measured=known_rates(plan, str(database.url.database))),
    )


def own_end(found: Life) -> dt.datetime | None:
    """Predict when a run's trials end from those so far; None if unknown, or if all are done."""
    current = found.current or {}
    if not current.get("ends_at") or current.get("done") == current.get("total"):
        return None
    return dt.datetime.fromisoformat(current["ends_at"])


def _warm_ups(schedule: Sequence[ScheduledTrial]) -> list[ScheduledTrial]:
    return [trial for trial in schedule if trial.kind == "warmup"]


def agenda(waiting: Sequence[Waiting], *, now: dt.datetime) -> list[Slot]:
    """Place the runs one after the other, a running one first: a machine has one measuring process. Pure."""
    return list(_slots(sorted(waiting, key=lambda each: not each.runs), now))


def _slots(waiting: Sequence[Waiting], now: dt.datetime) -> Iterator[Slot]:
    at: dt.datetime | None = now
    for each in waiting:
        if each.ends_at is not None:  # the run's own prediction is better than a forecast
            left_s = max(0.0, (each.ends_at - now).total_seconds())
            each = replace(each, duration=Estimate(duration_s=left_s, assumption="by its trials so far"))
        seconds = each.duration.duration_s
        ends_at = None if at is None or seconds is None else at + dt.timedelta(seconds=seconds)
        yield Slot(waiting=each, starts_at=at, ends_at=ends_at)
        at = ends_at
