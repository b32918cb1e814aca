"""`interlace work`."""

import datetime as dt

import click

from orchestrator.commands import options
from orchestrator.commands.stored_runs import open_stored


@click.command("work")
@options.db
@click.option(
    "--until", metavar="TIME", help="Stop at this time of day, such as 07:00, after finishing the current round."
)
@click.option("--preflight/--no-preflight", default=True, help="Try every arm of every run first. Default: yes.")
@click.option("--quiet", is_flag=True, help="Print only the end of each run.")
def command(url: str | None, until: str | None, *, preflight: bool, quiet: bool) -> int:
    """Execute the queued runs, one after the other.

    Exit code 3 if a run is left or failed; the next `work` continues.
    """
    from orchestrator.commands.night_work import spend, take_machine
    from orchestrator.commands.queued_searches import continue_search, continue_searches
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
    for line in continue_searches(database):
        out.print(line, markup=False, soft_wrap=True)
    waiting = waiting_here(database, host)
    with MachineLock("interlace work") as lock, ending_signals_as_interrupts():
        take_machine(waiting, lock, database)
        print_queue(agenda(waiting, now=now), out, now=now, until=ends_at)
        if not waiting:
            return 0
        night = Night(
            database=database,
            host=host,
            lock=lock,
            teller=NightTeller(out, quiet=quiet),
            until=ends_at,
            then=continue_search,
        )
        return spend(night, waiting, preflight=preflight and len(waiting) > 1)
