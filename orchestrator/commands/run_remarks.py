"""`interlace db note` and `db tag`: what people say about a run."""

import sys
from collections.abc import Sequence

from db.escaping import shown_line
from db.remarks import NOTHING, Remark, change_tags, remarks, set_remark
from orchestrator.commands.stored_runs import named_run, open_stored


def note(run_text: str, words: str | None, *, url: str | None) -> None:
    """Store a note about a run; None: only show what was said.

    Raises:
        RemarkError: the note cannot be stored.
    """
    database = open_stored(url)
    run_id = named_run(database, run_text)
    if words is not None:
        set_remark(database, run_id, words)
    _show(run_id, remarks(database).get(run_id, NOTHING))


def tag(run_text: str, add: Sequence[str], *, remove: Sequence[str], url: str | None) -> None:
    """Add and remove a run's tags; without any, only show what was said.

    Raises:
        RemarkError: a tag cannot be stored.
    """
    database = open_stored(url)
    run_id = named_run(database, run_text)
    if add or remove:
        change_tags(database, run_id, add=add, remove=remove)
    _show(run_id, remarks(database).get(run_id, NOTHING))


def _show(run_id: str, said: Remark) -> None:
    sys.stdout.write(f"run {run_id}: {shown_line(str(said)) or 'no note and no tag'}\n")
