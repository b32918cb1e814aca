"""`interlace status` and `interlace doctor`."""

import datetime as dt
import sys

from orchestrator.commands.opening import EXIT_DONE, open_stored
from orchestrator.errors import RefusedError


def show_status(*, url: str | None, limit: int, live: bool) -> None:
    """`interlace status`: who measures, what runs, what waits, the runs, and the last problems."""
    from db.live import problems
    from db.runs import newest_runs
    from orchestrator.queue.agenda import agenda, waiting_here
    from orchestrator.queue.machine_lock import machine_holder
    from orchestrator.queue.watch import live_run, watch
    from orchestrator.views.queue_view import print_queue
    from orchestrator.views.status_view import print_at, print_problems, print_status
    from orchestrator.views.terminal import console
    from workers.machine.host import read_host

    database, out, now = open_stored(url), console(), dt.datetime.now(dt.UTC)
    running = live_run(database)
    if live and running is not None:
        watch(database, running.run_id, out)
        return
    print_at(machine_holder(), running, out, now=now)
    waiting = waiting_here(database, read_host())
    newest = newest_runs(database, limit=limit)
    print_status(newest, out)
    if waiting:
        out.print()
        print_queue(agenda(waiting, now=now), out, now=now)
    for run in newest[:1]:
        print_problems(problems(database, run.run_id), out)


def show_doctor(*, url: str | None, as_json: bool) -> int:
    """`interlace doctor`: look at this machine, change nothing."""
    from db.errors import DatabaseError
    from db.migrate import current
    from db.session import database_path, database_url
    from orchestrator.doctor import as_json as doctor_json
    from orchestrator.doctor import examine
    from orchestrator.running.leftovers import journal_beside
    from orchestrator.views.doctor_view import print_diagnosis
    from orchestrator.views.terminal import console

    chosen = database_url(url)
    path = database_path(chosen)
    try:
        words = str(current(chosen))
    except DatabaseError as error:
        words = str(error)
    found = examine(database=path, database_words=words, journal=journal_beside(path))
    if as_json:
        sys.stdout.write(doctor_json(found))
    else:
        print_diagnosis(found, console())
    return RefusedError.exit_code if found.obstacles else EXIT_DONE
