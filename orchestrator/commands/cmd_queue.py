"""`interlace queue`."""

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands import options
from orchestrator.commands.stored_runs import open_stored
from orchestrator.errors import InputError

if TYPE_CHECKING:
    from db.engine import Database


@click.group("queue")
def command() -> None:
    """Runs that wait for this machine: add, list, cancel, move."""


@command.command("add")
@options.plan_arguments
def add(overrides: tuple[str, ...], config_dir: Path | None) -> None:
    """Freeze a plan and let it wait, with its weights fetched and its memory checked.

    While a run is measured on this machine nothing is fetched, for that would disturb it: `work` fetches before this
    run's turn.
    """
    from orchestrator.commands.planned_run import compose_run, fetched_run, pinned_run, refuse_bare, store_run
    from orchestrator.planning.fetching import to_fetch
    from orchestrator.queue.machine_lock import machine_holder
    from orchestrator.views.terminal import console

    refuse_bare("queue add", overrides, config_dir=config_dir)
    planned = compose_run(overrides, config_dir=config_dir)
    if (holder := machine_holder()) is not None and to_fetch(planned.plan):
        console().print(f"not fetched now: this machine is measuring ({holder}); `interlace work` fetches it first")
        planned = pinned_run(planned)
    else:
        planned = fetched_run(planned, quiet=False)
    database, run_id = store_run(planned, quiet=False)
    console().print(f"queued: run {run_id}")
    _show(database)
    console().print("start the queue with `interlace work`, or `interlace work --until 07:00`")


@command.command("list")
@options.db
def list_(url: str | None) -> None:
    """List the waiting runs, their durations, and when the queue ends."""
    _show(open_stored(url))


@command.command("cancel")
@click.argument("run_text", metavar="ID")
@options.db
def cancel(run_text: str, url: str | None) -> None:
    """Take a run out of the queue. ID is a unique part of its id."""
    from db import queue
    from orchestrator.running.stored import refuse_if_held
    from orchestrator.views.terminal import console

    database = open_stored(url)
    run_id = _waiting_run(database, run_text)
    refuse_if_held(database, run_id)  # a run under way has to be stopped first
    queue.cancel(database, run_id)
    console().print(f"run {run_id} left the queue; its stored trials are kept")


@command.command("move")
@click.argument("run_text", metavar="ID")
@click.option("--before", metavar="ID", help="Move before this run.")
@click.option("--first", is_flag=True, help="Move to the front.")
@click.option("--last", is_flag=True, help="Move to the end.")
@options.db
def move(run_text: str, before: str | None, url: str | None, *, first: bool, last: bool) -> None:
    """Move a run within the queue. ID is a unique part of its id."""
    from db import queue

    if sum((before is not None, first, last)) != 1:
        raise InputError("queue move: give one of --before ID, --first or --last")
    database = open_stored(url)
    run_id = _waiting_run(database, run_text)
    other = None if before is None else _waiting_run(database, before)
    queue.move(database, run_id, before=other, first=first)
    _show(database)


def _waiting_run(database: "Database", run_text: str) -> str:
    """The waiting run that a part of an id names. Only those that wait are looked through: fewer letters are enough."""
    from db.queue_entries import entries
    from db.runs import choose_run

    waiting = entries(database)
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
