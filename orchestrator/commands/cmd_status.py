"""`interlace status`."""

import datetime as dt

import click

from orchestrator.commands import options
from orchestrator.commands.stored_runs import open_stored


@click.command("status")
@options.db
@click.option("--limit", default=20, show_default=True, help="Number of runs to show, newest first.")
@click.option("--watch", is_flag=True, help="Follow the current run until it ends; Ctrl-C stops only the watching.")
def command(url: str | None, limit: int, *, watch: bool) -> None:
    """Show what this machine measures and until when, what waits, and the last problems."""
    from db.live import problems
    from db.runs import newest_runs
    from orchestrator.queue.agenda import agenda, waiting_here
    from orchestrator.queue.machine_lock import machine_holder
    from orchestrator.views.queue_view import print_queue
    from orchestrator.views.status_view import print_at, print_problems, print_status
    from orchestrator.views.terminal import console
    from orchestrator.views.watch import live_run
    from orchestrator.views.watch import watch as follow
    from workers.machine.host import read_host

    database, out, now = open_stored(url), console(), dt.datetime.now(dt.UTC)
    running = live_run(database)
    if watch and running is not None:
        follow(database, running.run_id, out)
        return
    print_at(machine_holder(), running, out, now=now)
    waiting = waiting_here(database, read_host())
    newest = newest_runs(database, limit=limit)
    print_status(database, newest, out)
    if waiting:
        out.print()
        print_queue(agenda(waiting, now=now), out, now=now)
    for run in newest[:1]:
        print_problems(problems(database, run.run_id), out)
