"""The database and the run that a command names."""

from typing import TYPE_CHECKING

from orchestrator.errors import HeldError, IncompleteError, InputError

if TYPE_CHECKING:
    from db.engine import Database
    from orchestrator.stored_run import StoredRun


def open_stored(url: str | None) -> "Database":
    """Open the database, which must exist."""
    from db.session import database_url, open_existing

    return open_existing(database_url(url))


def measured_run(database: "Database", run_text: str) -> "StoredRun":
    """Return a run to be judged.

    Raises:
        RunNotFoundError: none fits, or several.
        RefusedError: another version of interlace planned it.
        IncompleteError: nothing of it is measured.
    """
    from sqlalchemy import text

    from db.session import plain_read
    from orchestrator.stored_run import StoredRun

    run_id = named_run(database, run_text)
    with plain_read(database) as connection:
        sql = "SELECT EXISTS (SELECT 1 FROM trial WHERE run_id = :run_id AND kind != 'warmup')"
        measured = connection.execute(text(sql), {"run_id": run_id}).scalar_one()
    if not measured:
        raise IncompleteError(_why_unmeasured(database, run_id))
    return StoredRun.load(database, run_id)


def _why_unmeasured(database: "Database", run_id: str) -> str:
    """State in one line why a run has no trial, and the remedy."""
    from db.escaping import shown_line
    from db.live import life
    from db.queue_entries import entry_of

    found, entry = life(database, run_id), entry_of(database, run_id)
    status, note = found.status, found.note
    if status == "planned" and entry is not None and entry.state == "failed":
        status, note = entry.state, entry.note  # refused before its first worker started
    resume = f"`interlace resume {run_id}` continues it"
    words = {
        "planned": "nothing is measured yet; `interlace work` measures it",
        "running": f"nothing is measured yet; see `interlace status`; if its process is gone, {resume}",
        "interrupted": f"nothing is measured yet; {resume}",
    }.get(status, "nothing was measured")
    why = f": {shown_line(note)}" if note and status == "failed" else ""
    return f"run {run_id} ({status}): {words}{why}"


def unfinished_run(database: "Database") -> str:
    """The newest run planned here that was interrupted or failed, or whose process is gone. Loads no pandas.

    Raises:
        HeldError: there is no such run, and a living process runs one.
        InputError: there is no such run.
    """
    from sqlalchemy import text

    from db.runs import LEFT_UNFINISHED, OWN_RUNS_SQL
    from db.session import plain_read
    from orchestrator.running.stored import refuse_if_held

    with plain_read(database) as connection:
        rows = connection.execute(text(OWN_RUNS_SQL)).all()
    held: HeldError | None = None
    for run_id in (str(run_id) for run_id, status in rows if status in LEFT_UNFINISHED):
        try:
            refuse_if_held(database, run_id)
        except HeldError as error:
            held = held or error
        else:
            return run_id
    raise held or InputError("nothing to resume: no run was interrupted or failed; see `interlace status`")


def named_run(database: "Database", run_text: str) -> str:
    """The id of the run that a person names: an id, a unique part of one, an experiment's newest run, or `last`.

    Loads no pandas.

    Raises:
        RunNotFoundError: none fits, or several.
    """
    from sqlalchemy import text

    from db.runs import RUNS_SQL, choose_run
    from db.session import plain_read

    with plain_read(database) as connection:
        return choose_run([tuple(row) for row in connection.execute(text(RUNS_SQL))], run_text, by_experiment=True)
