"""`interlace doctor`."""

import sys

import click

from orchestrator.commands import options
from orchestrator.errors import RefusedError


@click.command("doctor")
@options.db
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
def command(url: str | None, *, as_json: bool) -> int:
    """Show what this machine can run and record, and why a reading is missing.

    Exit code 4 when a run would be refused now.
    """
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
    return RefusedError.exit_code if found.obstacles else 0
