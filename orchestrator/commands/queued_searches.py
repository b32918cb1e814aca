"""Bisections in the queue: each waits as the run of its next step, and the end of that run puts the next one in front.

The question lies in a file of the folder `bisections` beside the database until it is answered. All else is read from
the stored runs, so that a search goes on after a kill at any moment, by `interlace work` or by `interlace bisect`.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from db import queue
from db.engine import Database
from db.queue_entries import Entry
from db.session import database_path
from orchestrator.commands.release_search import EndsError, Question, Search, WaitingError, answer_lines
from orchestrator.errors import InputError, RefusedError
from workers.files.atomic import write_file
from workers.files.private import make_private_folder

FOLDER = "bisections"


def queue_search(question: Question) -> tuple[Database, str] | None:
    """Put the next step of a search into the queue, last; None: the stored runs answer it already.

    Raises:
        InputError, RefusedError: the step cannot be composed, or its run has failed.
    """
    try:
        Search(question=question, tell=lambda words: None, executes=False, again=True).run()
    except WaitingError as waiting:
        path = _path(database_path(str(waiting.database.url)), question)
        make_private_folder(path.parent)
        write_file(path, _written(question))
        return waiting.database, waiting.run_id
    return None


def continue_searches(database: Database) -> list[str]:
    """Put the next step of each queued search into the queue unless it waits there; a line per search that moved."""
    folder = Path(database.url.database or ".").parent / FOLDER
    return [line for path in sorted(folder.glob("*.json")) for line in _continue(path, database)]


def continue_search(database: Database, ended: Entry) -> list[str]:
    """Do the same after a run has ended, for the search that it is a step of; its next step goes to the front."""
    path = Path(database.url.database or ".").parent / FOLDER / f"{ended.experiment}.json"
    return list(_continue(path, database, first=True)) if path.exists() else []


def _continue(path: Path, database: Database, *, first: bool = False) -> Iterator[str]:
    told: list[str] = []
    try:
        question = _question(path)
        url = database.url.render_as_string(hide_password=False)
        found = Search(question=question, tell=told.append, executes=False, url=url).run()
    except WaitingError as waiting:
        if waiting.is_new:
            if first:
                queue.move(waiting.database, waiting.run_id, first=True)
            yield "; ".join([*told[-1:], f"its next step is run {waiting.run_id}"])
        return
    except (InputError, EndsError) as error:
        yield f"{path.stem} leaves the queue: {error}"
        path.unlink(missing_ok=True)
    except RefusedError as error:
        yield f"{path.stem} cannot go on now: {error}; the next `interlace work` tries again"
    else:
        yield "; ".join(answer_lines(found, question))
        path.unlink(missing_ok=True)


def _path(database: Path, question: Question) -> Path:
    return database.parent / FOLDER / f"{question.experiment}.json"


def _written(question: Question) -> bytes:
    stored = asdict(question) | {"config_dir": None if question.config_dir is None else str(question.config_dir)}
    return json.dumps(stored, indent=1).encode()


def _question(path: Path) -> Question:
    """Raises:
    InputError: the file is not a search that this version wrote.
    """
    try:
        stored = json.loads(path.read_bytes())
        folder = stored["config_dir"]
        return Question(
            package=stored["package"],
            releases=tuple(stored["releases"]),
            overrides=tuple(stored["overrides"]),
            config_dir=None if folder is None else Path(folder),
            rounds=stored["rounds"],
            alpha=stored["alpha"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is not a stored search ({type(error).__name__}); add it again") from None
