"""`interlace status` and `interlace doctor`."""

import sys

from orchestrator.commands.opening import EXIT_DONE, open_stored
from orchestrator.errors import RefusedError


def show_status(*, url: str | None, limit: int) -> None:
    """`interlace status`: the runs, newest first."""
    from db.frames import runs
    from orchestrator.views.status_view import print_status
    from orchestrator.views.terminal import console

    print_status(runs(open_stored(url), limit=limit), console())


def show_doctor(*, url: str | None, as_json: bool) -> int:
    """`interlace doctor`: look at this machine, change nothing."""
    from db.errors import DatabaseError
    from db.migrate import current
    from db.session import database_path, database_url
    from orchestrator.doctor import as_json as doctor_json
    from orchestrator.doctor import examine
    from orchestrator.running.readiness import journal_beside
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
