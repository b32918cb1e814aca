"""`interlace queue` and `interlace work`; and putting a run into the queue, which `interlace run` begins with."""

import datetime as dt
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from db.escaping import shown
from orchestrator.commands.opening import EXIT_DONE, open_stored, optional_path
from orchestrator.errors import IncompleteError, InterlaceError
from orchestrator.plan import Plan

if TYPE_CHECKING:
    from db.engine import Database
    from orchestrator.planning.weights import ArmWeights
    from orchestrator.queue.agenda import Waiting
    from orchestrator.queue.machine_lock import MachineLock
    from orchestrator.queue.night import Night


# ---- a run into the queue ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan that this machine could run: composed, its weights found, its memory held against what there is."""

    plan: Plan
    weights: "Mapping[str, ArmWeights]"
    url: str

    @property
    def measured(self) -> bool:
        from orchestrator.planning.residency import is_simulated

        return not all(is_simulated(arm) for arm in self.plan.arms)


def compose_run(overrides: Sequence[str], *, config_dir: str | None) -> Planned:
    """Compose and freeze a plan; nothing is stored.

    Raises:
        InputError: the plan, or a checkpoint that is not there.
        RefusedError: it does not fit into this machine's memory.
    """
    from db.session import database_url
    from orchestrator.configuration.compose import make_plan
    from orchestrator.planning.weights import find_weights, refuse_what_does_not_fit
    from orchestrator.views.machine_lines import noise_here

    composed = make_plan(overrides, config_dir=optional_path(config_dir), noise_of=noise_here)
    weights = find_weights(composed.plan)
    refuse_what_does_not_fit(composed.plan)
    return Planned(plan=composed.plan, weights=weights, url=database_url(composed.db_url))


def store_run(planned: Planned, *, quiet: bool) -> tuple["Database", str]:
    """Store the frozen plan as a run, and put it last into the queue; the run's id."""
    from db import queue
    from db.session import database_path, open_database
    from orchestrator.running.recorder import create_run
    from orchestrator.schedule import build_schedule
    from orchestrator.views.machine_lines import machine_lines
    from orchestrator.views.plan_view import print_plan
    from orchestrator.views.terminal import console
    from workers.machine.host import read_host

    database = open_database(planned.url)
    if not quiet:
        schedule = build_schedule(planned.plan)
        print_plan(planned.plan, schedule, console(), extra=machine_lines(planned.plan, schedule, url=planned.url))
    log_root = database_path(planned.url).parent / "logs"
    recorder = create_run(database, planned.plan, host=read_host(), weights=planned.weights, log_root=log_root)
    queue.add(database, recorder.run_id, now=dt.datetime.now(dt.UTC))
    return database, recorder.run_id


# ---- interlace queue ----


def add_to_queue(overrides: Sequence[str], *, config_dir: str | None) -> None:
    """`interlace queue add`: what `plan` prints, and when the whole queue ends."""
    from orchestrator.views.terminal import console

    database, run_id = store_run(compose_run(overrides, config_dir=config_dir), quiet=False)
    console().print(f"queued: run {run_id}")
    _show(database)
    console().print("start the queue with `interlace work`, or `interlace work --until 07:00`")


def list_queue(*, url: str | None) -> None:
    """`interlace queue list`."""
    _show(open_stored(url))


def cancel_entry(run_text: str, *, url: str | None) -> None:
    """`interlace queue cancel`: a run that is being run must be stopped first."""
    from db import queue
    from orchestrator.running.stored import refuse_if_held
    from orchestrator.views.terminal import console

    database = open_stored(url)
    run_id = _waiting_run(database, run_text)
    refuse_if_held(database, run_id)
    queue.cancel(database, run_id)
    console().print(f"run {run_id} waits no longer; what is stored of it stays")


def move_entry(run_text: str, *, before: str | None, first: bool, last: bool, url: str | None) -> None:
    """`interlace queue move`: before another one, to the front or to the end.

    Raises:
        InputError: none of the three places is named, or several.
    """
    from db import queue
    from orchestrator.errors import InputError

    if sum((before is not None, first, last)) != 1:
        raise InputError("queue move: say where to: --before ID, --first or --last")
    database = open_stored(url)
    run_id = _waiting_run(database, run_text)
    other = None if before is None else _waiting_run(database, before)
    queue.move(database, run_id, before=other, first=first)
    _show(database)


def _waiting_run(database: "Database", run_text: str) -> str:
    """The waiting run that a part of an id names. Only those that wait are looked through: fewer letters are enough."""
    from db import queue
    from db.runs import choose_run
    from orchestrator.errors import InputError

    waiting = queue.entries(database)
    if not waiting:
        raise InputError("nothing waits in the queue; see `interlace status`")
    newest_first = sorted(waiting, key=lambda entry: entry.added_at, reverse=True)
    return choose_run([(each.run_id, each.experiment, each.run_status) for each in newest_first], run_text)


def _show(database: "Database") -> None:
    from orchestrator.queue.agenda import agenda, waiting_here
    from orchestrator.views.queue_view import print_queue
    from orchestrator.views.terminal import console
    from workers.machine.host import read_host

    now = dt.datetime.now(dt.UTC)
    print_queue(agenda(waiting_here(database, read_host()), now=now), console(), now=now)


# ---- interlace work ----


def work(*, until: str | None, preflight: bool, url: str | None, quiet: bool) -> int:
    """`interlace work`: show what waits and when it ends, check it all, run it, and tell how it went."""
    from orchestrator.queue.agenda import agenda, waiting_here
    from orchestrator.queue.clock_times import next_time
    from orchestrator.queue.machine_lock import MachineLock
    from orchestrator.queue.night import Night
    from orchestrator.running.execution import ending_signals_as_interrupts
    from orchestrator.views.night_view import NightTeller
    from orchestrator.views.queue_view import print_queue
    from orchestrator.views.terminal import console
    from workers.machine.host import read_host

    out, now, host = console(), dt.datetime.now(dt.UTC), read_host()
    ends_at = None if until is None else next_time(until, now=now)
    database = open_stored(url)
    waiting = waiting_here(database, host)
    with MachineLock("interlace work") as lock, ending_signals_as_interrupts():
        _take_machine(waiting, lock, database)
        print_queue(agenda(waiting, now=now), out, now=now, until=ends_at)
        if not waiting:
            return EXIT_DONE
        night = Night(database=database, host=host, lock=lock, teller=NightTeller(out, quiet=quiet), until=ends_at)
        return _through(night, waiting if preflight and len(waiting) > 1 else [])


def _take_machine(waiting: "Sequence[Waiting]", lock: "MachineLock", database: "Database") -> None:
    """Refuse now what would be refused at night: somebody measures already, or this machine is not fit."""
    from orchestrator.planning.residency import is_simulated
    from orchestrator.running.execution import check_machine

    for each in waiting:
        if each.plan is not None and not all(is_simulated(arm) for arm in each.plan.arms):
            lock.take()
            check_machine(each.plan, Path(database.url.database or "."))


def _through(night: "Night", to_check: "Sequence[Waiting]") -> int:
    """The night itself. However it ends, it is summed up and told."""
    from db.errors import StorageError

    began_at = night.now()
    try:
        night.check(to_check)
        night.drain()
    except KeyboardInterrupt:
        _sum_up(night, began_at, why="it was interrupted", code=130)
        raise
    except StorageError as error:
        _sum_up(night, began_at, why=f"nothing could be stored: {error}", code=error.exit_code)
        raise
    except InterlaceError as error:
        _sum_up(night, began_at, why=str(error), code=error.exit_code)
        raise
    left = _left(night)
    code = IncompleteError.exit_code if left or any(run.state == "failed" for run in night.ended) else EXIT_DONE
    why = (
        "the queue is empty" if not left else "the time had come" if night.is_over else "what is left cannot go on now"
    )
    _sum_up(night, began_at, why=why, code=code)
    return code


def _left(night: "Night") -> int:
    from orchestrator.queue.agenda import waiting_here

    return len(waiting_here(night.database, night.host))


def _sum_up(night: "Night", began_at: dt.datetime, *, why: str, code: int) -> None:
    """The summary file, and whoever is to be told. What fails of it is a note."""
    from db.errors import StorageError
    from orchestrator.queue.notification import notify
    from orchestrator.queue.summary import Summary, markdown, write_summary

    path = Path(night.database.url.database or ".")
    try:
        left = _left(night)
    except StorageError:
        left = 0
    summary = Summary(
        host=night.host.hostname,
        database=str(path),
        began_at=began_at,
        ended_at=night.now(),
        why=why,
        runs=night.ended,
        waiting=left,
    )
    try:
        written = write_summary(summary, path)
    except OSError as error:
        sys.stderr.write(f"interlace: the night's summary cannot be written: {shown(str(error))}\n")
        written = path
    else:
        night.teller.noted(f"the night in a file: {written}")
    for problem in notify(summary.headline, markdown(summary), written, exit_code=code):
        night.teller.noted(f"not notified: {problem}")
