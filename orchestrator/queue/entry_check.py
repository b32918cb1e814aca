"""The preflight of waiting runs: every arm loads and answers a few tokens in the evening, so problems show early."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping

from db import queue
from db.engine import Database
from db.queue import Entry
from orchestrator.environments.provision import ready
from orchestrator.errors import InputError, RefusedError
from orchestrator.plan import Arm, Plan
from orchestrator.planning.weights import find_weights, refuse_what_does_not_fit
from orchestrator.running.crew import Member
from orchestrator.running.execution import crew_of
from orchestrator.running.preflight import try_arm
from orchestrator.running.provenance import refuse_other_plan
from orchestrator.running.recorder import Recorder, reopen_run
from orchestrator.running.stored import refuse_other_weights, stored_trials
from workers.machine.host import HostFacts

HOLDS = dt.timedelta(hours=6)  # a preflight without a problem need not be repeated within this time
WHOLE_RUN = "the run"  # stands in place of an arm's name

Checked = dict[str, str | None]  # by arm: its problem; None: ready


def needs_check(entry: Entry, *, now: dt.datetime) -> bool:
    """Return whether an entry's last check is too old or found a problem; the plan is frozen, so only age matters."""
    return entry.checked_at is None or not entry.checked_well or now - entry.checked_at > HOLDS


def check_run(
    database: Database, plan: Plan, run_id: str, *, host: HostFacts, note: Callable[[str], None], now: dt.datetime
) -> Checked:
    """Load each arm alone, let it answer, check its evidence, and store the result with the entry."""
    try:
        refuse_other_plan(database, run_id, plan)
    except RefusedError as error:
        checked: Checked = {WHOLE_RUN: str(error)}
    else:
        checked = dict(_check(reopen_run(database, plan, run_id), host, note))
    queue.store_check(database, run_id, checked, now=now)
    return checked


def _check(recorder: Recorder, host: HostFacts, note: Callable[[str], None]) -> Iterator[tuple[str, str | None]]:
    plan = recorder.plan
    try:
        weights = find_weights(plan)
        refuse_other_weights(recorder.database, recorder.run_id, weights)
        refuse_what_does_not_fit(plan)
        ready(plan, note)
    except (InputError, RefusedError) as error:
        yield WHOLE_RUN, str(error)
        return
    dropped = stored_trials(recorder.database, recorder.run_id).dropped
    crew = crew_of(recorder, weights, note=note, swap=True)
    try:
        for arm in plan.arms:
            if arm.name not in dropped:
                yield arm.name, try_arm(plan, arm, crew, on_load=_recorded(recorder, arm, host))
    finally:
        crew.close()


def _recorded(recorder: Recorder, arm: Arm, host: HostFacts) -> Callable[[Member], None]:
    """Return a callback that stores an arm's versions and load time, which the next forecast uses."""
    return lambda member: recorder.arm_loaded(arm, member.hello, member.loaded, host)


def stands_in_the_way(plan: Plan, checked: Mapping[str, str | None]) -> str | None:
    """State in one line why the run must not start; None if it may, if need be without the arms that failed. Pure."""
    problems = {name: problem for name, problem in checked.items() if problem is not None}
    for name in (WHOLE_RUN, plan.control):
        if name in problems:
            return problems[name] if name == WHOLE_RUN else f"its control {name}: {problems[name]}"
    if problems and plan.design.on_preflight_failure == "stop":
        name, problem = next(iter(problems.items()))
        return f"arm {name}: {problem}"
    return None
